"""Attention of one token by regions, with explicit scores: what decoding does again and again.

The regions of a single query are pieces of the cache, one behind the other, so their scores are put side by side and
share one softmax and one product with the values. On CPUs this is faster than the kernels made for many queries, and a
stored key serves query heads that choose different dimension pairs.
"""

import torch

from ropewalk.kernels import Scores
from ropewalk.rotated import Keys, RotatedLayer


def attend_single(
    layer: RotatedLayer,
    scores: Scores,
    q: torch.Tensor,
    keys: Keys,
    v: torch.Tensor,
    query: range,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention of the query at the position of the last key.

    Args:
        q: unrotated queries [batch, heads, 1, D].
        keys: stored ones at consecutive positions.
        v: values [batch, kv heads, keys, D].
        query: its position.
        sinks: scores [heads] that take weight and have no value.

    Returns:
        Output [batch, heads, 1, D].
    """
    dtype = torch.promote_types(q.dtype, torch.float32)
    batch, heads = q.shape[:2]
    q = layer.scaled(q, query) * scores.scale  # before the product: unscaled scores can overflow float16
    parts: dict[int, torch.Tensor] = {}
    for region in layer.plan.regions:
        pairs = region.pairs.within(layer.plan.sliding_window)
        for tile in pairs.tiles(query.start, 1, keys.positions.start) if pairs is not None else ():
            rotated, seen = layer.stored_query_key(q, keys.cut(tile.key, tile.key + tile.keys), region, query)
            packed = rotated.view(batch, v.shape[1], -1, rotated.shape[-1])
            parts[tile.key] = packed @ seen.transpose(2, 3)
    first = min(parts)
    found = torch.cat([parts[key] for key in sorted(parts)], dim=-1).to(dtype)
    if scores.softcap is not None:
        found = scores.softcap * torch.tanh(found / scores.softcap)
    if sinks is not None:
        sink = sinks.to(dtype).view(1, v.shape[1], -1, 1).expand(batch, -1, -1, -1)
        found = torch.cat((found, sink), dim=-1)
    weights = found.softmax(dim=-1)[..., : v.shape[2] - first].to(v.dtype)
    return (weights @ v[:, :, first:]).view(batch, heads, 1, -1)

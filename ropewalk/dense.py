"""Attention by regions with explicit scores, a block of queries at a time.

For what the kernels do not do: masks of any form, positions in any order, soft caps, gradients, double precision on
CUDA, and one stored key for query heads that choose different dimension pairs. A block's scores are bounded, so that
memory grows with the number of keys and not with its square; a gradient keeps the scores of all blocks.
"""

import torch

from ropewalk.geometry import Geometry
from ropewalk.kernels import Scores
from ropewalk.rotated import Keys, RotatedLayer, Where
from ropewalk.tiles import Band, Chunks

BLOCK_SCORES = 2**24


def attend_dense(
    layer: RotatedLayer,
    scores: Scores,
    geometry: Geometry,
    q: torch.Tensor,
    keys: Keys,
    v: torch.Tensor,
    queries: Where,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of any queries to any keys.

    Args:
        q: unrotated queries [batch, heads, tokens, D].
        keys: of any positions.
        v: values [batch, kv heads, keys, D].
        queries: positions of the queries, as `geometry` has them, or a range where they are one in all rows.

    Returns:
        Output [batch, heads, tokens, D] in float32 (float64 for float64 queries) and log-sum-exp
        [batch, heads, tokens]; the output is 0 and the log-sum-exp −∞ for a query that sees no key.
    """
    q = layer.scaled(q, queries) * scores.scale  # before the product: unscaled scores can overflow float16
    if not keys.stored and layer.plan.mixes(layer.plan.regions[-1]):
        keys = layer.store(keys.tensor, keys.positions)
    tokens = q.shape[2]
    block = max(1, BLOCK_SCORES // (q.shape[0] * q.shape[1] * v.shape[2]))
    cuts = [slice(begin, min(begin + block, tokens)) for begin in range(0, tokens, block)]
    parts = [_attend_block(layer, scores.softcap, geometry, cut, q[:, :, cut], keys, v, queries) for cut in cuts]
    return torch.cat([out for out, _ in parts], dim=2), torch.cat([lse for _, lse in parts], dim=2)


def _attend_block(
    layer: RotatedLayer,
    softcap: float | None,
    geometry: Geometry,
    cut: slice,
    q: torch.Tensor,
    keys: Keys,
    v: torch.Tensor,
    queries: Where,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The scaled queries q, which are those of the indices `cut`."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    batch, heads, tokens = q.shape[:3]
    kv_heads, count = v.shape[1], v.shape[2]
    scores = torch.full((batch, heads, tokens, count), -torch.inf, dtype=dtype, device=q.device)
    positions = geometry.query[:, cut]
    where = queries[cut] if isinstance(queries, range) else positions
    for region in layer.plan.regions:
        pairs = region.pairs.within(layer.plan.sliding_window)
        if pairs is None:
            continue
        low, high = _reach(pairs, geometry, cut)
        if low >= high:
            continue
        seen = keys.cut(low, high)
        rotated, rotated_keys = layer.stored_query_key(q, seen, region, where)
        packed = rotated.reshape(batch, kv_heads, -1, rotated.shape[-1])
        part = (packed @ rotated_keys.transpose(2, 3)).view(batch, heads, tokens, high - low).to(dtype)
        if softcap is not None:
            part = softcap * torch.tanh(part / softcap)
        inside = pairs.contains(positions[:, :, None], geometry.key[:, None, low:high])
        scores[..., low:high] = torch.where(inside[:, None], part, scores[..., low:high])
    visible = _visible(geometry, cut)
    if visible is not None:
        scores = scores.masked_fill(~visible[:, None], -torch.inf)
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse.clamp(min=torch.finfo(dtype).min)[..., None]).exp().to(v.dtype)
    packed = weights.view(batch, kv_heads, -1, count)
    return (packed @ v).view(batch, heads, tokens, -1).to(dtype), lse


def _reach(pairs: Band | Chunks, geometry: Geometry, cut: slice) -> tuple[int, int]:
    """Indices of the keys among which those lie that the queries see in a region."""
    count = geometry.keys
    if geometry.runs is None or not isinstance(pairs, Band):
        return 0, count
    # Distances are differences of indices too.
    low, high = pairs.span(geometry.first + cut.start, geometry.first + cut.stop - 1)
    return max(0, low or 0), min(count, high + 1)


def _visible(geometry: Geometry, cut: slice) -> torch.Tensor | None:
    if geometry.mask is not None:
        return geometry.mask[:, cut]
    return None if geometry.valid is None else geometry.valid[:, None]

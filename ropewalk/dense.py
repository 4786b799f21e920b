"""Attention by regions with explicit scores, a block of queries at a time.

For what the kernels do not do: masks of any form, positions in any order, soft caps, gradients, double precision on
CUDA, and one stored key for query heads that choose different dimension pairs. A block's scores are bounded, so that
memory grows with the number of keys and not with its square; a gradient keeps the scores of all blocks.
"""

import torch

from ropewalk.geometry import Geometry
from ropewalk.layer import Keys, Layer, Where
from ropewalk.rotate import Rotator
from ropewalk.tiles import Band, Chunks

BLOCK_SCORES = 2**24


def attend_dense(
    layer: Layer,
    rotator: Rotator,
    q: torch.Tensor,
    keys: Keys,
    v: torch.Tensor,
    queries: Where,
    geometry: Geometry,
    scale: float,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of any queries to any keys.

    Args:
        q: unrotated queries [batch, heads, tokens, D].
        keys: of any positions.
        queries: positions of the queries, as `geometry` has them, or a range where they are one in all rows.
        v: values [batch, kv heads, keys, D].
        softcap: c: scores s become c·tanh(s/c).

    Returns:
        Output [batch, heads, tokens, D] in float32 (float64 for float64 queries) and log-sum-exp
        [batch, heads, tokens]; the output is 0 and the log-sum-exp −∞ for a query that sees no key.
    """
    q = layer.scaled(q, queries) * scale  # before the product: scores that are still to be scaled overflow float16
    if not keys.stored and layer.mixes(layer.regions[-1]):
        keys = layer.store(keys.tensor, keys.positions, rotator)
    tokens = q.shape[2]
    block = max(1, BLOCK_SCORES // (q.shape[0] * q.shape[1] * v.shape[2]))
    blocks = [(begin, min(begin + block, tokens)) for begin in range(0, tokens, block)]
    parts = [_attend_block(layer, rotator, q, keys, v, queries, geometry, *block, softcap) for block in blocks]
    return torch.cat([out for out, _ in parts], dim=2), torch.cat([lse for _, lse in parts], dim=2)


def _attend_block(
    layer: Layer,
    rotator: Rotator,
    q: torch.Tensor,
    keys: Keys,
    v: torch.Tensor,
    queries: Where,
    geometry: Geometry,
    begin: int,
    end: int,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The queries, which are scaled, from index `begin` to before `end`."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    batch, heads = q.shape[:2]
    kv_heads, count = v.shape[1], v.shape[2]
    scores = torch.full((batch, heads, end - begin, count), -torch.inf, dtype=dtype, device=q.device)
    positions = geometry.query[:, begin:end]
    where = queries[begin:end] if isinstance(queries, range) else positions
    for region in layer.regions:
        pairs = region.pairs.within(layer.sliding_window)
        if pairs is None:
            continue
        low, high = _reach(pairs, geometry, begin, end)
        if low >= high:
            continue
        seen = keys.cut(low, high)
        rotated, rotated_keys = layer.stored_query_key(q[:, :, begin:end], seen, region, where, rotator)
        packed = rotated.reshape(batch, kv_heads, -1, rotated.shape[-1])
        part = (packed @ rotated_keys.transpose(2, 3)).view(batch, heads, end - begin, high - low).to(dtype)
        if softcap is not None:
            part = softcap * torch.tanh(part / softcap)
        inside = pairs.contains(positions[:, :, None], geometry.key[:, None, low:high])
        scores[..., low:high] = torch.where(inside[:, None], part, scores[..., low:high])
    visible = _visible(geometry, begin, end)
    if visible is not None:
        scores = scores.masked_fill(~visible[:, None], -torch.inf)
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse.clamp(min=torch.finfo(dtype).min)[..., None]).exp().to(v.dtype)
    packed = weights.view(batch, kv_heads, -1, count)
    return (packed @ v).view(batch, heads, end - begin, -1).to(dtype), lse


def _reach(pairs: Band | Chunks, geometry: Geometry, begin: int, end: int) -> tuple[int, int]:
    """Indices of the keys among which those lie that the queries see in a region."""
    count = geometry.keys
    if geometry.runs is None or not isinstance(pairs, Band):
        return 0, count
    # Distances are differences of indices too.
    low, high = pairs.span(geometry.first + begin, geometry.first + end - 1)
    return max(0, low or 0), min(count, high + 1)


def _visible(geometry: Geometry, begin: int, end: int) -> torch.Tensor | None:
    if geometry.mask is not None:
        return geometry.mask[:, begin:end]
    return None if geometry.valid is None else geometry.valid[:, None]

"""Attention by regions with a kernel for each tile: no scores are kept, and nothing of size tokens × tokens is made."""

from collections.abc import Iterator, Sequence

import torch

from ropewalk.kernels import Kernel
from ropewalk.layer import Keys, Layer, PairRegion
from ropewalk.merge import Merged
from ropewalk.rotate import Rotator
from ropewalk.tiles import Tile

ROW_TOKENS = 16384


def attend_tiled(
    layer: Layer,
    rotator: Rotator,
    q: torch.Tensor,
    keys: Keys,
    v: torch.Tensor,
    queries: range,
    scale: float,
    softcap: float | None,
    kernel: Kernel,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of queries at consecutive positions to the keys up to each.

    Args:
        q: unrotated queries [batch, heads, tokens, D].
        keys: at consecutive positions, of which the last is the last query's.
        v: values [batch, kv heads, keys, D].
        queries: positions of the queries.

    Returns:
        Output [batch, heads, tokens, D] and log-sum-exp [batch, heads, tokens] in float32, float64 for float64 queries.
    """
    merged = Merged(q, v.shape[-1])
    q = layer.scaled(q, queries)
    for region in layer.regions:
        pairs = region.pairs.within(layer.sliding_window)
        tiles = pairs.tiles(queries.start, len(queries), keys.positions.start) if pairs is not None else []
        if tiles:
            _attend_region(layer, rotator, region, tiles, q, keys, v, queries, scale, softcap, kernel, merged)
    return merged.out, merged.lse


def _attend_region(
    layer: Layer,
    rotator: Rotator,
    region: PairRegion,
    tiles: Sequence[Tile],
    q: torch.Tensor,
    keys: Keys,
    v: torch.Tensor,
    queries: range,
    scale: float,
    softcap: float | None,
    kernel: Kernel,
    merged: Merged,
) -> None:
    """Add a region. Where query heads that share a key head need it in several versions, one after the other."""
    top, bottom = min(tile.query for tile in tiles), max(tile.query + tile.queries for tile in tiles)
    left, right = min(tile.key for tile in tiles), max(tile.key + tile.keys for tile in tiles)
    q, v, seen = q[:, :, top:bottom], v[:, :, left:right], keys.cut(left, right)
    kv_heads = v.shape[1]
    repeats: Sequence[int | None] = range(q.shape[1] // kv_heads) if layer.mixes(region) else (None,)
    for repeat in repeats:
        heads = q if repeat is None else q.unflatten(1, (kv_heads, -1))[:, :, repeat]
        part = merged if repeat is None else merged.of_repeat(repeat, kv_heads)
        rotated = layer.query(heads, region, queries[top:bottom], rotator, repeat)
        rotated_keys = layer.key(seen, region, rotator, repeat)
        for row in _rows(tiles):
            _attend_row(row, top, left, rotated, rotated_keys, v, scale, softcap, kernel, part)


def _attend_row(
    row: Sequence[Tile],
    top: int,
    left: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    softcap: float | None,
    kernel: Kernel,
    merged: Merged,
) -> None:
    """Add a row of tiles in one call of the kernel."""
    first = row[0]
    step, key_step = (row[1].query - first.query, row[1].key - first.key) if len(row) > 1 else (first.queries, 1)

    def gathered(x: torch.Tensor, start: int, size: int, step: int) -> torch.Tensor:
        """[tiles · batch, heads, size, D]"""
        if len(row) == 1:
            whole = x[:, :, start : start + size]
        else:
            pieces = x[:, :, start:].unfold(2, size, step)[:, :, : len(row)]
            whole = pieces.permute(2, 0, 1, 4, 3).flatten(0, 1)
        return whole.flip(2) if first.kind == "anticausal" else whole

    out, lse = kernel(
        gathered(q, first.query - top, first.queries, step),
        gathered(k, first.key - left, first.keys, key_step),
        gathered(v, first.key - left, first.keys, key_step),
        scale,
        first.kind != "full",
        softcap,
    )
    if first.kind == "anticausal":  # row r sees the keys from r on: turned about, it is causal
        out, lse = out.flip(2), lse.flip(2)
    merged.add(first.query, step, out.unflatten(0, (len(row), -1)), lse.unflatten(0, (len(row), -1)))


def _rows(tiles: Sequence[Tile]) -> Iterator[list[Tile]]:
    """Tiles of one kind and size at equal steps together, up to `ROW_TOKENS` queries."""
    groups: dict[tuple[str, int, int], list[Tile]] = {}
    for tile in tiles:
        groups.setdefault((tile.kind, tile.queries, tile.keys), []).append(tile)
    for group in groups.values():
        row = [group[0]]
        for tile in group[1:]:
            step, key_step = tile.query - row[-1].query, tile.key - row[-1].key
            even = len(row) == 1 or (step, key_step) == (row[1].query - row[0].query, row[1].key - row[0].key)
            if even and step >= tile.queries and key_step > 0 and (len(row) + 1) * tile.queries <= ROW_TOKENS:
                row.append(tile)
            else:
                yield row
                row = [tile]
        yield row

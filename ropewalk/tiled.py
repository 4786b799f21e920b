"""Attention by regions with a kernel for each tile: no scores are kept, and nothing of size tokens × tokens is made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ropewalk.kernels import Kernel, Scores
from ropewalk.layer import PairRegion
from ropewalk.merge import Merged
from ropewalk.rotated import Keys, RotatedLayer
from ropewalk.tiles import Tile

ROW_TOKENS = 16384


@dataclass(frozen=True, eq=False)
class Tiled:
    """Attention of queries at consecutive positions to the keys up to each.

    Attributes:
        layer: the layer's regions and rotations.
        scores: what is done to scores.
        kernel: computes a tile.
    """

    layer: RotatedLayer
    scores: Scores
    kernel: Kernel

    def attend(self, q: torch.Tensor, keys: Keys, v: torch.Tensor, queries: range) -> tuple[torch.Tensor, torch.Tensor]:
        """Output [batch, heads, tokens, D] and log-sum-exp [batch, heads, tokens], float32 or that of float64 queries.

        Args:
            q: unrotated queries [batch, heads, tokens, D].
            keys: at consecutive positions, of which the last is the last query's.
            v: values [batch, kv heads, keys, D].
            queries: positions of the queries.
        """
        merged = Merged(q, v.shape[-1])
        q = self.layer.scaled(q, queries)
        plan = self.layer.plan
        for region in plan.regions:
            pairs = region.pairs.within(plan.sliding_window)
            tiles = pairs.tiles(queries.start, len(queries), keys.positions.start) if pairs is not None else []
            if tiles:
                self._add_region(merged, region, tiles, q, keys, v, queries)
        return merged.out, merged.lse

    def _add_region(
        self,
        merged: Merged,
        region: PairRegion,
        tiles: Sequence[Tile],
        q: torch.Tensor,
        keys: Keys,
        v: torch.Tensor,
        queries: range,
    ) -> None:
        """Where query heads that share a key head need it in several versions, one after the other."""
        top, bottom = min(tile.query for tile in tiles), max(tile.query + tile.queries for tile in tiles)
        left, right = min(tile.key for tile in tiles), max(tile.key + tile.keys for tile in tiles)
        q, v, seen = q[:, :, top:bottom], v[:, :, left:right], keys.cut(left, right)
        kv_heads = v.shape[1]
        mixes = self.layer.plan.mixes(region)
        repeats: Sequence[int | None] = range(q.shape[1] // kv_heads) if mixes else (None,)
        for repeat in repeats:
            heads = q if repeat is None else q.unflatten(1, (kv_heads, -1))[:, :, repeat]
            part = merged if repeat is None else merged.of_repeat(repeat, kv_heads)
            rotated = self.layer.query(heads, region, queries[top:bottom], repeat)
            rotated_keys = self.layer.key(seen, region, repeat)
            for row in _rows(tiles):
                out, lse = self._row(row, top, left, rotated, rotated_keys, v)
                part.add(row[0].query, _steps(row)[0], out, lse)

    def _row(
        self, row: Sequence[Tile], top: int, left: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and log-sum-exp [tiles, batch, heads, tokens, …] of a row of tiles, in one call of the kernel.

        Args:
            top, left: indices, as tiles count them, of the first query of q and the first key of k and v.
        """
        first = row[0]
        step, key_step = _steps(row)

        def gathered(x: torch.Tensor, start: int, size: int, step: int) -> torch.Tensor:
            """[tiles · batch, heads, size, D]"""
            if len(row) == 1:
                whole = x[:, :, start : start + size]
            else:
                pieces = x[:, :, start:].unfold(2, size, step)[:, :, : len(row)]
                whole = pieces.permute(2, 0, 1, 4, 3).flatten(0, 1)
            return whole.flip(2) if first.kind == "anticausal" else whole

        out, lse = self.kernel(
            gathered(q, first.query - top, first.queries, step),
            gathered(k, first.key - left, first.keys, key_step),
            gathered(v, first.key - left, first.keys, key_step),
            self.scores.scale,
            first.kind != "full",
            self.scores.softcap,
        )
        if first.kind == "anticausal":  # row r sees the keys from r on: turned about, it is causal
            out, lse = out.flip(2), lse.flip(2)
        return out.unflatten(0, (len(row), -1)), lse.unflatten(0, (len(row), -1))


def _steps(row: Sequence[Tile]) -> tuple[int, int]:
    """From one tile of a row to the next, in queries and in keys."""
    if len(row) == 1:
        return row[0].queries, 1
    return row[1].query - row[0].query, row[1].key - row[0].key


def _rows(tiles: Sequence[Tile]) -> Iterator[list[Tile]]:
    """Tiles of one kind and size at equal steps together, up to `ROW_TOKENS` queries."""
    groups: dict[tuple[str, int, int], list[Tile]] = {}
    for tile in tiles:
        groups.setdefault((tile.kind, tile.queries, tile.keys), []).append(tile)
    for group in groups.values():
        row = [group[0]]
        for tile in group[1:]:
            step, key_step = _steps([row[-1], tile])
            even = len(row) == 1 or (step, key_step) == _steps(row)
            if even and step >= tile.queries and key_step > 0 and (len(row) + 1) * tile.queries <= ROW_TOKENS:
                row.append(tile)
            else:
                yield row
                row = [tile]
        yield row

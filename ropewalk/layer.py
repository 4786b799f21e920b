"""Queries and keys of one layer, rotated as each region of its distance method wants them.

A cached key is stored rotated for the last region, in which nearly all keys of a long context are seen; a nearer region
turns on the keys that it sees, which are few. So decoding a token does not rotate the whole cache.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from ropewalk.distance import Distance
from ropewalk.regions import METHODS, Positions, unchanged
from ropewalk.rotate import Angle, Rotator, Table, rotate
from ropewalk.selection import Selection
from ropewalk.tiles import Band, Chunks

Where = range | torch.Tensor
"""Positions: a range, the same in all rows, or integers [batch, tokens]."""


@dataclass(frozen=True, eq=False)
class PairRegion:
    """A region whose positions are given for each dimension pair.

    Attributes:
        pairs: of a query and a key, that belong to it.
        query, key: positions to rotate for.
        turn: by how much a stored key is still to be turned; `None` when it is stored as this region wants it.
    """

    pairs: Band | Chunks
    query: Angle
    key: Angle
    turn: Angle | None


def pair_regions(distance: Distance, pairs: int) -> tuple[PairRegion, ...]:
    """The regions of a distance method for a number of rotated pairs."""
    regions = METHODS[distance.method](distance)
    angles = {
        positions: _spread(positions, distance, pairs) for region in regions for positions in (region.query, region.key)
    }
    stored = regions[-1].key
    turns: dict[Positions, Angle | None] = {
        region.key: Difference(angles[region.key], angles[stored]) for region in regions
    }
    turns[stored] = None
    return tuple(
        PairRegion(region.pairs, angles[region.query], angles[region.key], turns[region.key]) for region in regions
    )


@dataclass(frozen=True, eq=False)
class Spread:
    """From a position for each group to one for each pair; group i is as many pairs as `sizes` says."""

    positions: Positions
    sizes: tuple[int, ...]

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        sizes = torch.tensor(self.sizes, device=tokens.device)
        return self.positions(tokens).repeat_interleave(sizes, dim=-1)


@dataclass(frozen=True, eq=False)
class Difference:
    """How far `to` is beyond `start`."""

    to: Angle
    start: Angle

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.to(tokens) - self.start(tokens)


def _spread(positions: Positions, distance: Distance, pairs: int) -> Angle:
    if distance.scale_factors is None or positions is unchanged:
        return positions
    return Spread(positions, tuple(high - low for low, high in pairwise(distance.bounds(pairs))))


@dataclass(frozen=True, eq=False)
class Keys:
    """Keys of one call.

    Attributes:
        tensor: [batch, kv heads, tokens, D], or D + 2E as `Layer.store` makes them.
        stored: whether `Layer.store` made them; else they are unrotated.
        positions: of the tokens.
    """

    tensor: torch.Tensor
    stored: bool
    positions: Where

    def cut(self, begin: int, end: int) -> "Keys":
        """The tokens from index `begin` to before `end`."""
        positions = self.positions
        positions = positions[begin:end] if isinstance(positions, range) else positions[:, begin:end]
        return replace(self, tensor=self.tensor[:, :, begin:end], positions=positions)


@dataclass(frozen=True, eq=False)
class Layer:
    """How one layer attends under a profile.

    Attributes:
        regions: of the distance method; for a layer without rotation one of all pairs.
        rotates: whether it rotates at all.
        head_dim: D.
        interleaved: how dimension pairs lie.
        selection: dpe's choice of pairs, for the last region; `None` is all.
        sliding_window: W: only distances below W are seen.
        log_length: L0 when queries are multiplied by max(1, ln(m + 1)/ln L0).
    """

    regions: tuple[PairRegion, ...]
    rotates: bool
    head_dim: int
    interleaved: bool
    selection: Selection | None = None
    sliding_window: int | None = None
    log_length: int | None = None

    def on(self, device: torch.device) -> "Layer":
        """With its tensors on a device; itself when they are there."""
        if self.selection is None or self.selection.chosen.device == device:
            return self
        return replace(self, selection=self.selection.to(device))

    def scaled(self, q: torch.Tensor, positions: Where) -> torch.Tensor:
        """Queries [batch, heads, tokens, D] times the log-n factor of their positions."""
        if self.log_length is None:
            return q
        if isinstance(positions, range):
            positions = torch.arange(positions.start, positions.stop, device=q.device)[None]
        factor = positions.clamp(min=0).double().log1p() / torch.tensor(float(self.log_length)).double().log()
        dtype = torch.promote_types(q.dtype, torch.float32)
        return (q.to(dtype) * factor.clamp(min=1.0)[:, None, :, None].to(dtype)).to(q.dtype)

    def selects(self, region: PairRegion) -> bool:
        """Whether a choice of pairs applies in a region."""
        return self.selection is not None and region is self.regions[-1]

    def mixes(self, region: PairRegion) -> bool:
        """Whether query heads of one key/value head choose differently, so that one key does not serve them all."""
        return self.selects(region) and self.selection.is_mixed

    def store(self, k: torch.Tensor, positions: Where, rotator: Rotator) -> Keys:
        """Keys as they are cached, from unrotated ones [batch, kv heads, tokens, D].

        They are [batch, kv heads, tokens, D + 2E] with E mixed pairs of the selection.
        """
        region = self.regions[-1]
        table = rotator.table(region.key, positions)
        if self.selection is None:
            return Keys(rotate(k, table, self.interleaved), True, positions)
        plain = rotator.table(unchanged, positions)
        stored = rotate(k, table.where(self.selection.stored_far, plain), self.interleaved)
        if self.selection.is_mixed:
            stored = self.selection.append_plain(stored, rotate(k, plain, self.interleaved))
        return Keys(stored, True, positions)

    def query(
        self, q: torch.Tensor, region: PairRegion, positions: Where, rotator: Rotator, repeat: int | None = None
    ) -> torch.Tensor:
        """Queries [batch, heads, tokens, D] rotated for a region.

        Args:
            repeat: when q is only the query heads of this number of each key/value head.
        """
        table = rotator.table(region.query, positions)
        if self.selects(region):
            chosen = self.selection.chosen[:, None] if repeat is None else self.selection.of_repeat(repeat)
            table = table.where(chosen, rotator.table(unchanged, positions))
        return rotate(q, table, self.interleaved)

    def extended_query(self, q: torch.Tensor, region: PairRegion, positions: Where, rotator: Rotator) -> torch.Tensor:
        """Queries [batch, heads, tokens, D + 2E] for stored keys of a region that `mixes`."""
        plain = rotate(q, rotator.table(unchanged, positions), self.interleaved)
        return self.selection.extend_query(self.query(q, region, positions, rotator), plain)

    def key(self, keys: Keys, region: PairRegion, rotator: Rotator, repeat: int | None = None) -> torch.Tensor:
        """Keys [batch, kv heads, tokens, D] rotated for a region.

        Args:
            repeat: in a region that `mixes`, for the query heads of this number of each key/value head.
        """
        selects = self.selects(region)
        if keys.stored and selects:
            return keys.tensor if repeat is None else self.selection.key_of_repeat(keys.tensor, repeat)
        if not keys.stored:
            table = rotator.table(region.key, keys.positions)
            if selects:
                chosen = self.selection.stored_far if repeat is None else self.selection.of_repeat(repeat)
                table = table.where(chosen, rotator.table(unchanged, keys.positions))
            return rotate(keys.tensor, table, self.interleaved)
        stored = keys.tensor[..., : self.head_dim]
        if region.turn is None:
            return stored
        table = rotator.table(region.turn, keys.positions, scaled=False)
        if self.selection is not None:
            still = Table(torch.ones_like(table.cos), torch.zeros_like(table.sin))
            table = table.where(self.selection.stored_far, still)
        return rotate(stored, table, self.interleaved)

    def stored_query_key(
        self, q: torch.Tensor, keys: Keys, region: PairRegion, positions: Where, rotator: Rotator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries [batch, heads, …] and keys [batch, kv heads, …] whose products are the scores of a region.

        One key serves all query heads that share it: in a region that `mixes` both have D + 2E dimensions.

        Args:
            keys: stored ones where the region `mixes`.
        """
        if self.mixes(region):
            return self.extended_query(q, region, positions, rotator), keys.tensor
        return self.query(q, region, positions, rotator), self.key(keys, region, rotator)

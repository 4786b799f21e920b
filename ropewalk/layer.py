"""How a layer attends under a profile: its regions with a position for each dimension pair, and its choice of pairs."""

from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from ropewalk.distance import Distance
from ropewalk.regions import METHODS, Positions, unchanged
from ropewalk.rotate import Angle
from ropewalk.selection import Selection
from ropewalk.tiles import Band, Chunks


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

    def selects(self, region: PairRegion) -> bool:
        """Whether a choice of pairs applies in a region."""
        return self.selection is not None and region is self.regions[-1]

    def mixes(self, region: PairRegion) -> bool:
        """Whether query heads of one key/value head choose differently, so that one key does not serve them all."""
        return self.selects(region) and self.selection.is_mixed

"""What the distance methods compute, as data: the regions of the causal triangle, and positions for each.

In a region every query at position m is rotated as if it were at `query(m)` and every key at n as if at `key(n)`; the
score then depends on `query(m) − key(n)`, the effective distance. Methods differ in nothing else, so one attention
function serves them all, and adding one is a function and a line in `METHODS` here and its fields in
`ropewalk.distance`.

Positions are computed in double precision, so that quotients of whole numbers are floored exactly.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ropewalk.distance import Distance
from ropewalk.tiles import Band, Chunks

Positions = Callable[[torch.Tensor], torch.Tensor]
"""From positions, float64 [...], to the positions to rotate for, float64 [..., groups] with one group for all pairs."""


@dataclass(frozen=True, eq=False)
class Region:
    """Pairs of a query and a key that are treated alike.

    Attributes:
        pairs: which they are.
        query, key: positions to rotate for, which can be pickled with a patched model. Equal maps are one object, so
            that keys are rotated once for all of them.
    """

    pairs: Band | Chunks
    query: Positions
    key: Positions


def unchanged(positions: torch.Tensor) -> torch.Tensor:
    """The position itself."""
    return positions[..., None]


@dataclass(frozen=True, eq=False)
class Constant:
    """The same position for every token."""

    position: int

    def __call__(self, positions: torch.Tensor) -> torch.Tensor:
        return torch.full_like(positions, self.position)[..., None]


@dataclass(frozen=True, eq=False)
class Sloped:
    """x/slope + shift."""

    slope: float
    shift: float = 0.0

    def __call__(self, positions: torch.Tensor) -> torch.Tensor:
        return (positions / self.slope + self.shift)[..., None]


@dataclass(frozen=True, eq=False)
class Floored:
    """⌊x/s⌋ for the scale s of each group; plus w − ⌊w/s⌋ for the queries of a window w."""

    scales: tuple[float, ...]
    window: int = 0

    def __call__(self, positions: torch.Tensor) -> torch.Tensor:
        scales = positions.new_tensor(self.scales)
        floored = (positions[..., None] / scales).floor()
        return floored + self.window - (self.window / scales).floor()


@dataclass(frozen=True, eq=False)
class InChunk:
    """x mod size, behind `chunks` more of the size, and at most `limit`."""

    size: int
    chunks: int = 0
    limit: float = math.inf

    def __call__(self, positions: torch.Tensor) -> torch.Tensor:
        return (positions % self.size + self.chunks * self.size).clamp(max=self.limit)[..., None]


def none(distance: Distance) -> tuple[Region, ...]:
    """m − n."""
    return (Region(Band(0), unchanged, unchanged),)


def rerope(distance: Distance) -> tuple[Region, ...]:
    """w from the window on (ReRoPE)."""
    window = distance.window
    return _windowed(window, Constant(window), Constant(0))


def leaky_rerope(distance: Distance) -> tuple[Region, ...]:
    """w + (m − n − w)/k from the window on (Leaky ReRoPE)."""
    window, slope = distance.window, distance.slope
    return _windowed(window, Sloped(slope, window - window / slope), Sloped(slope))


def self_extend(distance: Distance) -> tuple[Region, ...]:
    """⌊m/G⌋ − ⌊n/G⌋ + w − ⌊w/G⌋ from the window on (arXiv 2401.01325, eq. 3–4)."""
    return _grouped(distance.window, (float(distance.group_size),))


def dpe(distance: Distance) -> tuple[Region, ...]:
    """As self_extend, with a scale for each group of dimension pairs (arXiv 2504.18857), on the key pairs of each head.

    The paper writes the far distance as ⌊(m − n − w)/s⌋ + w. That is no difference of two positions, so
    a rotation cannot give it; what a rotation gives is this form, which equals it or is one more when s divides w.
    """
    return _grouped(distance.window, distance.scale_factors)


def dca(distance: Distance) -> tuple[Region, ...]:
    """m − n in a chunk, min(m mod c + c, s) − n mod c to the one before, s − n mod c farther (arXiv 2402.17463)."""
    size, limit = distance.chunk_size - distance.local_size, distance.chunk_size
    inside = InChunk(size)
    return (
        Region(Chunks(size, 0, 1), inside, inside),
        Region(Chunks(size, 1, 2), InChunk(size, 1, limit), inside),
        Region(Chunks(size, 2), Constant(limit), inside),
    )


def _grouped(window: int, scales: tuple[float, ...]) -> tuple[Region, ...]:
    return _windowed(window, Floored(scales, window), Floored(scales))


def _windowed(window: int, query: Positions, key: Positions) -> tuple[Region, ...]:
    return Region(Band(0, window), unchanged, unchanged), Region(Band(window), query, key)


METHODS: dict[str, Callable[[Distance], tuple[Region, ...]]] = {
    "none": none,
    "rerope": rerope,
    "leaky_rerope": leaky_rerope,
    "self_extend": self_extend,
    "dca": dca,
    "dpe": dpe,
}

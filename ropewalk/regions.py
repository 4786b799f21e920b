"""What the distance methods compute, as data: the regions of the causal triangle, and positions for each.

In a region every query at position m is rotated as if it were at `query(m)` and every key at n as if at `key(n)`; the
score then depends on `query(m) − key(n)`, the effective distance. Methods differ in nothing else, so one attention
function serves them all, and adding one is a function and a line in `METHODS` here and its fields in
`ropewalk.distance`.

Positions are computed in double precision, so that quotients of whole numbers are floored exactly.
"""

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
        query, key: positions to rotate for. Equal maps are one object, so that keys are rotated once for all of them.
    """

    pairs: Band | Chunks
    query: Positions
    key: Positions


def unchanged(positions: torch.Tensor) -> torch.Tensor:
    """The position itself."""
    return positions[..., None]


def none(distance: Distance) -> tuple[Region, ...]:
    """m − n."""
    return (Region(Band(0), unchanged, unchanged),)


def rerope(distance: Distance) -> tuple[Region, ...]:
    """w from the window on (ReRoPE)."""
    window = distance.window
    return _windowed(window, lambda m: torch.full_like(m, window)[..., None], lambda n: torch.zeros_like(n)[..., None])


def leaky_rerope(distance: Distance) -> tuple[Region, ...]:
    """w + (m − n − w)/k from the window on (Leaky ReRoPE)."""
    window, slope = distance.window, distance.slope
    return _windowed(
        window, lambda m: (m / slope + (window - window / slope))[..., None], lambda n: (n / slope)[..., None]
    )


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

    def inside(positions: torch.Tensor) -> torch.Tensor:
        return (positions % size)[..., None]

    return (
        Region(Chunks(size, 0, 1), inside, inside),
        Region(Chunks(size, 1, 2), lambda m: (m % size + size).clamp(max=limit)[..., None], inside),
        Region(Chunks(size, 2), lambda m: torch.full_like(m, limit)[..., None], inside),
    )


def _grouped(window: int, scales: tuple[float, ...]) -> tuple[Region, ...]:
    def floored(positions: torch.Tensor) -> torch.Tensor:
        return (positions[..., None] / positions.new_tensor(scales)).floor()

    def shifted(positions: torch.Tensor) -> torch.Tensor:
        return floored(positions) + window - floored(positions.new_tensor(window))

    return _windowed(window, shifted, floored)


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

"""The space that a layer curve is searched in: what its genes are, which genomes are feasible, where to start.

A genome holds the factors of the curve's free control points, each on a grid of `step` from `minimum` to `maximum`.
Pinned ends are not genes. `repair` maps any genome to a feasible one before it is evaluated: clip, snap to the grid,
sort when the factors must be monotone.
"""

import math
from collections.abc import Iterator
from random import Random
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ropewalk.frequencies import MAX_FACTOR, MIN_FACTOR
from search import bezier

Genome = tuple[float, ...]
Factor = Annotated[float, Field(ge=MIN_FACTOR, le=MAX_FACTOR, allow_inf_nan=False)]


class CurveSpace(BaseModel):
    """Bézier curves of `control_points` points spaced evenly over the layers (two points: a straight line)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    curve: Literal["bezier"] = "bezier"
    control_points: int = Field(4, ge=2, le=16)
    minimum: Factor = 1.0
    maximum: Factor = 8.0
    step: float = Field(0.25, gt=0, allow_inf_nan=False)
    monotone: Literal["none", "increasing", "decreasing"] = "none"
    pin_first: Factor | None = None
    pin_last: Factor | None = None

    @model_validator(mode="after")
    def _feasible(self) -> "CurveSpace":
        if self.maximum <= self.minimum:
            raise ValueError(f"maximum {self.maximum} must be above minimum {self.minimum}")
        if self.step > self.maximum - self.minimum:
            raise ValueError(f"step {self.step} must be at most maximum − minimum = {self.maximum - self.minimum:g}")
        for name in ("pin_first", "pin_last"):
            pin = getattr(self, name)
            if pin is not None and not self.minimum <= pin <= self.maximum:
                raise ValueError(f"{name} {pin} must lie in [{self.minimum}, {self.maximum}]")
        if self.pin_first is not None and self.pin_last is not None:
            if self.control_points == 2:
                raise ValueError("pin_first and pin_last leave nothing to search with control_points 2")
            rise = self.pin_last - self.pin_first
            if (self.monotone == "increasing" and rise < 0) or (self.monotone == "decreasing" and rise > 0):
                raise ValueError(
                    f"pin_first {self.pin_first} and pin_last {self.pin_last} leave no {self.monotone} curve"
                )
        if len(self.grid()) < 2:
            raise ValueError(f"fewer than two factors on the grid of step {self.step} lie between the pinned ends")
        return self

    @property
    def genes(self) -> int:
        return self.control_points - (self.pin_first is not None) - (self.pin_last is not None)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of a gene: within the pinned ends when the factors must be monotone."""
        low, high = self.minimum, self.maximum
        ends = {"increasing": (self.pin_first, self.pin_last), "decreasing": (self.pin_last, self.pin_first)}
        least, most = ends.get(self.monotone, (None, None))
        return (low if least is None else least), (high if most is None else most)

    def grid(self) -> tuple[float, ...]:
        """Every value a gene can take."""
        count = math.floor((self.maximum - self.minimum) / self.step + 1e-9) + 1
        low, high = self.bounds
        values = (round(self.minimum + i * self.step, 9) for i in range(count))
        return tuple(v for v in values if low <= v <= high)

    def repair(self, genome: Genome) -> Genome:
        """The feasible genome that stands for this one.

        Raises:
            ValueError: a gene is not a finite real number, which an operator must never give.
        """
        if any(isinstance(g, complex) or not math.isfinite(g) for g in genome):
            raise ValueError(f"a gene is not a finite real number: {genome}")
        grid = np.asarray(self.grid())
        snapped = [float(grid[np.abs(grid - g).argmin()]) for g in genome]
        if self.monotone != "none":
            snapped.sort(reverse=self.monotone == "decreasing")
        return tuple(snapped)

    def control_factors(self, genome: Genome) -> tuple[float, ...]:
        """The factor of every control point, pinned ends included."""
        first = () if self.pin_first is None else (self.pin_first,)
        last = () if self.pin_last is None else (self.pin_last,)
        return (*first, *genome, *last)

    def control_points_of(self, genome: Genome) -> tuple[tuple[float, float], ...]:
        """Control points as (layer in [0, 1], factor)."""
        return tuple((float(x), float(y)) for x, y in bezier.even_points(self.control_factors(genome)))

    def factors(self, genome: Genome, num_layers: int) -> tuple[float, ...]:
        """One factor per layer, rounded to 1e-6 so that the profile is the same text on every machine."""
        values = bezier.factors_per_layer(bezier.even_points(self.control_factors(genome)), num_layers)
        return tuple(round(float(v), 6) for v in values)

    def random(self, rng: Random) -> Genome:
        return self.repair(tuple(rng.choice(self.grid()) for _ in range(self.genes)))

    def seeds(self, count: int, expected: float, kinds: tuple[str, ...]) -> Iterator[Genome]:
        """Genomes to start from: identity, uniform factors, then ramps, about a third of `count` each.

        `expected` is target length / trained length, the factor that position interpolation would take; the uniform
        factors are spread geometrically around it, so that a small population still covers the range.
        """
        if "identity" in kinds:
            yield self.repair((1.0,) * self.genes)
        third = max(1, (count - 1) // 3)
        expected = min(max(expected, self.minimum), self.maximum)
        spread = [expected, *np.geomspace(self.minimum, self.maximum, third + 1)[1:-1]]
        if "uniform" in kinds:
            for factor in spread:
                yield self.repair((factor,) * self.genes)
        if "ramps" in kinds:
            for factor in spread:
                rise = np.linspace(1.0 if self.minimum <= 1.0 <= self.maximum else self.minimum, factor, self.genes)
                yield self.repair(tuple(rise))
                yield self.repair(tuple(rise[::-1]))

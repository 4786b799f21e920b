"""What a layer curve is compared with, in the same run, on the same examples, with the same budget of evaluations.

A uniform factor is swept over the stages' own grids of factors: all of them when the budget allows, else evenly spread
over them. So it is the best uniform factor that a curve could have found, not one that a formula proposes.
"""

from collections.abc import Sequence

import numpy as np

from ropewalk import Profile
from ropewalk.profile import Frequency
from ropewalk.shape import ModelShape
from search.campaign import GeneticStage
from search.events import BaselineFinished, Listener
from search.scoreboard import Scoreboard
from search.spaces import CurveSpace


def sweep_factors(spaces: Sequence[CurveSpace], budget: int) -> tuple[float, ...]:
    """At most `budget` factors of the grids of all spaces, the least and the greatest included."""
    grid = sorted({f for space in spaces for f in space.model_copy(update={"monotone": "none"}).grid()})
    if len(grid) <= budget:
        return tuple(grid)
    return tuple(grid[i] for i in np.unique(np.linspace(0, len(grid) - 1, budget).round().astype(int)))


def sweep(
    method: str, factors: Sequence[float], shape: ModelShape, target_length: int, board: Scoreboard, emit: Listener
) -> Profile | None:
    """Score a uniform factor of one frequency method at each value; the best profile, or None when all failed."""
    profiles = _uniform(method, factors, shape, target_length)
    outcomes = board.score(profiles, f"baseline/{method}")
    scored = [(o.score, p) for o, p in zip(outcomes, profiles, strict=True) if o.score is not None]
    if not scored:
        return None
    score, best = max(scored, key=lambda pair: pair[0])
    table = tuple(zip(factors, (o.score for o in outcomes), strict=True))
    emit(BaselineFinished(method, best.to_dict(), score, len(profiles), table))
    return best


def why_none(method: str, factors: Sequence[float], shape: ModelShape, target_length: int, board: Scoreboard) -> str:
    """Why no factor of a sweep that was made has a score."""
    outcomes = board.score(_uniform(method, factors, shape, target_length), f"baseline/{method}")
    infeasible = sum(o.infeasible for o in outcomes)
    reasons = sorted({o.reason for o in outcomes if o.reason and not o.infeasible})
    return "; ".join([f"{infeasible} of {len(outcomes)} factors are infeasible"] * bool(infeasible) + reasons)


def _uniform(method: str, factors: Sequence[float], shape: ModelShape, target_length: int) -> list[Profile]:
    return [Profile(f"baseline/{method}", shape, target_length, Frequency(method, factor=f)) for f in factors]


def ramp_stage(stage: GeneticStage) -> GeneticStage:
    """The same algorithm and budget on straight lines over the layers: a curve of two control points, no pins."""
    space = stage.space.model_copy(update={"control_points": 2, "pin_first": None, "pin_last": None})
    return stage.model_copy(update={"name": "ramp", "space": space})

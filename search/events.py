"""What happens in a campaign, as plain data: the one stream that the tracker, the console and the report listen to.

An event carries no clock time (the journal adds it when it writes), so a resumed campaign emits the events that an
undisturbed one would. `stage` is the name of a stage of the campaign (`genetic`) or of a baseline (`baseline/linear`).
Scores are fitness values: larger is better, measured on the campaign's search examples unless said otherwise.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Individual:
    """One member of a population: its genes, the factors they stand for, and what it scored.

    `score` is None where it failed, or is `infeasible`: it harms short contexts more than the guard allows.
    """

    hash: str
    genome: tuple[float, ...]
    factors: tuple[float, ...]
    score: float | None
    reason: str | None
    origin: str
    infeasible: bool = False


@dataclass(frozen=True)
class CampaignStarted:
    """`campaign` is the resolved campaign; `completed_evaluations` is more than 0 after a resume."""

    campaign_id: str
    campaign: dict[str, Any]
    folder: str
    shape: dict[str, Any]
    fingerprint: str
    examples: dict[str, dict[str, Any]]
    planned_evaluations: int
    resumed: bool
    completed_evaluations: int
    versions: dict[str, str | None]


@dataclass(frozen=True)
class EvaluationFinished:
    """A candidate has all its scores, failed, or is infeasible. `evaluations` and `tokens` are totals so far."""

    stage: str
    profile_hash: str
    score: float | None
    reason: str | None
    evaluations: int
    tokens: int
    infeasible: bool = False


@dataclass(frozen=True)
class GenerationFinished:
    """A generation is complete and in the checkpoint. Statistics are over the individuals that have a score.

    `failed` counts those without one, `infeasible` those of them that the guard refused. `selected_by` is the metric
    that the population was selected by where it is not the campaign's; scores are in the campaign's all the same.
    """

    stage: str
    generation: int
    individuals: tuple[Individual, ...]
    best: float
    mean: float
    std: float
    worst: float
    failed: int
    evaluations: int
    tokens: int
    best_genome: tuple[float, ...]
    best_factors: tuple[float, ...]
    control_points: tuple[tuple[float, float], ...]
    infeasible: int = 0
    selected_by: str | None = None


@dataclass(frozen=True)
class BaselineFinished:
    """A baseline's best profile; `table` holds (factor, score or None) of a sweep and is empty for the others."""

    name: str
    profile: dict[str, Any]
    score: float
    evaluations: int
    table: tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class Improved:
    """A stage found a better profile than any before it; `profile.json` has been replaced by it."""

    stage: str
    profile: dict[str, Any]
    score: float


@dataclass(frozen=True)
class HeldoutFinished:
    """The held-out report, as it stands in `result.json`."""

    report: dict[str, Any]


@dataclass(frozen=True)
class CampaignFinished:
    """The content of `result.json` and of `profile.json`."""

    result: dict[str, Any]
    profile: dict[str, Any]


@dataclass(frozen=True)
class CampaignStopped:
    """The campaign was asked to stop; what it did is in the checkpoint and `--resume` continues it."""

    reason: str


@dataclass(frozen=True)
class CampaignFailed:
    reason: str


Event = (
    CampaignStarted
    | EvaluationFinished
    | GenerationFinished
    | BaselineFinished
    | Improved
    | HeldoutFinished
    | CampaignFinished
    | CampaignStopped
    | CampaignFailed
)
Listener = Callable[[Event], None]


def to_dict(event: Event) -> dict[str, Any]:
    """The event as plain data with its type's name under `event`."""
    return {"event": type(event).__name__, **asdict(event)}


def generation_from_dict(data: dict[str, Any]) -> GenerationFinished:
    """The inverse of `to_dict` for a generation, whose tuples JSON has turned into lists."""
    fields = {k: v for k, v in data.items() if k != "event"}
    individuals = tuple(
        Individual(**{**i, "genome": tuple(i["genome"]), "factors": tuple(i["factors"])})
        for i in fields.pop("individuals")
    )
    return GenerationFinished(
        **{
            **fields,
            "individuals": individuals,
            "best_genome": tuple(fields["best_genome"]),
            "best_factors": tuple(fields["best_factors"]),
            "control_points": tuple((x, y) for x, y in fields["control_points"]),
        }
    )

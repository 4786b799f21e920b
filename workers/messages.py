"""What goes between the search and a worker: plain frozen data that means the same anywhere."""

from dataclasses import dataclass
from typing import Any, Literal

from fitness.scoring import Score


@dataclass(frozen=True)
class Request:
    """Score the examples `start` to `stop` of a registered set under one profile.

    Attributes:
        id: unique in one call of `evaluate`.
        profile: `Profile.to_dict()`.
        scoring: a name in `fitness.scoring.SCORINGS`.
    """

    id: str
    profile: dict[str, Any]
    example_set: str
    start: int
    stop: int
    scoring: str


@dataclass(frozen=True)
class Result:
    """Scores of one request, or why its candidate failed.

    Attributes:
        tokens: that went through the model.
        seconds: that the worker spent on it.
        peak_memory_bytes: of the worker so far: of its GPUs when it has some, else of its process.
    """

    request_id: str
    status: Literal["ok", "failed"]
    reason: str | None
    scores: tuple[Score, ...]
    tokens: int
    seconds: float
    peak_memory_bytes: int
    worker: str

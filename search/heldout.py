"""The held-out report: the winner and every baseline on examples that the search never saw, and at a short length.

All profiles answer the same questions, so differences are paired. Intervals are 95 % bootstrap intervals over contexts,
since the questions of one context are not independent. The winner is what the stages found, also where a baseline does
better: the report says so, in `winner_minus`. Whatever the metric of the search, every row also gives `accuracy`, the
share of questions answered exactly. A composite's questions are of several kinds: each of its `parts` has its own score
instead, and there are no positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fitness.measures import CompositeMeasure, Measure
from fitness.scoring import Score
from fitness.statistics import Interval, bootstrap_mean, by_position, paired_bootstrap, strata, values, weights
from ropewalk import Profile
from search.scoreboard import Outcome

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Row:
    """A profile in the report, with what it scored in the search and for how many evaluations it was chosen."""

    name: str
    label: str
    profile: Profile
    search_score: float | None
    evaluations: int


def table(
    rows: Sequence[Row],
    heldout: Sequence[Outcome],
    guard: Sequence[Outcome],
    *,
    measures: dict[str, Measure],
    tolerance: float,
    seed: int,
) -> list[dict[str, Any]]:
    """One plain row per profile. Requires rows named `winner` and `identity`; outcomes with every question's score.

    `measures` says what scores amount to, by the names of the sets: heldout, guard.
    """
    measure, at_guard = measures["heldout"], measures["guard"]
    index = {row.name: i for i, row in enumerate(rows)}
    winner, identity = heldout[index["winner"]], heldout[index["identity"]]
    unharmed = guard[index["identity"]]
    result = []
    for row, outcome, short in zip(rows, heldout, guard, strict=True):
        entry: dict[str, Any] = {
            "name": row.name,
            "label": row.label,
            "frequency": row.profile.to_dict()["frequency"],
            "profile_hash": row.profile.hash,
            "search_score": row.search_score,
            "evaluations": row.evaluations,
        }
        if outcome.score is None or short.score is None:
            result.append({**entry, "failed": outcome.reason or short.reason})
            continue
        loss = difference(unharmed, short, at_guard, seed)
        entry |= {
            "heldout": mean(outcome, measure, seed),
            "gain_over_identity": difference(outcome, identity, measure, seed),
            "winner_minus": difference(winner, outcome, measure, seed),
            **_detail(outcome, winner, measure, seed),
            "guard": {
                **mean(short, at_guard, seed),
                "loss": loss,
                "harmful": loss is not None and loss["score"] > tolerance,
            },
        }
        result.append(entry)
    return result


def _detail(outcome: Outcome, winner: Outcome, measure: Measure, seed: int) -> dict[str, Any]:
    """What else a row says: exact answers and positions of one task, the parts of several."""
    if isinstance(measure, CompositeMeasure):
        return {"by_position": [], "parts": parts(outcome, measure, seed)}
    return {
        "accuracy": mean(outcome, "exact", seed),
        "winner_minus_accuracy": difference(winner, outcome, "exact", seed),
        "by_position": positions(outcome, measure, seed),
    }


def parts(outcome: Outcome, measure: CompositeMeasure, seed: int) -> list[dict[str, Any]]:
    """Each part of a composite: its share, its score in its own metric, and what that counts for, 0 to 1."""
    result = []
    for part in measure.parts:
        scores = tuple(s for s in outcome.scores if measure.part_of(s.example_id) is part)
        alone = Outcome(outcome.score, None, scores)
        own = CompositeMeasure((part,))
        result.append(
            {
                "part": part.name,
                "share": part.share,
                "metric": part.metric,
                **mean(alone, part.metric, seed),
                "normalised": mean(alone, own, seed),
            }
        )
    return result


def positions(outcome: Outcome, metric: str, seed: int) -> list[dict[str, Any]]:
    """The mean at each gold position with its interval; none where the task has no positions."""
    return [
        {"position": position, **_fields(interval, n)}
        for position, (interval, n) in by_position(outcome.scores, metric, seed).items()
    ]


def _contexts(scores: Sequence[Score]) -> list[str]:
    return [score.example_id for score in scores]


def _fields(interval: Interval, n: int) -> dict[str, Any]:
    return {"score": interval.mean, "low": interval.low, "high": interval.high, "n": n}


def mean(outcome: Outcome, metric: Measure, seed: int) -> dict[str, Any]:
    """The mean over all questions with its interval, as plain data."""
    interval = bootstrap_mean(
        values(outcome.scores, metric),
        _contexts(outcome.scores),
        seed=seed,
        weights=weights(outcome.scores, metric),
        strata=strata(outcome.scores, metric),
    )
    return _fields(interval, len(outcome.scores))


def difference(a: Outcome, b: Outcome, metric: Measure, seed: int) -> dict[str, Any] | None:
    """Paired mean of a − b with its interval; None where one of the two failed."""
    if a.score is None or b.score is None:
        return None
    if a is b:  # one profile under two names: no difference that more contexts could show
        return {"score": 0.0, "low": 0.0, "high": 0.0}
    interval = paired_bootstrap(
        values(a.scores, metric),
        values(b.scores, metric),
        _contexts(a.scores),
        seed=seed,
        weights=weights(a.scores, metric),
        strata=strata(a.scores, metric),
    )
    return {"score": interval.mean, "low": interval.low, "high": interval.high}

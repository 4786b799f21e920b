"""What a profile scores on a set of examples: splits the work, gathers the pieces, remembers every outcome.

One request is one context with all its questions, so that any number of actors stay busy and a lost piece is small.
The outcome does not depend on the order in which the pieces come back.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from fitness.examples import ExampleSet
from fitness.measures import Measure, overall
from fitness.scoring import METRICS, Score
from ropewalk import Profile
from search.events import EvaluationFinished, Listener
from workers.evaluator import Evaluator
from workers.messages import Request, Result


class Interrupted(Exception):
    """The campaign was asked to stop; nothing of the generation under way is kept."""


@dataclass(frozen=True)
class Outcome:
    """What a candidate came to.

    Attributes:
        score: the metric over all questions; None if the candidate failed or is infeasible.
        reason: why there is no score.
        infeasible: it ran, and does more harm than the guard allows.
        also: further metrics of the same scores, by name.
    """

    score: float | None
    reason: str | None
    scores: tuple[Score, ...] = ()
    infeasible: bool = False
    also: Mapping[str, float] = field(default_factory=dict)


class Judge(Protocol):
    """Says which candidates are not worth scoring, before they are."""

    def refused(self, profiles: Sequence[Profile]) -> dict[str, str]:
        """Reasons by profile hash."""


class Scoreboard:
    """Outcomes of profiles on one example set, by profile hash.

    Args:
        evaluator: with the example set registered under `name`.
        measure: what the scores amount to.
        scoring: how a question is scored, `teacher_forcing` or `generation`; of a composite each part has its own.
        keep_scores: keep every question's score (a report needs them; a search of thousands of profiles does not).
        emit: takes an `EvaluationFinished` for each outcome.
        stop: asked between results; True ends the work with `Interrupted`.
        judge: whose refusals are infeasible; None scores every candidate.
        also: names of further metrics to keep.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        name: str,
        examples: ExampleSet,
        *,
        measure: Measure,
        scoring: str,
        keep_scores: bool,
        emit: Listener,
        stop: Callable[[], bool],
        judge: Judge | None = None,
        also: Sequence[str] = (),
    ):
        self.evaluator, self.name, self.examples = evaluator, name, examples
        self.overall, self.keep_scores, self.judge, self.also = overall(measure), keep_scores, judge, tuple(also)
        self.scorings = [
            scoring if isinstance(measure, str) else measure.scoring_of(example.id) for example in examples.examples
        ]
        self.emit, self.stop = emit, stop
        self.outcomes: dict[str, Outcome] = {}
        self.tokens = 0

    @property
    def evaluations(self) -> int:
        return len(self.outcomes)

    def score(self, profiles: Sequence[Profile], stage: str) -> list[Outcome]:
        """Outcomes in the order of `profiles`; only those not known yet are evaluated.

        Raises:
            Interrupted: the campaign was asked to stop.
        """
        new = {p.hash: p for p in profiles if p.hash not in self.outcomes}
        if new and self.judge is not None:
            for key, reason in self.judge.refused(list(new.values())).items():
                self._remember(key, Outcome(None, reason, infeasible=True), stage)
                del new[key]
        pieces: dict[str, dict[int, Result]] = defaultdict(dict)
        requests = {
            f"{key}/{i}": (key, Request(f"{key}/{i}", data, self.name, i, i + 1, scoring))
            for key, data in ((key, profile.to_dict()) for key, profile in new.items())
            for i, scoring in enumerate(self.scorings)
        }
        for result in self.evaluator.evaluate([request for _, request in requests.values()]):
            key, request = requests[result.request_id]
            pieces[key][request.start] = result
            self.tokens += result.tokens
            if len(pieces[key]) == len(self.examples.examples):
                self._finish(key, pieces.pop(key), stage)
            if self.stop():
                raise Interrupted
        return [self.outcomes[p.hash] for p in profiles]

    def _finish(self, key: str, pieces: dict[int, Result], stage: str) -> None:
        ordered = [pieces[i] for i in sorted(pieces)]
        reason = next((r.reason for r in ordered if r.status == "failed"), None)
        scores = tuple(score for r in ordered for score in r.scores)
        value = None if reason else float(self.overall(scores))
        if value is not None and not math.isfinite(value):
            value, reason = None, f"the metric is {value}"
        also = {} if value is None else {name: float(METRICS[name](scores)) for name in self.also}
        self._remember(key, Outcome(value, reason, scores if self.keep_scores else (), also=also), stage)

    def _remember(self, key: str, outcome: Outcome, stage: str) -> None:
        self.outcomes[key] = outcome
        self.emit(
            EvaluationFinished(
                stage, key, outcome.score, outcome.reason, self.evaluations, self.tokens, outcome.infeasible
            )
        )

    def state(self) -> dict[str, Any]:
        """All outcomes as plain JSON."""
        return {
            "tokens": self.tokens,
            "outcomes": {
                key: [o.score, o.reason, [list(asdict(s).values()) for s in o.scores], o.infeasible, o.also]
                for key, o in self.outcomes.items()
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.tokens = state["tokens"]
        self.outcomes = {
            key: Outcome(score, reason, tuple(Score(*fields) for fields in scores), infeasible, also)
            for key, (score, reason, scores, infeasible, also) in state["outcomes"].items()
        }

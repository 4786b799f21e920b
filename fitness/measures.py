"""What the scores of a composite task amount to: one number of 0 to 1, from tasks whose own metrics have other units.

Every question's value is brought to 0–1 first, then averaged within its part and over the parts by their shares:

    score = Σ_p share_p · mean over the questions q of p of n_p(value_q),    Σ_p share_p = 1

n_p is the identity for exact answers. For log-likelihoods it is exp, which gives the probability per token (geometric
mean over the answer), or, where the part declares a scale, the straight line from its worst value to its best, cut off
at 0 and 1. A part that declares `minimise` counts 1 − n. The composite itself is always to be maximised.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fitness.scoring import METRICS, TOKEN_WEIGHTED, VALUES, Score

SEPARATOR = "/"  # between the name of a part and what its own ids are


@dataclass(frozen=True)
class MeasuredPart:
    """One task at one length within a composite.

    Attributes:
        name: that all ids of its examples begin with.
        share: of the composite's score; all shares add up to 1.
        scale: worst and best value of the metric; None as the module says.
    """

    name: str
    metric: str
    scoring: str
    share: float
    scale: tuple[float, float] | None
    direction: str

    def normalised(self, score: Score) -> float:
        """The question's value, 0 to 1, larger is better."""
        value = VALUES[self.metric](score)
        if self.scale is not None:
            worst, best = self.scale
            value = min(max((value - worst) / (best - worst), 0.0), 1.0)
        elif self.metric != "exact":
            value = math.exp(value)
        return value if self.direction == "maximise" else 1.0 - value

    def weight(self, score: Score) -> float:
        return score.answer_tokens if self.metric in TOKEN_WEIGHTED else 1.0


@dataclass(frozen=True)
class CompositeMeasure:
    """The parts of a composite; takes the place of a metric's name wherever scores are made into numbers."""

    parts: tuple[MeasuredPart, ...]

    def part_of(self, id: str) -> MeasuredPart:
        """The part that an example's id belongs to."""
        name = id.split(SEPARATOR, 1)[0]
        return next(part for part in self.parts if part.name == name)

    def scoring_of(self, id: str) -> str:
        return self.part_of(id).scoring

    def values(self, scores: Sequence[Score]) -> list[float]:
        """Of each question, 0 to 1."""
        return [self.part_of(score.example_id).normalised(score) for score in scores]

    def weights(self, scores: Sequence[Score]) -> list[float]:
        """Of each question in the mean over all; with all parts present they add up to 1."""
        parts = [self.part_of(score.example_id) for score in scores]
        totals: Counter[str] = Counter()
        for part, score in zip(parts, scores, strict=True):
            totals[part.name] += part.weight(score)
        return [p.share * p.weight(s) / totals[p.name] for p, s in zip(parts, scores, strict=True)]

    def strata(self, scores: Sequence[Score]) -> list[str]:
        return [self.part_of(score.example_id).name for score in scores]

    def overall(self, scores: Sequence[Score]) -> float:
        values, weights = self.values(scores), self.weights(scores)
        return sum(w * v for w, v in zip(weights, values, strict=True))


Measure = str | CompositeMeasure


def measure_of(task: Any) -> Measure:
    """What a task's scores are measured by: the name of its metric, or the measure of a composite."""
    return task.measure if task.metric == "composite" else task.metric


def overall(measure: Measure) -> Callable[[Sequence[Score]], float]:
    """The function from all scores to the fitness; larger is better."""
    return METRICS[measure] if isinstance(measure, str) else measure.overall

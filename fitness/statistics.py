"""Intervals of scores. The unit that is resampled is the context, since questions of one context are not independent.

Cluster bootstrap (Efron and Tibshirani, 1993, ch. 8; Field and Welsh, 2007): contexts are drawn with replacement, each
with all its questions, and the 2.5 and 97.5 percentiles of the resampled means bound the interval.
scipy.stats.bootstrap has no clusters. Percentile intervals are a little too narrow with few contexts; a test measures
the coverage.

Where all answers are right, or all wrong, every resample is the same and the bootstrap would claim certainty. The
interval is then that of Clopper and Pearson with as many trials as contexts, which is conservative. Where only the
means of the contexts are alike, questions are resampled instead.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from fitness.measures import Measure
from fitness.scoring import TOKEN_WEIGHTED, VALUES, Score

RESAMPLES = 4000
CONFIDENCE = 0.95
DRAWN_AT_ONCE = 2**22
SAME = 1e-12  # means that differ by less are equal but for rounding


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval."""

    mean: float
    low: float
    high: float


def values(scores: Sequence[Score], metric: Measure) -> list[float]:
    """What a metric gives for each question, in their order."""
    return [VALUES[metric](score) for score in scores] if isinstance(metric, str) else metric.values(scores)


def weights(scores: Sequence[Score], metric: Measure) -> list[float] | None:
    """How much each question counts in the mean of a metric; None where all count alike."""
    if not isinstance(metric, str):
        return metric.weights(scores)
    return [score.answer_tokens for score in scores] if metric in TOKEN_WEIGHTED else None


def strata(scores: Sequence[Score], metric: Measure) -> list[str] | None:
    """The part of a composite that each question belongs to; None where there are no parts."""
    return None if isinstance(metric, str) else metric.strata(scores)


def bootstrap_mean(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    seed: int,
    weights: Sequence[float] | None = None,
    strata: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """The mean over all questions with its cluster bootstrap interval.

    Args:
        values: one per question.
        clusters: of each value, what it shares with values that it is not independent of: its example's id.
            With a single cluster, questions are resampled instead; the interval then speaks of this context only.
        weights: of each value in the mean; None for the plain mean.
        strata: of each value, the part of a composite that it belongs to: clusters are drawn within each.

    Raises:
        ValueError: no values, or not as many clusters as values.
    """
    data = np.asarray(values, dtype=float)
    groups = _stratified_numbers(data, clusters, strata)
    mean = float(np.average(data, weights=weights))
    if data.min() == data.max():
        unsure = _unseen(groups.max() + 1, confidence)
        if data[0] == 0:
            return Interval(mean, mean, unsure if _binary(data) else mean)
        if data[0] == 1:
            return Interval(mean, 1 - unsure if _binary(data) else mean, mean)
        return Interval(mean, mean, mean)
    return Interval(mean, *_percentiles(data, groups, seed, resamples, confidence, weights, strata))


def paired_bootstrap(
    a: Sequence[float],
    b: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    seed: int,
    weights: Sequence[float] | None = None,
    strata: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """The mean of a − b over the same questions, with its cluster bootstrap interval.

    Two profiles that answered every question alike, all scores being 0 or 1, may still differ on others: the interval
    is then the chance, at this confidence, of a difference that so many contexts did not show. Log-likelihoods that
    are all alike come from the same model, and the interval is 0.

    Raises:
        ValueError: no values, or not as many of each.
    """
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.shape != second.shape:
        raise ValueError(f"{first.size} values cannot be paired with {second.size}")
    data = first - second
    groups = _stratified_numbers(data, clusters, strata)
    mean = float(np.average(data, weights=weights))
    if data.min() == data.max():
        unsure = _unseen(groups.max() + 1, confidence) if _binary(first) and _binary(second) else 0.0
        return Interval(mean, max(mean - unsure, -1.0) if unsure else mean, min(mean + unsure, 1.0) if unsure else mean)
    return Interval(mean, *_percentiles(data, groups, seed, resamples, confidence, weights, strata))


def by_position(
    scores: Sequence[Score], metric: str, seed: int, resamples: int = RESAMPLES
) -> dict[int, tuple[Interval, int]]:
    """For each gold position in order, the mean with its interval and the number of questions. Scores without a
    position are left out."""
    result = {}
    for position in sorted({score.position for score in scores if score.position is not None}):
        there = [score for score in scores if score.position == position]
        contexts = [score.example_id for score in there]
        interval = bootstrap_mean(
            values(there, metric), contexts, seed=seed, weights=weights(there, metric), resamples=resamples
        )
        result[position] = (interval, len(there))
    return result


def cluster_numbers(data: np.ndarray, clusters: Sequence[Hashable]) -> np.ndarray:
    """Of each value, the number of its cluster, in order of appearance; of its own if there is only one cluster."""
    if not data.size or data.size != len(clusters):
        raise ValueError(f"{data.size} values need as many clusters and at least one, got {len(clusters)}")
    numbers: dict[Hashable, int] = {}
    groups = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters])
    return np.arange(data.size) if len(numbers) == 1 else groups


def _stratified_numbers(
    data: np.ndarray, clusters: Sequence[Hashable], strata: Sequence[Hashable] | None
) -> np.ndarray:
    """As `cluster_numbers`, within each stratum, so that no number stands in two of them."""
    if strata is None:
        return cluster_numbers(data, clusters)
    groups, start = np.empty(data.size, dtype=int), 0
    for rows in _rows_of(strata):
        inside = cluster_numbers(data[rows], [clusters[row] for row in rows])
        groups[rows] = inside + start
        start += int(inside.max()) + 1
    return groups


def _rows_of(strata: Sequence[Hashable]) -> list[list[int]]:
    rows: dict[Hashable, list[int]] = {}
    for row, stratum in enumerate(strata):
        rows.setdefault(stratum, []).append(row)
    return list(rows.values())


def _percentiles(
    data: np.ndarray,
    groups: np.ndarray,
    seed: int,
    resamples: int,
    confidence: float,
    weights: Sequence[float] | None,
    strata: Sequence[Hashable] | None,
) -> tuple[float, float]:
    weight = np.ones_like(data) if weights is None else np.asarray(weights, dtype=float)
    pools = []  # of each stratum, the sums and weights of its clusters
    for rows in [list(range(data.size))] if strata is None else _rows_of(strata):
        numbers = groups[rows] - groups[rows].min()
        sums, counts = np.bincount(numbers, data[rows] * weight[rows]), np.bincount(numbers, weight[rows])
        if np.ptp(sums / counts) < SAME:
            sums, counts = data[rows] * weight[rows], weight[rows]
        pools.append((sums, counts))
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, DRAWN_AT_ONCE // max(len(sums) for sums, _ in pools))
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        means[start:stop] = 0
        for sums, counts in pools:
            drawn = rng.integers(0, len(sums), (stop - start, len(sums)))
            share = counts.sum() / weight.sum()
            means[start:stop] += share * sums[drawn].sum(1) / counts[drawn].sum(1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _binary(data: np.ndarray) -> bool:
    return bool(np.isin(data, (0.0, 1.0)).all())


def _unseen(trials: int, confidence: float) -> float:
    """Upper bound of the chance of what none of the trials showed (Clopper and Pearson, 1934)."""
    return float(1 - ((1 - confidence) / 2) ** (1 / trials))

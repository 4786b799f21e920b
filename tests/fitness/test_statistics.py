"""Intervals that cover as often as they say, by context, also at the edges."""

import numpy as np
import pytest

from fitness.scoring import Score
from fitness.statistics import Interval, bootstrap_mean, by_position, paired_bootstrap, values

CONTEXTS, QUESTIONS = 24, 10


def draw(rng, mean, spread):
    """0/1 answers whose context matters: each context has a chance of its own."""
    chance = np.clip(mean + spread * rng.choice([-1, 1], CONTEXTS), 0, 1)
    return (rng.random((CONTEXTS, QUESTIONS)) < chance[:, None]).astype(float).ravel()


CLUSTERS = np.repeat(np.arange(CONTEXTS), QUESTIONS).tolist()


@pytest.mark.parametrize(("mean", "spread"), [(0.5, 0.0), (0.5, 0.3), (0.8, 0.15)])
def test_intervals_of_a_mean_cover_it(mean, spread):
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(300):
        interval = bootstrap_mean(draw(rng, mean, spread), CLUSTERS, seed=trial, resamples=500)
        hits += interval.low <= mean <= interval.high
    assert 0.89 <= hits / 300 <= 0.98


def test_ignoring_contexts_would_cover_far_too_rarely():
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(300):
        interval = bootstrap_mean(draw(rng, 0.5, 0.3), range(CONTEXTS * QUESTIONS), seed=trial, resamples=500)
        hits += interval.low <= 0.5 <= interval.high
    assert hits / 300 < 0.85


def test_intervals_of_a_paired_difference_cover_it_and_are_narrower_than_unpaired_ones():
    rng = np.random.default_rng(2)
    hits, paired, unpaired = 0, [], []
    for trial in range(300):
        a = draw(rng, 0.6, 0.3)
        b = np.where(rng.random(a.size) < 0.2, 0.0, a)  # loses a fifth of what a has right: −0.12
        interval = paired_bootstrap(a, b, CLUSTERS, seed=trial, resamples=500)
        hits += interval.low <= 0.12 <= interval.high
        paired.append(interval.high - interval.low)
        alone = [bootstrap_mean(x, CLUSTERS, seed=trial, resamples=500) for x in (a, b)]
        unpaired.append(sum((i.high - i.low) ** 2 for i in alone) ** 0.5)
    assert 0.89 <= hits / 300 <= 0.98
    assert np.mean(paired) < 0.7 * np.mean(unpaired)


def test_the_mean_counts_every_question_once_also_in_unequal_contexts():
    interval = bootstrap_mean([1, 1, 1, 0], ["a", "a", "a", "b"], seed=0)
    assert interval.mean == 0.75
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_the_same_seed_gives_the_same_interval():
    data = draw(np.random.default_rng(3), 0.5, 0.2)
    assert bootstrap_mean(data, CLUSTERS, seed=5) == bootstrap_mean(data, CLUSTERS, seed=5)
    assert bootstrap_mean(data, CLUSTERS, seed=5) != bootstrap_mean(data, CLUSTERS, seed=6)


def test_all_right_or_all_wrong_is_not_certainty():
    clusters = ["a", "b", "c", "d"] * 5
    bound = 0.025**0.25  # Clopper and Pearson: p⁴ = α/2
    assert bootstrap_mean([1.0] * 20, clusters, seed=0) == Interval(1.0, pytest.approx(bound), 1.0)
    assert bootstrap_mean([0.0] * 20, clusters, seed=0) == Interval(0.0, 0.0, pytest.approx(1 - bound))


def test_answers_that_agree_everywhere_are_not_proof_of_no_difference():
    interval = paired_bootstrap([1.0, 0.0, 1.0], [1.0, 0.0, 1.0], ["a", "b", "c"], seed=0)
    assert interval == Interval(0.0, pytest.approx(-(1 - 0.025 ** (1 / 3))), pytest.approx(1 - 0.025 ** (1 / 3)))


def test_a_profile_that_wins_everywhere_keeps_its_bound_below_one():
    interval = paired_bootstrap([1.0] * 6, [0.0] * 6, list("abcdef"), seed=0)
    assert interval.mean == interval.high == 1.0
    assert 0 < interval.low < 1


def test_equal_likelihoods_differ_by_nothing():
    assert paired_bootstrap([-1.5, -2.0], [-1.5, -2.0], ["a", "b"], seed=0) == Interval(0.0, 0.0, 0.0)


def test_a_single_context_is_resampled_by_its_questions():
    interval = bootstrap_mean([1.0, 0.0] * 20, ["a"] * 40, seed=0)
    assert 0.2 < interval.low < 0.5 < interval.high < 0.8


def test_contexts_that_are_alike_only_in_their_means_are_not_certainty():
    clusters = list("aabb")
    mean = bootstrap_mean([1.0, 0.0, 0.0, 1.0], clusters, seed=0)
    assert mean.low < mean.mean == 0.5 < mean.high
    gain = paired_bootstrap([1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], clusters, seed=0)
    assert gain.low < gain.mean == 0.5 < gain.high


def test_values_without_their_pairs_or_clusters_are_refused():
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_bootstrap([1.0], [1.0, 0.0], ["a"], seed=0)
    with pytest.raises(ValueError, match="as many clusters"):
        bootstrap_mean([1.0, 0.0], ["a"], seed=0)
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_mean([], [], seed=0)


def test_positions_are_told_apart_in_their_order():
    scores = [Score(f"{c}/{p}", str(c), p, float(p == 0 or c % 2), -2.0, 4, None) for c in range(10) for p in (7, 0)]
    table = by_position(scores, "exact", 0)
    assert list(table) == [0, 7]
    assert table[0][0].mean == 1.0
    assert table[7][0].mean == 0.5
    assert table[7][0].low < 0.5 < table[7][0].high
    assert [n for _, n in table.values()] == [10, 10]
    assert by_position([Score("a", "a", None, 0.0, -1.0, 2, None)], "perplexity", 0) == {}


def test_values_are_those_of_the_metric():
    score = Score("a", "a", 0, 1.0, -2.0, 4, None)
    assert values([score], "exact") == [1.0]
    assert values([score], "likelihood") == values([score], "perplexity") == [-0.5]

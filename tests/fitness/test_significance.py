"""The sign-flip test against all sign patterns and its own false alarms; Holm's adjustment by hand."""

from itertools import product

import numpy as np
import pytest

from fitness.significance import EXACT_UP_TO, holm, sign_flip


def by_hand(differences):
    observed = abs(sum(differences)) - 1e-12
    patterns = list(product((1, -1), repeat=len(differences)))
    return sum(abs(sum(s * d for s, d in zip(p, differences, strict=True))) >= observed for p in patterns) / len(
        patterns
    )


def test_few_contexts_are_tested_exactly():
    a, b = [1.0, 0.5, 0.25, 1.0, 0.0], [0.0, 0.0, 0.5, 0.5, 0.0]
    assert sign_flip(a, b, range(5), seed=0) == pytest.approx(by_hand([1.0, 0.5, -0.25, 0.5]))


def test_questions_of_one_context_are_flipped_together():
    a, b = [1.0] * 8, [0.0] * 8
    assert sign_flip(a, b, [0, 0, 0, 0, 1, 1, 1, 1], seed=0) == 0.5
    assert sign_flip(a, b, range(8), seed=0) == 2 / 2**8


def test_many_contexts_come_close_to_all_patterns_and_never_to_zero():
    rng = np.random.default_rng(1)
    n = EXACT_UP_TO + 2
    differences = rng.normal(0.4, 1, n)
    assert sign_flip(differences, [0.0] * n, range(n), seed=0) == pytest.approx(by_hand(differences), abs=0.01)
    assert sign_flip([1.0] * 40, [0.0] * 40, range(40), seed=0, flips=999) == 1 / 1000


def test_alike_is_no_finding():
    assert sign_flip([1.0, 0.0, 1.0], [1.0, 0.0, 1.0], range(3), seed=0) == 1.0


@pytest.mark.parametrize("contexts", [10, 24])
def test_false_alarms_are_as_rare_as_claimed(contexts):
    rng = np.random.default_rng(0)
    alarms = 0
    for trial in range(200):
        shared = rng.normal(size=(contexts, 1))
        data = (shared + rng.normal(size=(contexts, 4))).ravel()
        clusters = np.repeat(np.arange(contexts), 4)
        alarms += sign_flip(data, np.zeros_like(data), clusters.tolist(), seed=trial, flips=400) <= 0.05
    assert alarms / 200 < 0.09


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.001]) == [0.001]
    assert holm([]) == []


def test_values_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match="paired"):
        sign_flip([1.0], [1.0, 0.0], [0], seed=0)

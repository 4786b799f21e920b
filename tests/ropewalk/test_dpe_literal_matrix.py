"""DPE as its paper writes it, and as it can be computed: by how much they differ, and why.

For a distance d = m − n ≥ w the paper (arXiv 2504.18857) writes the relative position P = ⌊(d − w)/s⌋ + w. A rotation
of queries and keys gives a difference of one number of the query and one of the key, here
F = ⌊m/s⌋ − ⌊n/s⌋ + w − ⌊w/s⌋.

With e = d mod s and r = w mod s, F − P = [n mod s + e ≥ s] + [e < r], two truth values counted as 0 or 1:

| s, w | F − P takes exactly the values |
| --- | --- |
| s = 1 | 0 |
| w mod s ≤ 1 (s divides w, for one) | 0, 1 |
| w mod s ≥ 2 | 0, 1, 2 |
"""

from itertools import product

import pytest
import torch

from ropewalk import Distance
from ropewalk.regions import METHODS
from tests.ropewalk.literal import dpe_paper, relative

LENGTH = 90
SIZES = [(w, s) for w, s in product((1, 2, 3, 4, 8, 12, 13, 16, 21), (1, 2, 3, 4, 5, 8, 16, 32)) if s <= LENGTH // 2]


def far_pairs(window):
    return [(m, n) for m in range(LENGTH) for n in range(m + 1) if m - n >= window]


def factorised(m, n, window, scale):
    return relative({"method": "dpe", "window": window}, m, n, scale)


def engine(m, n, window, scale):
    """Effective distances of the engine's far region, whole matrices at once."""
    far = METHODS["dpe"](Distance("dpe", window=window, scale_factors=(scale,)))[-1]
    positions = torch.arange(LENGTH, dtype=torch.float64)
    return (far.query(positions) - far.key(positions).T)[m, n]


@pytest.mark.parametrize(("window", "scale"), SIZES)
def test_the_difference_to_the_paper_is_a_carry_and_a_remainder(window, scale):
    for m, n in far_pairs(window):
        remainder = (m - n) % scale
        difference = factorised(m, n, window, scale) - dpe_paper(m, n, window, scale)
        assert difference == (n % scale + remainder >= scale) + (remainder < window % scale)


@pytest.mark.parametrize(("window", "scale"), SIZES)
def test_the_difference_takes_exactly_these_values(window, scale):
    found = {factorised(m, n, window, scale) - dpe_paper(m, n, window, scale) for m, n in far_pairs(window)}
    if scale == 1:
        assert found == {0}
    elif window % scale <= 1:
        assert found == {0, 1}
    else:
        assert found == {0, 1, 2}


@pytest.mark.parametrize(("window", "scale"), [(1024, s) for s in (1, 2, 4, 8, 16, 32, 64, 128)])
def test_with_the_paper_s_window_and_scales_it_is_none_or_one_at_most(window, scale):
    for n in range(0, 131072, 1013):
        for m in range(n + window, 131072, 997):
            assert factorised(m, n, window, scale) - dpe_paper(m, n, window, scale) in (0, 1)


@pytest.mark.parametrize(("window", "scale"), SIZES)
def test_the_engine_s_far_region_is_the_factorised_form(window, scale):
    m, n = torch.tensor(far_pairs(window)).T
    expected = [factorised(*pair, window, scale) for pair in far_pairs(window)]
    assert engine(m, n, window, scale).tolist() == expected


@pytest.mark.parametrize("scale", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("window", [4, 7])
def test_no_positions_of_queries_and_keys_give_the_paper_s_matrix(window, scale):
    """Any f(m) − g(n) has P(m, n) − P(m, n+1) − P(m+1, n) + P(m+1, n+1) = 0; the paper's matrix does not.

    The sum is −1, 0 or 1, so the angles disagree too: no frequency in (0, 1] turns one position by a multiple of 2π.
    """
    sums = {
        dpe_paper(m, n, window, scale)
        - dpe_paper(m, n + 1, window, scale)
        - dpe_paper(m + 1, n, window, scale)
        + dpe_paper(m + 1, n + 1, window, scale)
        for m, n in far_pairs(window + 1)
        if m + 1 < LENGTH
    }
    assert sums - {0} == {-1, 1}


@pytest.mark.parametrize("scale", [2, 3, 4, 8, 16])
def test_the_factorised_form_is_such_a_difference(scale):
    window = 7
    for m, n in far_pairs(window + 1):
        assert (
            factorised(m, n, window, scale)
            - factorised(m, n + 1, window, scale)
            - factorised(m + 1, n, window, scale)
            + factorised(m + 1, n + 1, window, scale)
            == 0
        )

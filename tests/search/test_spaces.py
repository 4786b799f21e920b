"""Feasible genomes: what a space allows, and that nothing else ever comes out of it."""

import itertools
from random import Random

import pytest
from pydantic import ValidationError

from search.spaces import CurveSpace


def test_grid_runs_from_minimum_to_maximum_in_steps():
    assert CurveSpace(minimum=1, maximum=2, step=0.25).grid() == (1.0, 1.25, 1.5, 1.75, 2.0)


def test_grid_has_no_rounding_noise():
    assert CurveSpace(minimum=0.8, maximum=1.2, step=0.1).grid() == (0.8, 0.9, 1.0, 1.1, 1.2)


def test_repair_clips_and_snaps():
    assert CurveSpace(minimum=1, maximum=8, step=0.5).repair((0.2, 3.3, 99.0, 4.74)) == (1.0, 3.5, 8.0, 4.5)


@pytest.mark.parametrize(
    ("monotone", "expected"), [("increasing", (1.0, 2.0, 3.0, 5.0)), ("decreasing", (5.0, 3.0, 2.0, 1.0))]
)
def test_repair_makes_factors_monotone(monotone, expected):
    assert CurveSpace(monotone=monotone).repair((3.0, 5.0, 1.0, 2.0)) == expected


@pytest.mark.parametrize(
    "bad", [(1.0, complex(2, 1), 1.0, 1.0), (float("nan"), 1.0, 1.0, 1.0), (float("inf"), 1, 1, 1)]
)
def test_a_gene_that_is_not_finite_is_an_error_and_not_a_candidate(bad):
    with pytest.raises(ValueError, match="not a finite real number"):
        CurveSpace().repair(bad)


def test_pinned_ends_are_not_genes_and_stay():
    space = CurveSpace(pin_first=1.0, pin_last=6.0)
    assert space.genes == 2
    factors = space.factors((3.0, 2.0), 9)
    assert (factors[0], factors[-1]) == (1.0, 6.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("monotone", ["none", "increasing", "decreasing"])
def test_random_genomes_give_factors_within_the_range(seed, monotone):
    space = CurveSpace(minimum=0.5, maximum=4, step=0.1, monotone=monotone)
    rng = Random(seed)
    for _ in range(50):
        factors = space.factors(space.random(rng), 24)
        assert all(0.5 <= f <= 4 for f in factors)
        rises = [b - a for a, b in itertools.pairwise(factors)]
        if monotone == "increasing":
            assert min(rises) >= -1e-6
        if monotone == "decreasing":
            assert max(rises) <= 1e-6


def test_monotone_genes_stay_between_pinned_ends():
    space = CurveSpace(monotone="increasing", pin_first=2.0, pin_last=3.0)
    assert space.grid() == (2.0, 2.25, 2.5, 2.75, 3.0)
    assert space.repair((9.0, 1.0)) == (2.0, 3.0)


def test_seeds_hold_identity_the_expected_uniform_factor_and_ramps_both_ways():
    space = CurveSpace()
    seeds = list(space.seeds(12, 4.0, ("identity", "uniform", "ramps")))
    assert seeds[0] == (1.0,) * 4
    assert (4.0,) * 4 in seeds
    assert (1.0, 2.0, 3.0, 4.0) in seeds
    assert (4.0, 3.0, 2.0, 1.0) in seeds
    assert all(space.repair(s) == s for s in seeds)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"minimum": 3, "maximum": 2}, "maximum 2.0 must be above minimum 3.0"),
        ({"step": 9}, "step 9.0 must be at most"),
        ({"pin_first": 9.5}, r"pin_first 9.5 must lie in \[1.0, 8.0\]"),
        ({"monotone": "increasing", "pin_first": 4, "pin_last": 2}, "leave no increasing curve"),
        ({"control_points": 2, "pin_first": 1, "pin_last": 2}, "nothing to search"),
        ({"monotone": "increasing", "pin_first": 2.05, "pin_last": 2.1}, "fewer than two factors"),
        ({"control_points": 1}, "greater than or equal to 2"),
        ({"minimum": 0.01}, "greater than or equal to 0.1"),
        ({"maximum": float("inf")}, "finite"),
        ({"step": 0}, "greater than 0"),
    ],
)
def test_an_impossible_space_is_refused_with_the_reason(fields, message):
    with pytest.raises(ValidationError, match=message):
        CurveSpace(**fields)

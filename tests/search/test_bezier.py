"""Curves against de Casteljau's construction, which shares no formula with the Bernstein form."""

import itertools

import numpy as np
import pytest

from search import bezier


def de_casteljau(points, t):
    points = [np.asarray(p, dtype=float) for p in points]
    while len(points) > 1:
        points = [(1 - t) * a + t * b for a, b in itertools.pairwise(points)]
    return points[0]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_curve_equals_de_casteljau(seed, count):
    points = np.random.default_rng(seed).uniform(0, 5, (count, 2))
    t = np.linspace(0, 1, 11)
    expected = [de_casteljau(points, x) for x in t]
    np.testing.assert_allclose(bezier.evaluate(points, t), expected, atol=1e-12)


def test_two_points_give_a_straight_line():
    factors = bezier.factors_per_layer(bezier.even_points((1.0, 4.0)), 7)
    np.testing.assert_allclose(factors, [1, 1.5, 2, 2.5, 3, 3.5, 4], atol=1e-12)


def test_equal_points_give_a_constant():
    assert bezier.factors_per_layer(bezier.even_points((2.5,) * 4), 30).tolist() == pytest.approx([2.5] * 30)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_layers_that_move_are_solved_for(seed):
    rng = np.random.default_rng(seed)
    layers = np.array([0.0, *np.sort(rng.uniform(0, 1, 2)), 1.0])
    points = np.column_stack([layers, rng.uniform(1, 8, 4)])
    found = bezier.factors_per_layer(points, 12)
    fine = bezier.evaluate(points, np.linspace(0, 1, 200_001))
    expected = np.interp(np.linspace(0, 1, 12), fine[:, 0], fine[:, 1])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_ends_are_the_first_and_last_control_point():
    factors = bezier.factors_per_layer(bezier.even_points((1.25, 8.0, 3.0, 6.5)), 32)
    assert factors[0] == 1.25
    assert factors[-1] == 6.5


def test_one_layer_gets_the_first_point():
    assert bezier.factors_per_layer(bezier.even_points((2.0, 4.0)), 1).tolist() == [2.0]


@pytest.mark.parametrize("layers", [(0.0, 0.8, 0.2, 1.0), (0.1, 0.5, 1.0), (0.0, 0.5, 0.9), (0.0,)])
def test_layers_that_do_not_span_the_model_are_refused(layers):
    points = np.column_stack([layers, np.ones(len(layers))])
    with pytest.raises(ValueError, match="layers from 0 to 1"):
        bezier.factors_per_layer(points, 4)

"""Every distance method under every kind of frequency method, whose angles are worked out here by hand."""

import math

import pytest
import torch

from ropewalk import Frequency
from tests.ropewalk.distance_cases import METHODS, ROUNDING, Case, in_pieces, off, run
from tests.ropewalk.small_models import TRAINED, tokens

LENGTH, TARGET = 80, 128


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


def theta(base=10000.0):
    return [base ** (-2 * j / 16) for j in range(8)]


def yarn_by_hand(factor):
    """arXiv 2309.00071 for d = 16, base 10000, L0 = 64: no pair turns 32 times, so the ramp begins at pair 0."""

    def correction(turns):
        return 16 * math.log(64 / (2 * math.pi * turns)) / (2 * math.log(10000.0))

    low, high = max(math.floor(correction(32)), 0), min(math.ceil(correction(1)), 15)
    ramp = [min(max((j - low) / (high - low), 0.0), 1.0) for j in range(8)]
    return [t * (1 - r) + t / factor * r for t, r in zip(theta(), ramp, strict=True)], 0.1 * math.log(factor) + 1


def dynamic(factor, total):
    """The base for a total length, in both layers."""
    return [theta(10000.0 * (factor * total / TRAINED - (factor - 1)) ** (16 / 14))] * 2


def one(rows):
    return [torch.tensor(row, dtype=torch.float64) for row in rows]


def with_frequency(name, method):
    if name == "linear":
        rows, scalings = [[t / s for t in theta()] for s in (1.5, 3.0)], [1.0, 1.0]
        return Case(method, frequency=Frequency("linear", factor=(1.5, 3.0)), inv_freqs=one(rows), scalings=scalings)
    if name == "yarn":
        (rows, scalings) = zip(*[yarn_by_hand(factor) for factor in (2.0, 4.0)], strict=True)
        return Case(method, frequency=Frequency("yarn", factor=(2.0, 4.0)), inv_freqs=one(rows), scalings=scalings)
    if name == "longrope":
        factors = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
        rows = [[t / f for t, f in zip(theta(), factors, strict=True)]] * 2
        frequency = Frequency("longrope", factors=factors, attention_factor=1.3)
        return Case(method, frequency=frequency, inv_freqs=one(rows), scalings=[1.3, 1.3])
    return Case(method, frequency=Frequency("dynamic_ntk", factor=2.0), inv_freqs=one(dynamic(2.0, TARGET)))


@pytest.mark.parametrize("frequency", ["linear", "yarn", "longrope", "dynamic_ntk"])
def test_frequency_methods_combine_with_every_distance_method(frequency, method):
    case, ids = with_frequency(frequency, method), tokens(LENGTH, batch=2)
    expected = case.literal.logits(ids)
    with case.patched():
        assert off(run(case.model, ids), expected) < ROUNDING
        assert off(in_pieces(case.model, ids, [45, 20, 1]), expected) < ROUNDING


def test_dynamic_ntk_has_one_table_for_the_target_length_or_the_one_that_is_set(method):
    frequency, ids = Frequency("dynamic_ntk", factor=2.0), tokens(LENGTH)
    case = Case(method, frequency=frequency, inv_freqs=one(dynamic(2.0, LENGTH)))
    with case.patched() as handle:
        assert handle.total_length == TARGET
        handle.total_length = LENGTH
        assert off(in_pieces(case.model, ids, [45, 20, 1]), case.literal.logits(ids)) < ROUNDING
        handle.total_length = None
        assert handle.total_length == TARGET

"""Chance by label: the same everywhere, uniform, and without repetition where that is promised."""

from collections import Counter

import pytest

from fitness.dice import Dice


def test_the_same_label_gives_the_same_chance_on_every_python_version():
    dice = Dice(3, "search", 0)
    assert [dice.below(1000) for _ in range(5)] == [701, 13, 722, 847, 125]
    assert dice.shuffled("abcdefg") == ["f", "e", "b", "c", "a", "g", "d"]
    assert dice.sample(range(100), 4) == [56, 69, 67, 37]


@pytest.mark.parametrize("size", [0, 1, 2, 40])
def test_an_order_is_a_permutation_drawn_as_asked_for(size):
    orders = [tuple(Dice("order", i).order(range(size))) for i in range(20)]
    assert all(sorted(order) == list(range(size)) for order in orders)
    assert len(set(orders)) == {0: 1, 1: 1, 2: 2, 40: 20}[size]
    dice = Dice("order", 0)
    drawn = dice.order(range(10**9))
    assert next(drawn) != next(drawn)


def test_another_label_gives_other_chance():
    draws = {tuple(Dice(*label).below(2**50) for _ in range(2)) for label in [(1, 2), (2, 1), (12,), ("1/2", "x")]}
    assert len(draws) == 4


@pytest.mark.parametrize("count", [3, 9])
def test_a_sample_takes_every_place_equally_often_and_none_twice(count):
    taken = Counter()
    for i in range(600):
        found = Dice("sample", count, i).sample(range(13), count)
        assert len(set(found)) == count
        taken.update(found)
    expected = 600 * count / 13
    assert all(abs(taken[i] - expected) < 5 * expected**0.5 for i in range(13))


def test_a_sample_of_more_than_there_is_is_refused():
    with pytest.raises(ValueError, match="4 of 3"):
        Dice(0).sample("abc", 4)

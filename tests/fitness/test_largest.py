"""The largest number of units that fit: exactly that, whatever the sizes look like, with few measurements."""

import random

import pytest

from fitness.largest import largest


def literal(size, length, fewest, most):
    fitting = [n for n in range(fewest, most + 1) if size(n) <= length]
    return max(fitting) if fitting else None


@pytest.mark.parametrize("seed", range(30))
def test_it_is_what_trying_them_all_gives(seed):
    chance = random.Random(seed)
    sizes = [chance.randint(0, 20)]
    for _ in range(300):
        sizes.append(sizes[-1] + chance.choice([1, 2, 3, 50 if seed % 3 == 0 else 4]))
    fewest, most = chance.randint(0, 5), chance.randint(20, 299)
    length, start = chance.randint(0, 700), chance.randint(0, 200)
    for limit in (most, None):
        found = largest(lambda n: sizes[min(n, 300)] + max(n - 300, 0) * 99, length, fewest, limit, start)
        assert found == literal(lambda n: sizes[n], length, fewest, 300 if limit is None else limit) or found > 300


def test_a_good_start_needs_two_measurements_and_none_a_few():
    tried = []

    def size(n):
        tried.append(n)
        return 40 + 23 * n

    assert largest(size, 8192, 0, None, 354) == 354
    assert tried == [354, 355]
    tried.clear()
    assert largest(size, 8192, 0, None, 0) == 354
    assert len(tried) < 16

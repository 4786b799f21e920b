"""Whether a paired difference is more than chance, and what remains of that when many differences are looked at.

Sign-flip test (Fisher, 1935): if two profiles were alike, the difference that a context shows would have either sign
with the same chance. The unit is the context, as in `statistics`. Holm's procedure (1979) then keeps the chance of
even one false finding in a whole table at the level of a single test, whatever the dependence between its rows.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from fitness.statistics import DRAWN_AT_ONCE, SAME, cluster_numbers

FLIPS = 20000
EXACT_UP_TO = 14  # contexts whose 2^n sign patterns are all tried


def sign_flip(
    a: Sequence[float],
    b: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    seed: int,
    weights: Sequence[float] | None = None,
    flips: int = FLIPS,
) -> float:
    """Two-sided p-value of the mean of a − b over the same questions being 0.

    Exact with few clusters, else from random sign patterns, the observed one counted among them (Phipson and Smyth,
    2010), so that it is never 0: the smallest value is 1/(flips + 1).

    Args:
        clusters: of each pair, what it shares with pairs that it is not independent of; with a single one the
            questions are flipped instead.
        weights: of each pair in the mean; None for the plain mean.

    Raises:
        ValueError: no values, or not as many of each.
    """
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.shape != second.shape:
        raise ValueError(f"{first.size} values cannot be paired with {second.size}")
    data = first - second
    sums = np.bincount(cluster_numbers(data, clusters), data if weights is None else data * np.asarray(weights))
    sums = sums[sums != 0]  # a sign changes nothing there
    observed = abs(sums.sum()) - SAME
    if len(sums) <= EXACT_UP_TO:
        patterns = np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums)) & 1
        return float((np.abs((1 - 2 * patterns) @ sums) >= observed).mean())
    rng = np.random.default_rng(seed)
    extreme, step = 1, max(1, DRAWN_AT_ONCE // len(sums))
    for start in range(0, flips, step):
        signs = 1 - 2 * rng.integers(0, 2, (min(step, flips - start), len(sums)))
        extreme += int((np.abs(signs @ sums) >= observed).sum())
    return extreme / (flips + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the order given; those of at most 0.05 are findings with a 5 % chance of any false one."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = least
    return adjusted

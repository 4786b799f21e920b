"""The largest number of units that fit, found with few measurements of nearly proportional sizes."""

from collections.abc import Callable


def largest(size: Callable[[int], int], length: int, fewest: int, most: int | None, start: int) -> int | None:
    """A number of units that fits, of which one more does not (or which is `most`); None if the fewest do not fit.

    Args:
        size: of so many units; measured where the line through what is known crosses `length`, and halved into now and
            then, for sizes that are not on a line.
        start: first guess.
    """
    low, inside = fewest - 1, 0  # fits, with its size
    high, outside = None if most is None else most + 1, None  # does not, with its size where that was measured
    guess, step = max(start, fewest), 0
    while high is None or high - low > 1:
        guess = max(guess if high is None else min(guess, high - 1), low + 1)
        found, step = size(guess), step + 1
        if found <= length:
            low, inside = guess, found
        else:
            high, outside = guess, found
        if outside is None:
            guess = min(2 * low + 1, int(low * length / max(inside, 1)) + 1)
        elif step % 4 == 0:
            guess = (low + high) // 2
        else:
            guess = low + int((length - inside) / (outside - inside) * (high - low))
    return None if low < fewest else low

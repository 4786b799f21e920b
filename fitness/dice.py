"""Chance that follows from a label alone, on every machine and Python version.

`splits.draw` costs a hash per number; a context of thousands of drawn words needs something faster. Python guarantees
the sequence of `random.Random(seed).random()` across versions, but not what `shuffle`, `sample` or `choice` make of it,
so these are built here on it alone.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import TypeVar

from fitness.splits import draw

T = TypeVar("T")


class Dice:
    """A stream of chance, the same for the same label."""

    def __init__(self, *label: object) -> None:
        self._next = Random(draw(*label)).random

    def below(self, count: int) -> int:
        """A uniform integer from 0 to `count` - 1; `count` is at most 2**53, the resolution of a float."""
        return int(self._next() * count)

    def share(self) -> float:
        """A uniform number from 0 up to but without 1."""
        return self._next()

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """All items in a random order."""
        keys = [self._next() for _ in items]
        return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]

    def order(self, items: Sequence[T]) -> Iterator[T]:
        """All items in a random order, drawn as they are asked for (Fisher and Yates); for the first of very many."""
        moved: dict[int, int] = {}
        for left in range(len(items), 0, -1):
            place = self.below(left)
            yield items[moved.get(place, place)]
            moved[place] = moved.get(left - 1, left - 1)

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """`count` items from different places, in a random order.

        Raises:
            ValueError: there are not that many.
        """
        if count > len(items):
            raise ValueError(f"{count} of {len(items)} items")
        return list(islice(self.order(items), count))

"""Splits that share nothing: what a search sees, what its report is measured on, and what guards short contexts.

Two mechanisms, because tasks draw from two kinds of source. Generated data come from a stream of numbers whose label
holds the seed and the split. Finite data (rows of a file, stretches of a text) are dealt out to the splits by their
place, whatever the seed, so two splits cannot meet even when they are built with different seeds.
"""

import hashlib
from collections.abc import Sequence

from fitness.errors import TaskError

SHARES = {"search": 4, "heldout": 3, "guard": 2, "validation": 1}  # tenths of finite data


def check(split: str) -> None:
    """Raises TaskError for an unknown split."""
    if split not in SHARES:
        raise TaskError("split", split, ", ".join(SHARES))


def draw(*label: object) -> int:
    """A uniform integer of 256 bits that follows from its label alone, on every machine and Python version."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, label)).encode()).digest())


def stretch(split: str, size: int) -> tuple[int, int]:
    """Start and stop of a split's part of `size` consecutive items."""
    check(split)
    first = sum(SHARES[name] for name in list(SHARES)[: list(SHARES).index(split)])
    return first * size // 10, (first + SHARES[split]) * size // 10


def holds(split: str, row: int) -> bool:
    """Whether a row of a file belongs to a split: rows are dealt out in tens, so a growing file keeps its splits."""
    start, stop = stretch(split, 10)
    return start <= row % 10 < stop


def sample(rows: Sequence[int], count: int, seed: int, split: str) -> list[int]:
    """`count` of `rows` in a random order that follows from seed and split."""
    return sorted(rows, key=lambda row: draw(seed, split, row))[:count]

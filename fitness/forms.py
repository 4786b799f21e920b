"""Forms of keys and values: UUIDs as in the official data, or shorter ones that give small models a signal.

Every text is a function of a 256-bit number (see `splits.draw`), so a set is the same wherever it is built.
"""

import re
import uuid
from collections.abc import Callable

from fitness.errors import TaskError

CONSONANTS = "bdfghjklmnprstvz"
VOWELS = "aeiou"
SYLLABLES = tuple(c + v for c in CONSONANTS for v in VOWELS)
WORD_SYLLABLES = 3
PATTERN = r"^(uuid|words|hex([1-9]|[12]\d|3[0-2]))$"
ALLOWED = "uuid, words, or hex1 to hex32"


def as_uuid(number: int) -> str:
    """A version 4 UUID, as in the official files."""
    return str(uuid.UUID(int=number % 2**128, version=4))


def as_word(number: int) -> str:
    """A pronounceable word of three syllables, one of 80³ = 512,000: `bamoki`."""
    syllables = []
    for _ in range(WORD_SYLLABLES):
        number, index = divmod(number, len(SYLLABLES))
        syllables.append(SYLLABLES[index])
    return "".join(syllables)


def form(name: str) -> tuple[Callable[[int], str], int]:
    """The function from a number to a text, and how many distinct texts it has.

    Raises:
        TaskError: no such form.
    """
    if not re.match(PATTERN, name):
        raise TaskError("keys", name, ALLOWED)
    if name == "uuid":
        return as_uuid, 2**122
    if name == "words":
        return as_word, len(SYLLABLES) ** WORD_SYLLABLES
    digits = int(name.removeprefix("hex"))
    return lambda number: f"{number % 16**digits:0{digits}x}", 16**digits

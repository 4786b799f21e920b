"""English words from the package wonderwords (MIT licence), which RULER takes its words from.

The benchmark's own lists come from an older version of the package; set names (`ExampleSet.hash`) tell them apart.
"""

from functools import cache

from wonderwords import RandomWord

CLASSES = ("noun", "adjective", "verb")


@cache
def words(*classes: str) -> tuple[str, ...]:
    """All words of these classes, each once, sorted; some have a space or a hyphen."""
    return tuple(sorted(set(RandomWord().filter(include_categories=classes))))


@cache
def compounds() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Adjectives and nouns; RULER's keys are every `adjective-noun`."""
    return words("adjective"), words("noun")

"""Haystacks: long natural text that needles are hidden in, a passage for each context.

Sources are those of `fitness.texts`: the built-in prose, a text file, a folder of files, a data set of the Hub. Each
split has texts of its own: of ten documents or more whole ones, of fewer a stretch of each. A passage starts with a
sentence that is drawn, and goes on from the beginning where the split's text ends; if it comes round to where it
started, the text repeats, as RULER's essays do at great lengths.
"""

import platform
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property

from fitness import splits
from fitness.dice import Dice
from fitness.errors import TaskError
from fitness.texts import Document, HubData, documents, held

NEAR = 0.05  # of a text, for a needle to move to the start of a sentence
DEALT = 10  # documents from which on they are dealt out whole
ENDS = (".", "!", "?")
CLOSING = "\"')]}”’"


def source_of(named: str | HubData | None) -> tuple[str | None, HubData | None]:
    """File and data set, as `fitness.texts` takes them, of a field that may name either."""
    return (None, named) if isinstance(named, HubData) else (named, None)


def ends_sentence(word: str) -> bool:
    return word.rstrip(CLOSING).endswith(ENDS)


class Passage:
    """Words of running text, of which any number from the beginning can be used; from `fresh` words on it repeats."""

    def __init__(self, words: Sequence[str], fresh: int) -> None:
        self.words = words
        self.fresh = fresh

    @cached_property
    def starts(self) -> list[int]:
        """Indices of the words that start a sentence, 0 among them."""
        ends = {word for word in set(self.words) if ends_sentence(word)}
        return [0] + [i + 1 for i, word in enumerate(self.words[:-1]) if word in ends]

    def sentences(self, count: int) -> list[int]:
        """Where sentences start within the first `count` words, and `count` itself: the places for a needle."""
        return [*self.starts[: bisect_left(self.starts, count)], count]

    def place(self, depth: float, count: int) -> int:
        """The word at a depth of 0 to 1 within the first `count` words where a needle goes: the sentence start nearest
        below, unless it is further than `NEAR` of the text, as in running text of long sentences."""
        if depth >= 1 or not count:
            return count
        start = self.starts[bisect_right(self.starts, depth * count) - 1]
        return start if start >= (depth - NEAR) * count else int(depth * count)

    def place_within(self, depth: float, part: int, parts: int, count: int) -> int:
        """The same within one of equal parts of the text: where that is before the part, the next start of a sentence
        in it, or else its first word."""
        first, last = -(-part * count // parts), -(-(part + 1) * count // parts)
        found = self.place(depth, count)
        if found < first:
            after = bisect_left(self.starts, first)
            found = self.starts[after] if after < len(self.starts) and self.starts[after] < last else first
        return found

    def with_needles(self, count: int, needles: Sequence[tuple[int, str]]) -> str:
        """The first `count` words with each needle at its word index; needles at the same place keep their order."""
        parts: list[str] = []
        last = 0
        for place, needle in sorted(needles, key=lambda pair: pair[0]):
            parts += [*self.words[last:place], needle]
            last = place
        return " ".join([*parts, *self.words[last:count]])


class Haystack:
    """The text of one split.

    Raises:
        TaskError: the source cannot be read, or has no text for this split.
    """

    def __init__(self, file: str | None, dataset: HubData | None, split: str) -> None:
        self.split = split
        self.source = file or (dataset.name if dataset else "the built-in prose")
        self.builtin = file is None and dataset is None
        self._documents = documents(file, dataset)
        self._whole = len(self._documents) >= DEALT
        self._held = held(self._documents, split) if self._whole else list(range(len(self._documents)))
        self._read: tuple[int, list[str]] | None = None  # the document read last
        self._repeats = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the scores must know of this text."""
        notes = []
        if self.builtin:
            version = ".".join(platform.python_version_tuple()[:2])
            notes.append(
                f"haystack: the built-in prose of Python {version}; published results used essays and do not compare"
            )
        if self._repeats:
            notes.append(f"haystack: {self.source} is too short for this length in split {self.split}, so it repeats")
        return tuple(notes)

    def passage(self, words: int, *label: object) -> Passage:
        """At least `words` words from a place that follows from the label.

        Raises:
            TaskError: the split has no text.
        """
        dice = Dice(*label)
        order = self._held
        if self._whole:
            first = dice.below(len(order))
            order = [*order[first:], *order[:first]]
        start = dice.share()
        found: list[str] = []
        fresh = begin = 0
        for turn, index in enumerate(self._rounds(order)):
            text = self._words(index)
            if turn == 0:
                begin = Passage(text, len(text)).place(start, len(text))
                text = text[begin:]
            if turn == len(order):
                fresh = len(found) + begin
                if not fresh:
                    break
            found += text
            if len(found) >= words:
                return Passage(found[:words], fresh or words)
        raise TaskError("file", self.source, f"a text with some words for split {self.split}")

    def used(self, passage: Passage, count: int) -> None:
        """Take note that the first `count` words of a passage stand in a context."""
        self._repeats |= count > passage.fresh

    @staticmethod
    def _rounds(order: Sequence[int]) -> Iterator[int]:
        while order:
            yield from order

    def _words(self, index: int) -> list[str]:
        if self._read is None or self._read[0] != index:
            document: Document = self._documents[index]
            text = document.read()
            if not self._whole:
                first, last = splits.stretch(self.split, len(text))
                text = text[first:last]
                words = text.split()
                words = words[1:] if first else words  # cut in the middle
            else:
                words = text.split()
            self._read = index, words
        return self._read[1]

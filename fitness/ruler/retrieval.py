"""RULER's eight needle tasks: repeated noise, essays, or needles as the haystack."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, ClassVar

from fitness.dice import Dice
from fitness.examples import Example
from fitness.filling import Draft, Filler
from fitness.haystacks import Haystack, Passage, source_of
from fitness.ruler.drawing import Drawing
from fitness.ruler.needles import FORMS, Needle, answer_of, context_of, distinct, query_of
from fitness.ruler.templates import NOISE

if TYPE_CHECKING:
    from fitness.ruler.task import RulerTask

DEPTHS = tuple(round(100 * i / 39) / 100 for i in range(40))  # of a needle in an essay, as published


class Needles(Drawing):
    """Needles in a haystack; its parameters are those published.

    Drawn needles stand at different depths, and the keys asked for are drawn from those hidden.
    """

    BUDGET: ClassVar[int] = 128
    KEYS: ClassVar[int] = 1  # hidden in the text, besides those that are the haystack
    VALUES: ClassVar[int] = 1  # of each key
    ASKED: ClassVar[int] = 1  # keys
    KEY_FORM: ClassVar[str] = "words"
    VALUE_FORM: ClassVar[str] = "numbers"

    def _hidden(self, dice: Dice) -> tuple[list[Needle], list[str], list[str]]:
        """The needles in the order in which they stand in the text, the keys asked for, and all their values."""
        keys = distinct(self.KEY_FORM, self.KEYS, self.split, dice)
        values = distinct(self.VALUE_FORM, self.KEYS * self.VALUES, self.split, dice)
        needles = [Needle(keys[i // self.VALUES], value, self.VALUE_FORM) for i, value in enumerate(values)]
        asked = dice.sample(keys, self.ASKED)
        return dice.shuffled(needles), asked, [n.value for key in asked for n in needles if n.key == key]

    def _asking(self, name: str, text: str, asked: Sequence[str], values: Sequence[str]) -> Example:
        single = len(values) == 1
        query, lead = query_of(asked, self.VALUE_FORM, single=single)
        context = context_of(text, self.VALUE_FORM, single=single)
        return self.example(name, context, query, lead, answer_of(values), tuple(values))

    def _fixed(self, asked: Sequence[str], values: Sequence[str], needles: Sequence[Needle]) -> int:
        """Tokens around the haystack."""
        empty = self._asking("", "", asked, values)
        texts = [empty.context, empty.questions[0].prompt, *(f" {needle}" for needle in needles)]
        return sum(self.counts(texts))


class InEssays(Needles):
    """Needles between the sentences of running text: of what the task names as `essays`, or of the built-in prose."""

    def __init__(self, task: "RulerTask", filler: Filler, seed: int, split: str) -> None:
        super().__init__(task, filler, seed, split)
        self.haystack = Haystack(*source_of(task.essays), split)
        self.passage: Passage | None = None  # of the example drafted last

    def draft(self, name: str, label: tuple[object, ...]) -> Draft:
        dice = Dice(*label, "needles")
        needles, asked, values = self._hidden(dice)
        depths = sorted(dice.sample(DEPTHS, len(needles)))
        passage = self.passage = self.haystack.passage(self.length, *label, "passage")
        sizes = [0, *accumulate(self.counts([f" {word}" for word in passage.words]))]
        fixed = self._fixed(asked, values, needles)

        def build(count: int) -> Example:
            places = passage.sentences(count)
            at = [places[min(int((len(places) - 1) * depth), len(places) - 1)] for depth in depths]
            text = passage.with_needles(count, list(zip(at, map(str, needles), strict=True)))
            return self._asking(name, text, asked, values)

        return Draft(build, lambda count: fixed + sizes[count], 1, len(passage.words), "words")

    def used(self, count: int) -> None:
        self.haystack.used(self.passage, count)

    @property
    def notes(self) -> tuple[str, ...]:
        return self.haystack.notes


class InLines(Needles):
    """Needles between lines that are all noise, or all needles with keys of their own."""

    def draft(self, name: str, label: tuple[object, ...]) -> Draft:
        dice = Dice(*label, "needles")
        needles, asked, values = self._hidden(dice)
        lines, sizes = self.enough(self._lines({needle.key for needle in needles}, Dice(*label, "haystack")))
        fixed = self._fixed(asked, values, needles)
        depths = [dice.share() for _ in needles]

        def build(count: int) -> Example:
            text = list(lines[:count])
            for depth, needle in sorted(zip(depths, map(str, needles), strict=True), reverse=True):
                text.insert(int(depth * count), needle)
            return self._asking(name, "\n".join(text), asked, values)

        return Draft(build, lambda count: fixed + sizes[count], 1, len(lines), "lines")

    def _lines(self, taken: set[str], dice: Dice) -> Iterator[str]:
        return repeat(NOISE)


class InNeedles(InLines):
    """The haystack is needles as well: every line could be what is asked for."""

    def _lines(self, taken: set[str], dice: Dice) -> Iterator[str]:
        seen = set(taken)
        while True:
            key = FORMS[self.KEY_FORM](self.split, dice)
            if key not in seen:
                seen.add(key)
                yield str(Needle(key, FORMS[self.VALUE_FORM](self.split, dice), self.VALUE_FORM))


class NiahSingle1(InLines):
    """One needle in repeated noise, a passkey."""

    SINGLE: ClassVar[bool] = True


class NiahSingle2(InEssays):
    """One needle in essays, the plain NIAH."""

    SINGLE: ClassVar[bool] = True


class NiahSingle3(InEssays):
    """One needle in essays whose value is a UUID."""

    SINGLE: ClassVar[bool] = True
    VALUE_FORM: ClassVar[str] = "uuids"


class NiahMultikey1(InEssays):
    """Four keys in essays, one asked for."""

    SINGLE: ClassVar[bool] = True
    KEYS: ClassVar[int] = 4


class NiahMultikey2(InNeedles):
    """Every line is a needle, one asked for."""

    SINGLE: ClassVar[bool] = True


class NiahMultikey3(InNeedles):
    """Every line is a needle whose key and value are UUIDs, one asked for."""

    SINGLE: ClassVar[bool] = True
    KEY_FORM: ClassVar[str] = "uuids"
    VALUE_FORM: ClassVar[str] = "uuids"


class NiahMultivalue(InEssays):
    """One key with four values, all asked for."""

    VALUES: ClassVar[int] = 4


class NiahMultiquery(InEssays):
    """Four keys, all asked for at once."""

    KEYS: ClassVar[int] = 4
    ASKED: ClassVar[int] = 4

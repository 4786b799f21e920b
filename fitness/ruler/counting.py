"""RULER's two counting tasks: the common words of a list, and the frequent words of a coded text."""

import math
from itertools import accumulate, islice
from string import ascii_lowercase
from typing import TYPE_CHECKING, ClassVar

from fitness.dice import Dice
from fitness.examples import Example
from fitness.filling import Draft, Filler
from fitness.ruler.drawing import Drawing
from fitness.ruler.needles import dealt
from fitness.ruler.templates import (
    COMMON_ANSWER,
    COMMON_CONTEXT,
    COMMON_QUERY,
    FREQUENT_ANSWER,
    FREQUENT_CONTEXT,
    FREQUENT_QUERY,
)
from fitness.splits import holds
from fitness.wordlist import words

if TYPE_CHECKING:
    from fitness.ruler.task import RulerTask

COMMON = 10
SHORT = 4096  # tokens, below which a list and its solved example repeat their words less
LETTERS = 6  # of a coded word
FREQUENT = 3
ZETA_2 = math.pi**2 / 6
TOKENS_PER_CODED_WORD = 50  # of the length, for the size of the vocabulary
FEWEST_CODED = 80  # from here on the last answer is always more frequent than the next word
FILLER = "..."
FEWEST_TOKENS = 2  # of a numbered word


def numbered(items: list[str]) -> str:
    return " ".join(f"{i}. {item}" for i, item in enumerate(items, 1))


class CommonWords(Drawing):
    """Ten words that each occur 30 times among words that occur 3 times; in short contexts 6 times and once.

    A solved example stands in front. Common words are of the split's own part of the word list; the others may be any.
    """

    BUDGET: ClassVar[int] = 120

    def __init__(self, task: "RulerTask", filler: Filler, seed: int, split: str) -> None:
        super().__init__(task, filler, seed, split)
        self.everything = words("noun", "adjective", "verb")
        self.own = [word for i, word in enumerate(self.everything) if holds(split, i)]

    def draft(self, name: str, label: tuple[object, ...]) -> Draft:
        often, seldom = (30, 3) if self.length >= SHORT else (6, 1)
        dice = Dice(*label, "words")
        common, others = self._chosen(dice, max(self.length // (FEWEST_TOKENS * seldom), 1))
        front = self._solved(Dice(*label, "shown")) + "\n"
        context, query, lead = COMMON_CONTEXT, COMMON_QUERY, COMMON_ANSWER
        fixed = sum(self.counts((front, context, query, lead)))
        fixed += often * sum(self.counts([f" {word}" for word in common]))
        each = [0, *accumulate(self.counts([f" {word}" for word in others]))]
        most = len(others)
        items = often * COMMON + seldom * most
        numbers = [0, *accumulate(self.counts([f" {i}." for i in range(1, items + 1)]))]

        def build(count: int) -> Example:
            listed = Dice(*label, "order").shuffled(often * common + seldom * others[:count])
            text = front + context.format(context=numbered(listed))
            return self.example(name, text, query, lead, f" {numbered(common)}", tuple(common))

        def estimate(count: int) -> int:
            return fixed + seldom * each[count] + numbers[often * COMMON + seldom * count]

        return Draft(build, estimate, 1, most, "uncommon words")

    def _solved(self, dice: Dice) -> str:
        shown, often, seldom = (40, 10, 3) if self.length >= SHORT else (20, 3, 1)
        common, others = self._chosen(dice, shown - COMMON)
        listed = dice.shuffled(often * common + seldom * others)
        return COMMON_CONTEXT.format(context=numbered(listed)) + COMMON_QUERY + COMMON_ANSWER + f" {numbered(common)}"

    def _chosen(self, dice: Dice, most: int) -> tuple[list[str], list[str]]:
        """Ten of the split's own words, and others in a random order, `most` of them if there are as many."""
        common = dice.sample(self.own, COMMON)
        taken = set(common)
        return common, list(islice((word for word in dice.order(self.everything) if word not in taken), most))


class FrequentWords(Drawing):
    """The three most frequent words of a text whose words follow a zeta distribution of exponent 2.

    The most frequent of all is the dots that fill it, which do not count.
    """

    BUDGET: ClassVar[int] = 50

    def draft(self, name: str, label: tuple[object, ...]) -> Draft:
        dice = Dice(*label, "words")
        size = max(self.length // TOKENS_PER_CODED_WORD, FREQUENT + 2)
        coded: dict[str, None] = {FILLER: None}
        while len(coded) < size:
            coded.setdefault(_coded(self.split, dice))
        vocabulary = list(coded)
        answers = vocabulary[1 : FREQUENT + 1]
        sizes = self.counts([f" {word}" for word in vocabulary])
        fixed = sum(self.counts((FREQUENT_CONTEXT, FREQUENT_QUERY, FREQUENT_ANSWER)))

        def build(count: int) -> Example:
            repeated = [
                word for word, times in zip(vocabulary, occurrences(count, size), strict=True) for _ in range(times)
            ]
            text = " ".join(Dice(*label, "order").shuffled(repeated))
            context = FREQUENT_CONTEXT.format(context=text)
            return self.example(
                name, context, FREQUENT_QUERY, FREQUENT_ANSWER, " " + ", ".join(answers), tuple(answers)
            )

        def estimate(count: int) -> int:
            return fixed + sum(a * b for a, b in zip(occurrences(count, size), sizes, strict=True))

        return Draft(build, estimate, FEWEST_CODED, 2 * self.length, "coded words")


def occurrences(count: int, size: int) -> list[int]:
    """How often each word of a vocabulary occurs in a text of `count` words, by its rank: ⌊count / (rank² ζ(2))⌋."""
    return [int(count / (rank * rank * ZETA_2)) for rank in range(1, size + 1)]


def _coded(split: str, dice: Dice) -> str:
    number = dealt(split, len(ascii_lowercase) ** LETTERS, dice)
    letters = []
    for _ in range(LETTERS):
        number, letter = divmod(number, len(ascii_lowercase))
        letters.append(ascii_lowercase[letter])
    return "".join(letters)

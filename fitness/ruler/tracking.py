"""RULER's variable tracking: a chain of assignments hidden in noise, all variables of its value asked for."""

from string import ascii_uppercase
from typing import ClassVar

from fitness.dice import Dice
from fitness.examples import Example
from fitness.filling import Draft
from fitness.ruler.drawing import Drawing
from fitness.ruler.needles import dealt
from fitness.ruler.templates import NOISE, TRACKING_ANSWER, TRACKING_CONTEXT, TRACKING_QUERY

HOPS = 4
LETTERS, LETTERS_SHOWN = 5, 3  # of a variable's name: asked about, and in the solved example
LEAST_VALUE, VALUES = 10_000, 90_000
LINE = f"{NOISE}\n"
SHOWN_TOKENS, SHOWN_STEP = 500, 5  # the solved example has the most noise, in steps of five lines, that these take


class _Chain:
    """A value and the variables that it is handed through."""

    def __init__(self, letters: int, split: str, dice: Dice) -> None:
        self.value = str(LEAST_VALUE + dealt(split, VALUES, dice))
        names: dict[str, None] = {}
        while len(names) <= HOPS:
            names.setdefault(_name(letters, split, dice))
        self.names = list(names)
        self.depths = sorted(dice.share() for _ in self.names)

    @property
    def assignments(self) -> list[str]:
        """Sentences of the text; those that copy end with a space, as published."""
        first, *_ = self.names
        copies = [f"VAR {b} = VAR {a} " for a, b in zip(self.names, self.names[1:], strict=False)]
        return [f"VAR {first} = {self.value}", *copies]

    def text(self, noise: int) -> str:
        """The chain in its order among so many lines of noise."""
        lines = [LINE] * noise
        for i, (depth, assignment) in enumerate(zip(self.depths, self.assignments, strict=True)):
            lines.insert(int(depth * noise) + i, assignment)
        return " ".join(lines)

    @property
    def answer(self) -> str:
        return " " + " ".join(self.names)

    def parts(self, noise: int) -> tuple[str, str, str]:
        """Context, question, and the beginning of its answer."""
        return (
            TRACKING_CONTEXT.format(context=self.text(noise)),
            TRACKING_QUERY.format(value=self.value),
            TRACKING_ANSWER.format(value=self.value, count=len(self.names)),
        )

    def solved(self, noise: int) -> str:
        return "".join(self.parts(noise)) + self.answer


def _name(letters: int, split: str, dice: Dice) -> str:
    number = dealt(split, len(ascii_uppercase) ** letters, dice)
    name = ""
    for _ in range(letters):
        number, letter = divmod(number, len(ascii_uppercase))
        name += ascii_uppercase[letter]
    return name


class VariableTracking(Drawing):
    """One chain of four hops, with a solved example in front."""

    BUDGET: ClassVar[int] = 30

    def draft(self, name: str, label: tuple[object, ...]) -> Draft:
        chain = _Chain(LETTERS, self.split, Dice(*label, "chain"))
        shown = _Chain(LETTERS_SHOWN, self.split, Dice(*label, "shown"))
        line = sum(self.counts((f" {LINE}",)))
        around = sum(self.counts((shown.solved(0),))) + self.BUDGET
        noise = max((SHOWN_TOKENS - around) // line // SHOWN_STEP, 1) * SHOWN_STEP
        front = shown.solved(noise) + "\n\n\n\n"
        fixed = sum(self.counts((front, *chain.parts(0))))

        def build(count: int) -> Example:
            context, query, lead = chain.parts(count)
            return self.example(name, front + context, query, lead, chain.answer, tuple(chain.names))

        return Draft(build, lambda count: fixed + count * line, HOPS + 1, self.length, "lines of noise")

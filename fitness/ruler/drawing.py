"""What RULER's tasks have in common: one object per set and task, which drafts the examples one after another."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from fitness.examples import Example, Question
from fitness.filling import Draft, Filler

if TYPE_CHECKING:
    from fitness.ruler.task import RulerTask

MORE, BLOCK = 1.5, 64  # lines are drawn in blocks, until they have so many times the tokens that may be needed


class Drawing(ABC):
    """The examples of one set in the making. All chance of an example follows from its label.

    Attributes:
        BUDGET: tokens that an answer may take, which a length counts.
        SINGLE: one text is the answer, so that teacher forcing can tell whether it is given.
        MATCH: the metric of generated outputs.
        NEEDS: the field of the task that must name data.
    """

    BUDGET: ClassVar[int]
    SINGLE: ClassVar[bool] = False
    MATCH: ClassVar[str] = "string_match_all"
    NEEDS: ClassVar[str | None] = None

    def __init__(self, task: "RulerTask", filler: Filler, seed: int, split: str) -> None:
        self.task = task
        self.length = task.length
        self.filler = filler
        self.counts = filler.counts
        self.seed = seed
        self.split = split

    @abstractmethod
    def draft(self, name: str, label: tuple[object, ...]) -> Draft:
        """The example called `name`, still free in its number of units."""

    def used(self, count: int) -> None:  # noqa: B027 - most have nothing to note
        """Take note of how many units the example drafted last has."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the scores must know of these examples."""
        return ()

    def enough(self, drawn: Iterator[str]) -> tuple[list[str], list[int]]:
        """More lines than can fit, or all there are, and the estimated tokens of the first none, one, two, …"""
        lines: list[str] = []
        sizes = [0]
        while sizes[-1] < MORE * self.length and (new := list(islice(drawn, BLOCK))):
            lines += new
            for size in self.counts([f"\n{line}" for line in new]):
                sizes.append(sizes[-1] + size)
        return lines, sizes

    def example(
        self, name: str, context: str, query: str, lead: str, answer: str, references: tuple[str, ...]
    ) -> Example:
        question = Question(
            f"{name}/0", query + lead, answer, references, None, self.MATCH, budget=self.BUDGET, lead=lead
        )
        return Example(name, context, (question,))

"""RULER's two question answering tasks: SQuAD's and HotpotQA's questions among numbered documents."""

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from fitness import splits
from fitness.dice import Dice
from fitness.errors import TaskError
from fitness.examples import Example
from fitness.filling import Draft, Filler
from fitness.haystacks import source_of
from fitness.ruler import passages
from fitness.ruler.drawing import Drawing
from fitness.ruler.passages import Asked, Collection
from fitness.ruler.templates import DOCUMENT, QA_ANSWER, QA_CONTEXT, QA_QUERY

if TYPE_CHECKING:
    from fitness.ruler.task import RulerTask


class Documents(Drawing):
    """A question among documents: its own, then those of the same article, then others, all shuffled."""

    BUDGET: ClassVar[int] = 32
    MATCH: ClassVar[str] = "string_match_part"
    READ: ClassVar[Callable[..., Collection]]

    def __init__(self, task: "RulerTask", filler: Filler, seed: int, split: str) -> None:
        super().__init__(task, filler, seed, split)
        source = getattr(task, self.NEEDS)
        self.found = type(self).READ(*source_of(source), split, task.distractors == "all")
        most = len(self.found.questions)
        if most < task.contexts:
            allowed = f"at most {most}, the questions in split {split} of {self.NEEDS}"
            raise TaskError("contexts", task.contexts, allowed)
        order = splits.sample(range(most), task.contexts, seed, split)
        self.questions = iter([self.found.questions[i] for i in order])

    def draft(self, name: str, label: tuple[object, ...]) -> Draft:
        asked: Asked = next(self.questions)
        dice = Dice(*label, "distractors")
        known = {*asked.gold, *asked.near}
        others = (text for text in dice.order(self.found.documents) if text not in known)
        documents, sizes = self.enough(chain(dict.fromkeys(asked.gold), dice.shuffled(asked.near), others))
        header = sum(self.counts(("\n\n" + DOCUMENT.format(number=10, document=""),)))
        query = QA_QUERY.format(query=asked.text)
        fixed = sum(self.counts((QA_CONTEXT, query, QA_ANSWER)))

        def build(count: int) -> Example:
            shuffled = Dice(*label, "order").shuffled(documents[:count])
            numbered = [DOCUMENT.format(number=i, document=text) for i, text in enumerate(shuffled, 1)]
            context = QA_CONTEXT.format(context="\n\n".join(numbered))
            return self.example(name, context, query, QA_ANSWER, f" {asked.answers[0]}", asked.answers)

        fewest = len(set(asked.gold))
        return Draft(build, lambda count: fixed + count * header + sizes[count], fewest, len(documents), "documents")

    @property
    def notes(self) -> tuple[str, ...]:
        notes = []
        if self.found.unanswerable:
            notes.append(f"{self.NEEDS}: {self.found.unanswerable} questions without an answer left out, as published")
        if self.task.distractors == "all":
            notes.append(f"{self.NEEDS}: distractors come from the documents of all splits")
        return tuple(notes)


class SquadQuestions(Documents):
    """SQuAD 2.0, published on its development set; one document holds the answer."""

    NEEDS: ClassVar[str | None] = "squad"
    READ = staticmethod(passages.squad)


class HotpotQuestions(Documents):
    """HotpotQA, published on its development set with distractors; ten documents come with a question."""

    NEEDS: ClassVar[str | None] = "hotpotqa"
    READ = staticmethod(passages.hotpotqa)

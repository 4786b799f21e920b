"""Multi-document question answering: the gold document moved through numbered others (Liu et al., arXiv 2307.03172).

Prompts, positions and the 100 tokens of a generation are those of the official code, nelson-liu/lost-in-the-middle.
Each position costs a context of its own, since moving a document changes all that stands behind it; the contexts of a
question share their `id`.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from fitness.encoding import longest
from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet, Question
from fitness.kv import spread
from fitness.mdqa_rows import Document, QARow, rows_of
from fitness.modes import check_metric, scored_as_it_can_be

INSTRUCTION = (
    "Write a high-quality answer for the given question using only the provided search results "
    "(some of which might be irrelevant).\n\n"
)
DOCUMENT = "Document [{number}](Title: {title}) {text}"
QUESTION = "Question: {question}\nAnswer:"
STEP = 5  # of the published positions: every fifth document
FEWEST_TOKENS = 4  # of a document with its number and title
NOT_COMPARABLE = (
    "distractors are gold documents of other questions, not retrieved for this one: easier than the published "
    "setting, and not comparable with its numbers"
)


def published_positions(documents: int) -> tuple[int, ...]:
    """0, 4, 9 of 10, …14, 19 of 20, …24, 29 of 30 as published; of other numbers likewise, first and last included."""
    return tuple(sorted({0, *range(STEP - 1, documents, STEP), documents - 1}))


def context_of(documents: Sequence[Document], asked: str | None = None) -> str:
    """What precedes the question. With `asked`, the question stands before the documents too (query-aware)."""
    if not documents:
        return ""
    before = INSTRUCTION if asked is None else f"{INSTRUCTION}Question: {asked}\n\n"
    numbered = enumerate(documents, 1)
    return before + "\n".join(DOCUMENT.format(number=i, title=d.title, text=d.text) for i, d in numbered) + "\n\n"


class MDQATask(BaseModel):
    """Multi-document question answering as a campaign's `fitness:` section.

    Attributes:
        file: official JSON lines, plain or gzip. The rows are dealt out to the splits, 4, 3, 2, 1 of ten to search,
            heldout, guard, validation, those of one gold document together. Distractors for the oracle file come from
            other rows of the split; the example set then notes that its scores are not comparable with published ones.
        documents: numbered documents of a context, 10, 20 or 30 as published; 0 asks without any (closed book). Either
            this or `length`.
        length: tokens of the longest prompt with its budget (or answer, in teacher forcing); as many documents as fit
            in every context, the same number in all.
        contexts: questions drawn; each is asked at every position.
        positions: of the gold document, from 0; as published where none are named. `questions` takes that many,
            evenly spread.
        query_first: the question stands before the documents too.
        metric, scoring: `exact` is whether an answer stands in the first line of what is generated, after SQuAD's
            normalisation; `likelihood` and `perplexity`, by teacher forcing, are those of the first answer. Answers
            are free in their wording, so teacher forcing gives no `exact`.
        budget: tokens of a generation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["mdqa"] = "mdqa"
    file: str
    documents: int | None = Field(None, ge=0)
    length: int | None = Field(None, ge=1)
    contexts: int = Field(12, ge=1)
    questions: int | None = Field(None, ge=1)
    positions: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(None, min_length=1)
    query_first: bool = False
    metric: Literal["exact", "likelihood", "perplexity"] = "exact"
    scoring: Literal["generation", "teacher_forcing"] = "generation"
    budget: int = Field(100, ge=1)

    refused: ClassVar[tuple[tuple[str, str], ...]] = (("teacher_forcing", "exact"),)

    _moved: bool = PrivateAttr(False)

    @model_validator(mode="before")
    @classmethod
    def _scored_as_it_can_be(cls, data: Any) -> Any:
        return scored_as_it_can_be(data)

    @model_validator(mode="after")
    def _consistent(self) -> "MDQATask":
        if (self.length is None) == (self.documents is None):
            given = None if self.length is None else {"length": self.length, "documents": self.documents}
            raise TaskError("length, documents", given, "exactly one of length and documents")
        if self.questions is not None and self.positions is not None:
            raise TaskError("positions", self.positions, "either questions or positions")
        if self.positions is not None and len(set(self.positions)) < len(self.positions):
            raise TaskError("positions", self.positions, "each position once")
        check_metric(self.scoring, self.metric, self.refused)
        if self.documents == 0 and (self.positions or self.questions or self.query_first):
            raise TaskError("documents", 0, "at least 1 with positions, questions or query_first")
        if self.documents:
            self._positions(self.documents)
        return self

    def at_length(self, length: int | None, contexts: int | None = None) -> "MDQATask":
        """The same task at another length (None: as it is) and with another number of contexts.

        Fewer documents have fewer places: named positions become as many evenly spread ones. A closed book has none.
        """
        changes: dict[str, Any] = {} if contexts is None else {"contexts": contexts}
        if length is None or length == self.length or self.documents == 0:
            return self.model_copy(update=changes)
        changes |= {"length": length, "documents": None}
        if self.positions is not None:
            changes |= {"positions": None, "questions": len(self.positions)}
        task = self.model_copy(update=changes)
        task._moved = True
        return task

    def build(self, tokenizer: Any, seed: int, split: str) -> ExampleSet:
        """The examples of one split; the same for the same arguments and file on every machine.

        Raises:
            TaskError: the split is unknown, the file cannot be read, has too few rows or documents, or the length
                cannot be met.
        """
        most = self.length // FEWEST_TOKENS if self.documents is None else max(self.documents - 1, 0)
        rows, retrieved = rows_of(self.file, split, self.contexts, most, seed)
        limit = 1 + min(len(row.others) for row in rows)
        if self.documents is not None and self.documents > limit:
            raise TaskError("documents", self.documents, f"at most {limit}, those of a row of {self.file}")
        count = self._fit(tokenizer, rows, limit) if self.documents is None else self.documents
        examples, length = self._examples(tokenizer, rows, count)
        while self.length is not None and length > self.length:  # moving the gold document can change a merge
            count -= 1
            if count < 1:
                raise self._too_short(length)
            examples, length = self._examples(tokenizer, rows, count)
        notes = (NOT_COMPARABLE,) if not retrieved and count > 1 else ()
        return ExampleSet(self.task, split, seed, length, examples, notes)

    def _positions(self, documents: int) -> tuple[int, ...]:
        if self.positions is not None:
            if max(self.positions) >= documents:
                raise TaskError("positions", self.positions, f"0 to {documents - 1}: a context holds {documents}")
            return self.positions
        if self.questions is None:
            return published_positions(documents)
        if self.questions > documents:
            if self._moved:
                return tuple(range(documents))
            raise TaskError("questions", self.questions, f"at most {documents}, the documents of a context")
        return spread(self.questions, documents)

    def _fit(self, tokenizer: Any, rows: Sequence[QARow], limit: int) -> int:
        """The largest number of documents at which the prompt of every row fits in `length`."""

        def size(row: QARow, count: int) -> int:
            return longest(tokenizer, next(self._row_examples(row, count, (count - 1,))))

        best, high = 1, limit + 1
        while best < limit and size(rows[0], min(2 * best, limit)) <= self.length:
            best = min(2 * best, limit)
        for row in rows:  # `best` fits the rows before; the first may take up to twice as many
            low, high = 0, min(high, 2 * best)
            if size(row, best) <= self.length:
                if row is not rows[0]:
                    continue
                low = best
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if size(row, middle) <= self.length else (low, middle)
            if low == 0:
                raise self._too_short(max(size(other, 1) for other in rows))
            best = low
        if best == limit:
            filled = max(size(row, limit) for row in rows)
            if self.length - filled > filled / limit:
                allowed = f"at most {filled} tokens, all that the {limit} documents of a row of {self.file} can fill"
                raise TaskError("length", self.length, allowed)
        return best

    def _too_short(self, smallest: int) -> TaskError:
        return TaskError("length", self.length, f"at least {smallest} tokens, which one document needs")

    def _examples(self, tokenizer: Any, rows: Sequence[QARow], count: int) -> tuple[tuple[Example, ...], int]:
        positions = self._positions(count) if count else (None,)
        examples = tuple(example for row in rows for example in self._row_examples(row, count, positions))
        return examples, max(longest(tokenizer, example) for example in examples)

    def _row_examples(self, row: QARow, count: int, positions: Sequence[int | None]) -> Iterator[Example]:
        for position in positions:
            documents = [] if position is None else row.documents(count, position)
            question = Question(
                id=row.id if position is None else f"{row.id}/{position}",
                prompt=QUESTION.format(question=row.question),
                answer=f" {row.answers[0]}",
                references=row.answers,
                position=position,
                metric="mdqa",
                budget=self.budget if self.scoring == "generation" else None,
            )
            yield Example(row.id, context_of(documents, row.question if self.query_first else None), (question,))

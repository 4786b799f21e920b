"""Key-value retrieval: a JSON object of pairs, one key asked, the value expected (Liu et al., arXiv 2307.03172).

Prompt, pair order and query-aware variant are those of the official code, nelson-liu/lost-in-the-middle. There the
gold pair of a row is taken out and put back at each position under test, so every position costs a context of its
own (`protocol: official`). Here each question asks for the pair that already stands at its position. The pairs of a
row are drawn independently of their places, so the distribution of what the model sees is the same, and the questions
of a context share one prefill (`protocol: shared`).
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from fitness import forms, splits
from fitness.encoding import longest
from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet, Question
from fitness.modes import check_metric
from fitness.rows import GeneratedRow, Pair, Row, read_rows

INSTRUCTION = "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON data:\n"
KEY_LINE = '\n\nKey: "{key}"\nCorresponding value:'
ANSWERS = {  # what the prompt ends with, and what is expected to follow
    "quoted": ("", ' "{value}"'),
    "bare": ("", " {value}"),
    "opened": (' "', '{value}"'),
}
FEWEST_PAIRS = 2

Form = Annotated[str, Field(pattern=forms.PATTERN)]


def json_object(pairs: Sequence[Pair]) -> str:
    """The pairs as the official prompts write them, one a line."""
    return "{" + ",\n ".join(f'"{key}": "{value}"' for key, value in pairs) + "}"


def context_of(pairs: Sequence[Pair], asked: str | None = None) -> str:
    """Everything before the question. With `asked`, the question stands before the data as well (query-aware)."""
    if asked is None:
        return INSTRUCTION + json_object(pairs)
    before, after = INSTRUCTION.split("\n\n")
    return before + KEY_LINE.format(key=asked).rsplit("\n", 1)[0] + "\n\n" + after + json_object(pairs)


def spread(count: int, pairs: int) -> tuple[int, ...]:
    """`count` positions at even distances, the first and the last pair among them; a single one is the middle.

    Halves are rounded to even, which gives the published 0, 18, 37, 56, 74 for five of 75.
    """
    if count == 1:
        return ((pairs - 1) // 2,)
    return tuple(round(i * (pairs - 1) / (count - 1)) for i in range(count))


class KVTask(BaseModel):
    """Key-value retrieval as a campaign's `fitness:` section.

    Attributes:
        length: tokens of the longest prompt with its answer, in the model's own tokenizer: the context takes as many
            pairs as fit, the same number in all contexts. Either this or `pairs`.
        contexts: independently drawn objects.
        questions: how many positions are asked about, evenly spread from first to last, or "all". Or name `positions`.
        keys, values: uuid | words | hex1 to hex32; of generated data only. Keys are unique within a context; values
            are drawn independently of each other.
        query_first: the question stands before the data too. Each question then needs a context of its own.
        protocol: `shared` or `official`, see the module.
        file: official data, JSON lines or the same compressed with gzip, instead of generated pairs. The rows are
            dealt out to the splits, 4, 3, 2, 1 of ten to search, heldout, guard, validation.
        answer: what has to follow the prompt: ` "value"` (quoted), ` value` (bare), or `value"` behind a prompt that
            ends with the opening quote (opened). Under the official prompt SmolLM2-135M mostly writes no quotes, so
            `quoted` counts none of its answers; `opened` leaves a model no choice of style.
        metric: `exact` is the share of questions answered right; `likelihood` the mean over questions of the
            log-likelihood per answer token; `perplexity` the mean over all answer tokens, of which exp(−score) is the
            perplexity of the answers alone, as LongRoPE2 searches by on needles (arXiv 2502.20082).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["kv"] = "kv"
    length: int | None = Field(None, ge=1)
    pairs: int | None = Field(None, ge=FEWEST_PAIRS)
    contexts: int = Field(12, ge=1)
    questions: Annotated[int, Field(ge=1)] | Literal["all"] | None = None
    positions: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(None, min_length=1)
    keys: Form = "uuid"
    values: Form = "uuid"
    query_first: bool = False
    protocol: Literal["shared", "official"] = "shared"
    file: str | None = None
    answer: Literal["quoted", "bare", "opened"] = "quoted"
    metric: Literal["exact", "likelihood", "perplexity"] = "exact"
    scoring: Literal["teacher_forcing", "generation"] = "teacher_forcing"

    _moved: bool = PrivateAttr(False)

    @model_validator(mode="before")
    @classmethod
    def _ask_everything(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("questions") is None and data.get("positions") is None:
            return {**data, "questions": "all"}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> "KVTask":
        if (self.length is None) == (self.pairs is None):
            given = None if self.length is None else {"length": self.length, "pairs": self.pairs}
            raise TaskError("length, pairs", given, "exactly one of length and pairs")
        if self.questions is not None and self.positions is not None:
            raise TaskError("positions", self.positions, "either questions or positions")
        if self.positions is not None and len(set(self.positions)) < len(self.positions):
            raise TaskError("positions", self.positions, "each position once")
        check_metric(self.scoring, self.metric)
        if self.pairs is not None:
            self._positions(self.pairs)
            if self.file is None and self.pairs > forms.form(self.keys)[1]:
                raise TaskError("keys", self.keys, f"a form of at least {self.pairs} distinct values ({forms.ALLOWED})")
        return self

    def at_length(self, length: int | None, contexts: int | None = None) -> "KVTask":
        """The same task at another length (None: as it is) and with another number of contexts.

        A shorter context has fewer pairs: named positions become as many evenly spread ones, and no more questions
        are asked than there are pairs.
        """
        changes: dict[str, Any] = {} if contexts is None else {"contexts": contexts}
        if length is None or length == self.length:
            return self.model_copy(update=changes)
        changes |= {"length": length, "pairs": None}
        if self.positions is not None:
            changes |= {"positions": None, "questions": len(self.positions)}
        task = self.model_copy(update=changes)
        task._moved = True
        return task

    def build(self, tokenizer: Any, seed: int, split: str) -> ExampleSet:
        """The examples of one split; the same for the same arguments on every machine.

        Raises:
            TaskError: the split is unknown, the file cannot be read or has too few rows, or the length cannot be met.
        """
        rows = self._rows(seed, split)
        pairs = self.pairs or self._fit(tokenizer, rows)
        examples, length = self._examples(tokenizer, rows, pairs)
        while self.length is not None and length > self.length:  # moving a gold pair can change a merge
            pairs -= 1
            if pairs < FEWEST_PAIRS:
                raise self._too_short(length)
            examples, length = self._examples(tokenizer, rows, pairs)
        return ExampleSet(self.task, split, seed, length, examples)

    def _rows(self, seed: int, split: str) -> list[Row]:
        splits.check(split)
        if self.file is None:
            keys, values = forms.form(self.keys), forms.form(self.values)
            return [GeneratedRow(f"{split}-{i}", (seed, split, i), keys, values) for i in range(self.contexts)]
        held = {i: row for i, row in enumerate(read_rows(self.file)) if splits.holds(split, i)}
        if len(held) < self.contexts:
            raise TaskError("contexts", self.contexts, f"at most {len(held)}, the rows of {self.file} in split {split}")
        rows: list[Row] = [held[i] for i in splits.sample(list(held), self.contexts, seed, split)]
        fewest = min(row.limit for row in rows)
        if self.pairs is not None and self.pairs > fewest:
            raise TaskError("pairs", self.pairs, f"at most {fewest}, the pairs of a row of {self.file}")
        return rows

    def _positions(self, pairs: int) -> tuple[int, ...]:
        if self.positions is not None:
            if max(self.positions) >= pairs:
                raise TaskError("positions", self.positions, f"0 to {pairs - 1}: a context holds {pairs} pairs")
            return self.positions
        if self.questions == "all":
            return tuple(range(pairs))
        if self.questions > pairs:
            if self._moved:
                return tuple(range(pairs))
            raise TaskError("questions", self.questions, f"at most {pairs}, the pairs of a context")
        return spread(self.questions, pairs)

    def _fit(self, tokenizer: Any, rows: Sequence[Row]) -> int:
        """The largest number of pairs at which the longest question of every row fits in `length`."""
        limit = min(row.limit for row in rows)
        if limit < FEWEST_PAIRS:
            raise TaskError("keys", self.keys, f"a form of at least {FEWEST_PAIRS} distinct values ({forms.ALLOWED})")

        def size(row: Row, pairs: int) -> int:
            return longest(tokenizer, self._probe(tokenizer, row, pairs))

        best = FEWEST_PAIRS
        while best < limit and size(rows[0], best) <= self.length:
            best = min(2 * best, limit)
        for row in rows:  # most rows hold as many pairs as the rows before, or one or two fewer
            low, high, step = best, best + 1, 1
            while size(row, low) > self.length:
                if low == FEWEST_PAIRS:
                    raise self._too_short(size(row, low))
                low, high, step = max(low - step, FEWEST_PAIRS), low, 2 * step
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if size(row, middle) <= self.length else (low, middle)
            best = low
        if best == limit:
            filled = max(size(row, limit) for row in rows)
            if self.length - filled > filled / limit:
                source = self.file or f"{limit} distinct keys of the form {self.keys}"
                raise TaskError("length", self.length, f"at most {filled} tokens, all that {source} can fill")
        return best

    def _too_short(self, smallest: int) -> TaskError:
        return TaskError("length", self.length, f"at least {smallest} tokens, which {FEWEST_PAIRS} pairs need")

    def _probe(self, tokenizer: Any, row: Row, pairs: int) -> Example:
        """An example of the row whose longest question is the longest that could be asked."""
        everything = range(pairs)
        if self.protocol == "shared" and not self.query_first:
            return Example(row.id, context_of(row.pairs(pairs)), self._questions(row, row.pairs(pairs), everything))
        if self.protocol == "official":
            return next(self._row_examples(row, pairs, (pairs - 1,)))
        sizes = [len(ids) for ids in tokenizer([f'"{k}": "{v}"' for k, v in row.pairs(pairs)]).input_ids]
        return next(self._row_examples(row, pairs, (sizes.index(max(sizes)),)))

    def _examples(self, tokenizer: Any, rows: Sequence[Row], pairs: int) -> tuple[tuple[Example, ...], int]:
        positions = self._positions(pairs)
        examples = tuple(example for row in rows for example in self._row_examples(row, pairs, positions))
        return examples, max(longest(tokenizer, example) for example in examples)

    def _row_examples(self, row: Row, pairs: int, positions: Sequence[int]) -> Iterator[Example]:
        if self.protocol == "shared" and not self.query_first:
            records = row.pairs(pairs)
            yield Example(row.id, context_of(records), self._questions(row, records, positions))
            return
        for position in positions:
            records = row.pairs(pairs) if self.protocol == "shared" else row.with_gold_at(position, pairs)
            asked = records[position][0] if self.query_first else None
            yield Example(row.id, context_of(records, asked), self._questions(row, records, (position,)))

    def _questions(self, row: Row, records: Sequence[Pair], positions: Sequence[int]) -> tuple[Question, ...]:
        opening, answer = ANSWERS[self.answer]
        return tuple(
            Question(
                id=f"{row.id}/{position}",
                prompt=KEY_LINE.format(key=records[position][0]) + opening,
                answer=answer.format(value=records[position][1]),
                references=(records[position][1],),
                position=position,
                lead=opening,
            )
            for position in positions
        )

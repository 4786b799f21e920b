"""A task of InfiniteBench as a campaign's `fitness:` section."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fitness import splits
from fitness.encoding import longest
from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet, Question
from fitness.generation import MARGIN
from fitness.infinitebench.formats import FORMATS, RETRIEVAL, Asked, Format, Name, lead
from fitness.infinitebench.generated import MAKERS, QUESTIONS, Made
from fitness.infinitebench.rows import contexts, units_of
from fitness.infinitebench.truncation import beginning, middle_cut
from fitness.largest import largest
from fitness.modes import check_metric, scored_as_it_can_be


class InfiniteBenchTask(BaseModel):
    """One of the twelve tasks, from its file or made at any length.

    Attributes:
        name: of the task, as its file is called.
        file: its JSON lines, plain or gzip, or a folder with those of all tasks under their names, as published:
            `passkey.jsonl`. Without one the context is made, where the task allows (`MAKERS`).
        length: tokens of context, prompt and budget (or answer, in teacher forcing), in the model's own tokenizer.
            A context of a file loses its middle where it is longer; a made one takes as many units as fit.
        contexts: different ones. Of a file, they are dealt out to the splits, 4, 3, 2, 1 of ten to search, heldout,
            guard, validation, each with its questions.
        questions: at most so many of each context; None is all that a file has, and of made key-value data five.
        metric, scoring: `exact` by generation is the task's own metric; which others are allowed depends on how far
            an answer is free, see `formats.Format`.
        budget: tokens of a generation. As published where none is given, but never fewer than a short answer takes;
            math_calc, published with 30,000, takes no more than its answer and a margin.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["infinitebench"] = "infinitebench"
    name: Name
    file: str | None = None
    length: int = Field(ge=1)
    contexts: int = Field(12, ge=1)
    questions: int | None = Field(None, ge=1)
    metric: Literal["exact", "likelihood", "perplexity"] = "exact"
    scoring: Literal["generation", "teacher_forcing"] = "generation"
    budget: int | None = Field(None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _scored_as_it_can_be(cls, data: Any) -> Any:
        return scored_as_it_can_be(data)

    @model_validator(mode="after")
    def _consistent(self) -> "InfiniteBenchTask":
        check_metric(self.scoring, self.metric, self.format.refused)
        if self.file is None and self.name not in MAKERS:
            raise TaskError("file", None, f"the JSON lines of {self.name}")
        if self.file is None and self.questions not in (None, 1) and not MAKERS[self.name].several:
            raise TaskError("questions", self.questions, f"1 of a made context of {self.name}")
        return self

    @property
    def format(self) -> Format:
        return FORMATS[self.name]

    def at_length(self, length: int | None, contexts: int | None = None) -> "InfiniteBenchTask":
        """The same task at another length or with another number of contexts; None leaves either as it is."""
        return self.model_copy(update={"length": length or self.length, "contexts": contexts or self.contexts})

    def build(self, tokenizer: Any, seed: int, split: str) -> ExampleSet:
        """The examples of one split; the same for the same arguments and file on every machine.

        Raises:
            TaskError: the split is unknown, the file cannot be read or has too few contexts, the length cannot be met,
                or the tokenizer does not know its tokens' places in a text that has to be cut.
        """
        splits.check(split)
        if self.file is None:
            examples, length = self._made(tokenizer, seed, split)
            return ExampleSet(f"{self.task} {self.name}", split, seed, length, tuple(examples))
        examples, length, notes = self._read(tokenizer, seed, split)
        return ExampleSet(f"{self.task} {self.name}", split, seed, length, tuple(examples), notes)

    def _made(self, tokenizer: Any, seed: int, split: str) -> tuple[list[Example], int]:
        """The examples, each with as many units as fit, and the length of the longest."""
        maker = MAKERS[self.name]
        examples: list[Example] = []
        start, filled = maker.fewest, 0
        for i in range(self.contexts):
            label = (seed, "infinitebench", split, self.name, i)
            tried: dict[int, tuple[list[Example], int]] = {}

            def size(units: int, i: int = i, label: Any = label, tried: Any = tried) -> int:
                made: Made = maker.make(units, i, self.questions or QUESTIONS, label)
                found = self._examples(tokenizer, f"{split}-{i}", made.context, made.questions, made.positions)
                tried[units] = found, max(longest(tokenizer, example) for example in found)
                return tried[units][1]

            units = largest(size, self.length, maker.fewest, maker.most, start)
            if units is None:
                allowed = f"at least {tried[maker.fewest][1]} tokens, which {maker.fewest} {maker.unit} need"
                raise TaskError("length", self.length, allowed)
            found, tokens = tried[units]
            if units == maker.most:
                raise TaskError("length", self.length, f"at most {tokens} tokens, {units} different {maker.unit}")
            start, filled = units, max(filled, tokens)
            examples += found
        return examples, filled

    def _read(self, tokenizer: Any, seed: int, split: str) -> tuple[list[Example], int, tuple[str, ...]]:
        """The examples, cut to the length, that of the longest, and what was lost."""
        file = self._path()
        units = units_of(file, self.name, split, self.contexts, self.questions, seed)
        built: dict[int, list[Example]] = {}
        cut = lost = length = 0
        for unit, context in contexts(file, self.name, units):
            whole = self._examples(tokenizer, f"context-{unit.number}", context, unit.questions)
            fitted, sizes = zip(*(self._fitted(tokenizer, example) for example in whole), strict=True)
            length = max(length, *sizes)
            cut += any(one is not other for one, other in zip(fitted, whole, strict=True))
            if self.name in RETRIEVAL:
                lost += sum(_lost(*pair) for pair in zip(whole, fitted, strict=True))
            built[unit.number] = list(fitted)
        notes = []
        if cut:
            notes.append(f"{self.name}: {cut} of {len(units)} contexts lost their middle to fit {self.length} tokens")
        if lost:
            notes.append(f"{self.name}: {lost} answers stood in what was cut, and cannot be found")
        return [example for unit in units for example in built[unit.number]], length, tuple(notes)

    def _path(self) -> str:
        folder = Path(self.file)
        if not folder.is_dir():
            return self.file
        named = [folder / f"{self.name}.jsonl{end}" for end in ("", ".gz")]
        found = [path for path in named if path.exists()]
        if not found:
            raise TaskError("file", self.file, f"a folder with {named[0].name} or {named[1].name}, or the file itself")
        return str(found[0])

    def _examples(
        self,
        tokenizer: Any,
        name: str,
        context: str,
        questions: Sequence[Asked],
        positions: Sequence[int | None] | None = None,
    ) -> list[Example]:
        """The questions of a context: together where what precedes it is the same, else each with its own."""
        positions = positions or [None] * len(questions)
        together: dict[str, list[Question]] = {}
        for number, (asked, position) in enumerate(zip(questions, positions, strict=True)):
            before, after = self.format.render(context, asked)
            answer = self.format.gold(asked)
            if not after[-1:].isspace() and self.name != "longbook_qa_chn":  # Chinese is written without spaces
                answer = " " + answer
            budget = None
            if self.scoring == "generation":
                budget = self._budget(tokenizer, answer)
                answer = beginning(tokenizer, answer, budget)  # no more of it is ever compared with a generation
            metric = f"infinitebench_{self.name}"
            question = Question(
                f"{name}/{number}", after, answer, asked.references, position, metric, budget, lead(after)
            )
            together.setdefault(before, []).append(question)
        return [Example(name, before, tuple(asked)) for before, asked in together.items()]

    def _budget(self, tokenizer: Any, answer: str) -> int:
        if self.budget is not None:
            return self.budget
        published, kind = self.format.budget, self.format.kind
        if kind not in ("short", "list"):
            return published
        needed = len(tokenizer(answer, add_special_tokens=False, verbose=False).input_ids)
        return max(published, needed) if kind == "short" else min(published, needed + MARGIN)

    def _fitted(self, tokenizer: Any, example: Example) -> tuple[Example, int]:
        """The example with the middle of its context cut out, as far as its longest question needs it; its tokens."""
        if not tokenizer.is_fast and (size := longest(tokenizer, example)) <= self.length:
            return example, size
        prompts, answers = ([getattr(q, of) for q in example.questions] for of in ("prompt", "answer"))
        asked, answered = (list(map(len, tokenizer(texts).input_ids)) for texts in (prompts, answers))
        reaches = [max(count, q.budget or 0) for count, q in zip(answered, example.questions, strict=True)]
        most = max(range(len(prompts)), key=lambda i: asked[i] + reaches[i])
        prompt, spare = prompts[most], reaches[most]
        text, room = example.context + prompt, self.length - spare
        while (places := middle_cut(tokenizer, text, room, len(prompt))) is not None:
            front, back = places
            fitted = example
            if back < len(text):
                fitted = replace(example, context=text[:front] + example.context[back:])
            size = longest(tokenizer, fitted)
            if size <= self.length:
                return fitted, size
            room -= size - self.length
        needed = asked[most] + spare
        raise TaskError("length", self.length, f"more than {needed} tokens, which the question and its answer take")


def _lost(whole: Example, fitted: Example) -> int:
    """Questions whose answer was in the context and is no more."""
    answers = [question.references[0] for question in whole.questions]
    return sum(answer in whole.context and answer not in fitted.context for answer in answers)

"""Several tasks as one fitness: weighted, at several lengths, brought to 0–1 (`measures.py` says how).

A search on one task finds what is good for that task. A composite says in one number what is wanted of the model as a
whole: retrieval at the target length and at half of it, say, without a loss of perplexity.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fitness import splits
from fitness.errors import TaskError
from fitness.examples import Example, ExampleSet
from fitness.measures import SEPARATOR, CompositeMeasure, MeasuredPart
from fitness.tasks import SIZES, Fitness, Task

Length = Annotated[int, Field(ge=2)]


class Part(BaseModel):
    """One task of a composite.

    Attributes:
        of: the task, as it would stand alone.
        weight: relative to the other parts'.
        lengths: tokens, at each of which the task is asked, with equal shares of the weight; by default its own
            length, or the composite's.
        name: that its numbers are reported under; by default the task's.
        scale: worst and best value of the task's metric, which become 0 and 1; values beyond are cut off.
        direction: of the task's metric, as it counts here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: Fitness
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    lengths: tuple[Length, ...] | None = Field(None, min_length=1)
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    scale: tuple[float, float] | None = None
    direction: Literal["maximise", "minimise"] = "maximise"

    @model_validator(mode="before")
    @classmethod
    def _names_and_lengths(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("of"), dict):
            return data
        of, lengths = dict(data["of"]), data.get("lengths")
        if isinstance(lengths, (list, tuple)) and lengths and all(isinstance(n, int) for n in lengths):
            if of.get("length") not in (None, max(lengths)):
                raise TaskError("lengths", list(lengths), "either lengths or of.length")
            of["length"] = max(lengths)
        return {**data, "of": of, "name": data.get("name") or of.get("task")}

    @model_validator(mode="after")
    def _consistent(self) -> "Part":
        if self.lengths is not None and len(set(self.lengths)) < len(self.lengths):
            raise TaskError("lengths", list(self.lengths), "each length once")
        if self.scale is not None and not self.scale[0] < self.scale[1]:
            raise TaskError("scale", list(self.scale), "[worst, best] of a metric of which larger is better")
        return self


@dataclass(frozen=True)
class Variant:
    """A part at one of its lengths."""

    task: Task
    measured: MeasuredPart

    @property
    def name(self) -> str:
        return self.measured.name


class CompositeTask(BaseModel):
    """A weighted sum of tasks as a campaign's `fitness:` section.

    Attributes:
        parts: the tasks.
        length: tokens of parts that name none, and the most that any may name; by default the target length.
        direction: of the composite's score, 0 to 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["composite"] = "composite"
    length: Length | None = None
    parts: tuple[Part, ...] = Field(min_length=1)
    direction: Literal["maximise"] = "maximise"
    metric: Literal["composite"] = "composite"
    scoring: Literal["mixed"] = "mixed"

    @model_validator(mode="before")
    @classmethod
    def _default_length(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("parts"), (list, tuple)) or not data.get("length"):
            return data
        return {**data, "parts": [_with_length(part, data["length"]) for part in data["parts"]]}

    @model_validator(mode="after")
    def _consistent(self) -> "CompositeTask":
        names = [part.name for part in self.parts]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise TaskError("parts", twice, "parts of different names: give one of them a `name`")
        for i, part in enumerate(self.parts):
            longest = max(part.lengths or (part.of.length or 0,))
            if self.length is not None and longest > self.length:
                raise TaskError(f"parts.{i}.lengths", longest, f"at most {self.length}, the length of the composite")
        return self

    def at_length(self, length: int | None, contexts: int | None = None) -> "CompositeTask":
        """The same tasks, all of them at one length alone (None, or the composite's own: as they are)."""
        same = length is None or length == self.length
        parts = tuple(
            part.model_copy(
                update={
                    "of": part.of.at_length(None if same else length, contexts),
                    "lengths": part.lengths if same else (length,),
                }
            )
            for part in self.parts
        )
        return self.model_copy(update={"parts": parts, "length": self.length if same else length})

    def variants(self) -> tuple[Variant, ...]:
        """Every part at each of its lengths, with its share of the score."""
        total = sum(part.weight for part in self.parts)
        return tuple(
            Variant(
                task,
                MeasuredPart(
                    part.name if task.length is None else f"{part.name}@{task.length}",
                    task.metric,
                    task.scoring,
                    part.weight / total / len(part.lengths or (None,)),
                    part.scale,
                    part.direction,
                ),
            )
            for part in self.parts
            for task in ([part.of.at_length(n) for n in part.lengths] if part.lengths else [part.of])
        )

    @property
    def measure(self) -> CompositeMeasure:
        return CompositeMeasure(tuple(variant.measured for variant in self.variants()))

    def build(self, tokenizer: Any, seed: int, split: str) -> ExampleSet:
        """The examples of all parts; the same for the same arguments.

        Raises:
            TaskError: a part cannot be built; the field begins with its name.
        """
        return self.combine(
            {v.name: _built(v, tokenizer, part_seed(seed, v.name), split) for v in self.variants()}, seed, split
        )

    def combine(self, sets: dict[str, ExampleSet], seed: int, split: str) -> ExampleSet:
        """One set of those of the variants, by name; ids begin with the name of the variant."""
        examples = tuple(example for name, found in sets.items() for example in _named(name, found))
        notes = tuple(f"{name}: {note}" for name, found in sets.items() for note in found.notes)
        return ExampleSet(self.task, split, seed, max(s.length for s in sets.values()), examples, notes)


def part_seed(seed: int, name: str) -> int:
    """Of one variant: without a seed of its own, a context at 512 tokens would begin the one at 1,024."""
    return splits.draw(seed, "part", name) >> 193


def _built(variant: Variant, tokenizer: Any, seed: int, split: str) -> ExampleSet:
    try:
        return variant.task.build(tokenizer, seed, split)
    except TaskError as error:
        raise TaskError(f"{variant.name}.{error.field}", error.value, error.allowed) from error


def _named(name: str, found: ExampleSet) -> Iterator[Example]:
    for example in found.examples:
        questions = tuple(replace(q, id=f"{name}{SEPARATOR}{q.id}") for q in example.questions)
        yield replace(example, id=f"{name}{SEPARATOR}{example.id}", questions=questions)


def _with_length(part: Any, length: Any) -> Any:
    of = part.get("of") if isinstance(part, dict) else None
    if not isinstance(of, dict) or part.get("lengths") or any(of.get(size) is not None for size in SIZES):
        return part
    return {**part, "of": {**of, "length": length}}


# What a campaign's `fitness:` section may be: any task alone, or several of them together.
Goal = Annotated[Union[(*get_args(get_args(Fitness)[0]), CompositeTask)], Field(discriminator="task")]

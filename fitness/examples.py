"""Examples as values: plain frozen data, so that every candidate, process and machine scores the same texts.

An `Example` is one context with all the questions asked about it, because the context is what costs: it is run through
the model once, then every question is scored over its cache.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fitness.errors import TaskError
from fitness.metrics import METRICS
from ropewalk.errors import nearest


@dataclass(frozen=True)
class Question:
    """What is asked after a context.

    Attributes:
        id: unique in its set.
        prompt: the text that follows the context.
        answer: the gold continuation for teacher forcing, with its leading space and quotes.
        references: texts that a generated output is compared with, as `metric` does.
        position: index of the gold pair in its context; None where the task has no such thing.
        metric: a name in `fitness.metrics.METRICS`, what a generated output scores.
        budget: tokens that a generation may take; None is those of the gold answer and a margin.
        lead: the end of `prompt` that already belongs to the answer, as an opening quote does: under a chat template it
            stands in the model's own turn.
        ids: of everything before the answer, and of the answer, where the text alone does not give them: windows of a
            document are cut from its own tokens.

    Raises:
        TaskError: the metric is not known, or the budget is not positive.
    """

    id: str
    prompt: str
    answer: str
    references: tuple[str, ...]
    position: int | None
    metric: str = "contains_any"
    budget: int | None = None
    lead: str = ""
    ids: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise TaskError("metric", self.metric, nearest(self.metric, METRICS))
        if self.budget is not None and self.budget < 1:
            raise TaskError("budget", self.budget, "at least 1 token")
        if not self.prompt.endswith(self.lead):
            raise TaskError("lead", self.lead, f"the end of the prompt {self.prompt[-40:]!r}")


@dataclass(frozen=True)
class Example:
    """A context and its questions.

    `id` names the data that was drawn. Variants of the same data (the gold pair moved to another place, another
    question in front) are separate examples that share it: they are not independent, so statistics resample by `id`.
    """

    id: str
    context: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class ExampleSet:
    """All examples of one split of a task.

    Attributes:
        length: tokens of the longest context + prompt + answer (or the budget of a generation, if it is more),
            measured with the model's tokenizer.
        notes: what a reader of the scores must know of these examples: why they do not compare with published
            numbers, what was left out by request.
    """

    task: str
    split: str
    seed: int
    length: int
    examples: tuple[Example, ...]
    notes: tuple[str, ...] = ()

    @property
    def num_questions(self) -> int:
        return sum(len(example.questions) for example in self.examples)

    @property
    def num_contexts(self) -> int:
        """Independently drawn contexts: the number of units that a bootstrap resamples."""
        return len({example.id for example in self.examples})

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the whole content as canonical JSON; `ADDED` fields count only where they are set."""
        content = asdict(self, dict_factory=_content)
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def slice(self, start: int, stop: int) -> tuple[Example, ...]:
        """Examples `start` to `stop`, which is how a request names its share of the work.

        Raises:
            IndexError: the set does not hold them all.
        """
        if not 0 <= start <= stop <= len(self.examples):
            raise IndexError(f"examples {start} to {stop} of a set of {len(self.examples)}")
        return self.examples[start:stop]


# Fields that came later, with their defaults: sets made before have the same names as ever.
ADDED = {"metric": "contains_any", "budget": None, "ids": None, "notes": ()}


def _content(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    kept = ((name, value) for name, value in fields if name != "lead")  # a piece of the prompt, which is there whole
    return {name: value for name, value in kept if name not in ADDED or value != ADDED[name]}

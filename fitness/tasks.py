"""The tasks by name: what a campaign's `fitness:` section may say."""

from typing import Annotated, Any, Protocol

from pydantic import Field

from fitness.examples import ExampleSet
from fitness.infinitebench.task import InfiniteBenchTask
from fitness.kv import KVTask
from fitness.mdqa import MDQATask
from fitness.niah import NIAHTask
from fitness.perplexity import PerplexityTask
from fitness.ruler import RulerTask


class Task(Protocol):
    """A described task. `metric` names one of `fitness.scoring.METRICS`, `scoring` one of its `SCORINGS`."""

    task: str
    length: int | None
    contexts: int
    metric: str
    scoring: str

    def build(self, tokenizer: Any, seed: int, split: str) -> ExampleSet:
        """The examples of a split: search, heldout, guard or validation."""

    def at_length(self, length: int | None, contexts: int | None = None) -> "Task":
        """The same task at another length, for a guard or a length sweep."""


SIZES = ("length", "pairs", "documents")  # fields that say how large a context is; a task has one or two of them

TASKS: dict[str, type[Task]] = {
    "infinitebench": InfiniteBenchTask,
    "kv": KVTask,
    "mdqa": MDQATask,
    "niah": NIAHTask,
    "perplexity": PerplexityTask,
    "ruler": RulerTask,
}

Fitness = Annotated[
    InfiniteBenchTask | KVTask | MDQATask | NIAHTask | PerplexityTask | RulerTask, Field(discriminator="task")
]

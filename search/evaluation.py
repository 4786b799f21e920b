"""What `ropewalk evaluate` is asked to do, read strictly and checked before a model is loaded.

Examples are of the split `heldout`, which no search sees: of a file or text the part that the searches of campaigns
leave alone, of generated data a stream of its own. They are drawn for this purpose, so that a profile chosen by a
campaign's own held-out report is measured here on other data again, unless the data are few enough to meet.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fitness.building import build
from fitness.chat import ChatTemplate, chosen, under_template
from fitness.errors import TaskError
from fitness.examples import ExampleSet
from fitness.store import ExampleStore
from fitness.tasks import SIZES, TASKS, Fitness, Task
from ropewalk import ModelShape, Profile
from search import task_argument
from search.complaints import explain
from search.errors import CampaignError
from search.profile_argument import ProfileArgument, read
from search.seeds import derive
from search.task_argument import TaskArgument
from workers.loading import load_tokenizer, read_shape
from workers.spec import ModelSpec

UNCHANGED = "unchanged model"


class Request(BaseModel):
    """An evaluation as it is asked for.

    Attributes:
        tasks: each at the longest of the lengths.
        lengths: tokens, increasing; empty where the tasks name their own sizes.
        target_length: N in tokens of profiles that do not carry their own; by default the longest length.
        profiles: as `search.profile_argument` reads them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelSpec
    tasks: tuple[Fitness, ...] = Field(min_length=1)
    lengths: tuple[int, ...] = ()
    target_length: int | None = Field(None, ge=2)
    profiles: tuple[str, ...] = ()
    seed: int = Field(0, ge=0, lt=2**63)


@dataclass(frozen=True)
class Asked:
    """A validated request, and the arguments that its tasks come from.

    Attributes:
        left_out: tasks of `all` or a family that need data of the user's, by name, with what each of them needs.
    """

    request: Request
    arguments: tuple[TaskArgument, ...]
    left_out: dict[str, str]


@dataclass(frozen=True)
class Measured:
    """One task at one length: the examples that every profile answers there."""

    name: str
    asked: int | None
    task: Task
    examples: ExampleSet

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "metric": self.task.metric,
            "scoring": self.task.scoring,
            "length": self.examples.length,
            "asked_length": self.asked,
            "contexts": self.examples.num_contexts,
            "n": self.examples.num_questions,
            "split": self.examples.split,
            "seed": self.examples.seed,
            "hash": self.examples.hash,
            "chat_template": "on" if under_template(self.examples) else "off",
            "notes": list(self.examples.notes),
        }


@dataclass(frozen=True)
class Prepared:
    """An evaluation whose examples and profiles are known.

    Attributes:
        sets: by length, then in the order that the tasks were given.
        profiles: the unchanged model first.
        left_out: tasks of `all` or a family that need data of the user's or another length, by name, with what each of
            them needs.
    """

    request: Request
    shape: ModelShape
    target_length: int
    sets: tuple[Measured, ...]
    profiles: tuple[ProfileArgument, ...]
    left_out: dict[str, str]


def request(
    model: dict[str, Any],
    tasks: Sequence[str],
    *,
    profiles: Sequence[str] = (),
    lengths: Sequence[int] = (),
    contexts: int | None = None,
    target_length: int | None = None,
    seed: int = 0,
) -> Asked:
    """Validate what was asked for.

    Args:
        model: fields of `ModelSpec`.
        tasks: as `search.task_argument` reads them.
        contexts: instead of each task's own number.

    Raises:
        CampaignError, TaskError: a task, a length or another value is wrong; names it and what is allowed.
    """
    lengths = sorted(lengths)
    for length in lengths:
        if length < 2 or lengths.count(length) > 1:
            raise CampaignError("--length", length, "each length once, at least 2 tokens")
    given = task_argument.read(tasks)
    for argument in given:
        if argument.optional and not (lengths or any(argument.fields.get(size) is not None for size in SIZES)):
            raise CampaignError("--length", None, f"a length with --task {argument.text}")
        if lengths:
            argument.fields["length"] = lengths[-1]
        if contexts is not None:
            argument.fields["contexts"] = contexts
    data = {"model": model, "lengths": lengths, "profiles": list(profiles), "seed": seed}
    data["target_length"] = target_length
    kept, left_out = [], {}
    for argument in given:
        if argument.optional and (missing := _missing(argument.fields)):
            left_out[argument.name] = missing
        else:
            kept.append(argument)
    if not kept:
        needs = "; ".join(f"{name} needs {missing}" for name, missing in left_out.items())
        raise CampaignError("--task", ", ".join(tasks), f"at least one task that can be made: {needs}")
    try:
        asked = Request.model_validate({**data, "tasks": [argument.fields for argument in kept]})
    except ValidationError as error:
        found = explain(error, Request)
        raise CampaignError(_flag(found.field, kept), found.value, found.allowed) from error
    return Asked(asked, tuple(kept), left_out)


def _missing(fields: dict[str, Any]) -> str | None:
    """What a task requires that its fields do not name; None where nothing is missing."""
    try:
        TASKS[fields["task"]].model_validate(fields)
    except ValidationError as error:
        found = explain(error, TASKS[fields["task"]])
        return f"{found.field}: {found.allowed}" if found.value is None else None
    return None


def _flag(field: str, tasks: Sequence[TaskArgument]) -> str:
    """The option of the command line that a field comes from; which task's, where there are several."""
    section, _, inside = field.partition(".")
    if section == "model":
        return "--model" if inside in ("", "id") else "--" + inside.replace("_", "-")
    if section == "tasks":
        number, _, inside = inside.partition(".")
        of = f" of {tasks[int(number)].name}" if len(tasks) > 1 else ""
        return (f"--{inside}" if inside in ("length", "contexts") else f"--task.{inside}".rstrip(".")) + of
    return "--" + section.replace("_", "-")


def prepare(
    asked: Asked,
    tell: Callable[[Measured, float], None] = lambda measured, seconds: None,
    store: ExampleStore | None = None,
) -> Prepared:
    """Read the model's configuration and tokenizer, build the examples of every task and length, read every profile.

    Args:
        store: of example sets that were built before.
        tell: gets each example set when it is built, and the seconds that it took.

    Raises:
        ModelError: the model cannot be found or is not a causal language model.
        TaskError: the examples cannot be built, or a chat template is asked for and there is none.
        ProfileError: a profile is malformed, or the model has no rotary embedding. Whether a profile fits the model
            is found out when its row is measured.
    """
    request = asked.request
    shape = read_shape(request.model)
    longest = max(request.lengths[-1:] or [task.length for task in request.tasks if task.length] or [0])
    target = request.target_length or longest or shape.trained_length
    arguments = [read(text, shape, target) for text in request.profiles]
    names = [UNCHANGED, *(argument.text for argument in arguments)]
    for name in names:
        if names.count(name) > 1:
            raise CampaignError("--profile", name, "each profile once, under a name of its own")
    tokenizer = load_tokenizer(request.model)
    try:
        template = chosen(request.model.chat_template, request.model.called, tokenizer)
    except TaskError as error:
        raise CampaignError(_flag(f"model.{error.field}", asked.arguments), error.value, error.allowed) from error
    sets, left_out = [], dict(asked.left_out)
    for length in request.lengths or (None,):
        for i, argument in enumerate(asked.arguments):
            begin = time.perf_counter()
            try:
                sets.append(_measured(asked, i, tokenizer, length, template, store))
            except CampaignError as error:
                if not (argument.optional and error.field.startswith("--length")):
                    raise
                left_out[argument.name if length is None else f"{argument.name} at {length} tokens"] = error.allowed
            else:
                tell(sets[-1], time.perf_counter() - begin)
    if not sets:
        needs = "; ".join(f"{name} needs {needed}" for name, needed in left_out.items())
        raise CampaignError("--length", list(request.lengths), f"a length that some task can fill: {needs}")
    unchanged = ProfileArgument(UNCHANGED, lambda: Profile.identity(shape, target))
    return Prepared(request, shape, target, tuple(sets), (unchanged, *arguments), left_out)


def _measured(
    asked: Asked,
    number: int,
    tokenizer: Any,
    length: int | None,
    template: ChatTemplate | None,
    store: ExampleStore | None,
) -> Measured:
    task = asked.request.tasks[number]
    task = task if length is None else task.at_length(length)
    seed = derive(asked.request.seed, "evaluate", str(task.length))
    try:
        examples = build(task, tokenizer, seed, "heldout", template=template, store=store)
    except TaskError as error:
        field = _flag(f"tasks.{number}.{error.field}", asked.arguments)
        raise CampaignError(field, error.value, error.allowed) from error
    return Measured(asked.arguments[number].name, task.length, task, examples)


def row_key(fingerprint: str, profile: Profile, examples: ExampleSet, scoring: str) -> str:
    """Of one row at one length: the same exactly when measuring again would give the same scores."""
    parts = [fingerprint, profile.hash, examples.hash, scoring]
    return hashlib.sha256("/".join(parts).encode()).hexdigest()

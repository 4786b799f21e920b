"""What `ropewalk evaluate` is asked to do, read strictly and checked before a model is loaded.

Examples are of the split `heldout`, which no search sees: of a file or text the part that the searches of campaigns
leave alone, of generated data a stream of its own. They are drawn for this purpose, so that a profile chosen by a
campaign's own held-out report is measured here on other data again, unless the data are few enough to meet.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fitness.errors import TaskError
from fitness.examples import ExampleSet
from fitness.tasks import TASKS, Fitness, Task
from ropewalk import ModelShape, Profile
from ropewalk.errors import nearest
from search.complaints import explain
from search.errors import CampaignError
from search.profile_argument import ProfileArgument, read
from search.seeds import derive
from search.written import fields_of
from workers.loading import load_tokenizer, read_shape
from workers.spec import ModelSpec

UNCHANGED = "unchanged model"


class Request(BaseModel):
    """An evaluation as it is asked for.

    Attributes:
        fitness: the task at the longest of the lengths.
        lengths: tokens, increasing; empty where the task names its own size.
        target_length: N in tokens of profiles that do not carry their own; by default the longest length.
        profiles: as `search.profile_argument` reads them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelSpec
    fitness: Fitness
    lengths: tuple[int, ...] = ()
    target_length: int | None = Field(None, ge=2)
    profiles: tuple[str, ...] = ()
    seed: int = Field(0, ge=0, lt=2**63)


@dataclass(frozen=True)
class Measured:
    """One length of an evaluation: the examples that every profile answers there."""

    asked: int | None
    task: Task
    examples: ExampleSet

    def to_dict(self) -> dict[str, Any]:
        return {
            "length": self.examples.length,
            "asked_length": self.asked,
            "contexts": self.examples.num_contexts,
            "n": self.examples.num_questions,
            "split": self.examples.split,
            "seed": self.examples.seed,
            "hash": self.examples.hash,
        }


@dataclass(frozen=True)
class Prepared:
    """An evaluation whose examples and profiles are known. `profiles` begins with the unchanged model."""

    request: Request
    shape: ModelShape
    target_length: int
    lengths: tuple[Measured, ...]
    profiles: tuple[ProfileArgument, ...]


def request(
    model: dict[str, Any],
    task: str,
    *,
    profiles: Sequence[str] = (),
    lengths: Sequence[int] = (),
    contexts: int | None = None,
    target_length: int | None = None,
    seed: int = 0,
) -> Request:
    """Validate what was asked for.

    Args:
        model: fields of `ModelSpec`.
        task: `kv`, `kv:field=value,…`, or a YAML file with a section `fitness`, as a campaign's.
        contexts: instead of the task's own number.

    Raises:
        CampaignError, TaskError: the task, a length or another value is wrong; names it and what is allowed.
    """
    lengths = sorted(lengths)
    for length in lengths:
        if length < 2 or lengths.count(length) > 1:
            raise CampaignError("--length", length, "each length once, at least 2 tokens")
    fitness = _task(task)
    if lengths:
        fitness["length"] = lengths[-1]
    if contexts is not None:
        fitness["contexts"] = contexts
    data = {"model": model, "fitness": fitness, "lengths": lengths, "profiles": list(profiles), "seed": seed}
    data["target_length"] = target_length
    try:
        return Request.model_validate(data)
    except ValidationError as error:
        found = explain(error, Request)
        raise CampaignError(_flag(found.field), found.value, found.allowed) from error


def _flag(field: str) -> str:
    """The option of the command line that a field comes from."""
    section, _, inside = field.partition(".")
    if section == "model":
        return "--model" if inside in ("", "id") else "--" + inside.replace("_", "-")
    if section == "fitness":
        return f"--{inside}" if inside in ("length", "contexts") else f"--task.{inside}".rstrip(".")
    return "--" + section.replace("_", "-")


def _task(text: str) -> dict[str, Any]:
    if text.endswith((".yaml", ".yml")):
        return _section(Path(text))
    name, _, written = text.partition(":")
    if name not in TASKS:
        raise CampaignError("--task", name, f"a YAML file with a section `fitness`, or one of {nearest(name, TASKS)}")
    return {"task": name, **fields_of("--task", written)}


def _section(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CampaignError("--task", str(path), f"a readable YAML file ({error.strerror})") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: bytes that are no UTF-8, a date that does not exist
        raise CampaignError("--task", str(path), f"valid YAML ({' '.join(str(error).split())})") from error
    section = data.get("fitness") if isinstance(data, dict) else None
    if not isinstance(section, dict):
        raise CampaignError("--task", str(path), "a YAML file with a section `fitness`")
    if section.get("length") is None and section.get("pairs") is None and data.get("target_length") is not None:
        section["length"] = data["target_length"]
    return dict(section)


def prepare(asked: Request) -> Prepared:
    """Read the model's configuration and tokenizer, build the examples of every length, read every profile.

    Raises:
        ModelError: the model cannot be found or is not a causal language model.
        TaskError: the examples cannot be built.
        ProfileError: a profile is malformed, or the model has no rotary embedding. Whether a profile fits the model
            is found out when its row is measured.
    """
    shape = read_shape(asked.model)
    longest = asked.lengths[-1] if asked.lengths else asked.fitness.length
    target = asked.target_length or longest or shape.trained_length
    arguments = [read(text, shape, target) for text in asked.profiles]
    names = [UNCHANGED, *(argument.text for argument in arguments)]
    for name in names:
        if names.count(name) > 1:
            raise CampaignError("--profile", name, "each profile once, under a name of its own")
    tokenizer = load_tokenizer(asked.model)
    lengths = tuple(_measured(asked, tokenizer, length) for length in (asked.lengths or (asked.fitness.length,)))
    unchanged = ProfileArgument(UNCHANGED, lambda: Profile.identity(shape, target))
    return Prepared(asked, shape, target, lengths, (unchanged, *arguments))


def _measured(asked: Request, tokenizer: Any, length: int | None) -> Measured:
    task = asked.fitness if length is None else asked.fitness.at_length(length)
    seed = derive(asked.seed, "evaluate", str(length))
    try:
        return Measured(length, task, task.build(tokenizer, seed, "heldout"))
    except TaskError as error:
        raise CampaignError(_flag(f"fitness.{error.field}"), error.value, error.allowed) from error


def row_key(fingerprint: str, profile: Profile, examples: ExampleSet, scoring: str) -> str:
    """Of one row at one length: the same exactly when measuring again would give the same scores."""
    parts = [fingerprint, profile.hash, examples.hash, scoring]
    return hashlib.sha256("/".join(parts).encode()).hexdigest()

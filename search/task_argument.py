"""Tasks as one argument of the command line: a task with its fields, a family of tasks, a file of them, or all.

    kv:keys=hex4,values=hex4,answer=opened
    ruler:name=vt
    ruler                        every name that it may have
    campaigns/quickstart.yaml    its section `fitness` (of a composite each part), or a list `tasks`
    all                          every task

Of a family and of all, what needs data that are not named is left out, and it is said what.

A field that has to be one of a list of names and is not given stands for each of them, which makes families of tasks
out of their own definitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import ValidationError

from fitness.composite import CompositeTask
from fitness.tasks import SIZES, TASKS
from ropewalk.errors import nearest
from search.complaints import explain
from search.errors import CampaignError
from search.written import fields_of

ALL = "all"


@dataclass(frozen=True)
class TaskArgument:
    """One task as plain data, which a model of `fitness.tasks` still has to accept.

    Attributes:
        name: of its rows in a table.
        text: as it was given.
        optional: of a family or of `all`: left out, and said so, where it needs data that are not named.
    """

    name: str
    text: str
    fields: dict[str, Any] = field(hash=False)
    optional: bool = False


def read(texts: Sequence[str]) -> list[TaskArgument]:
    """All tasks that the arguments name, each under a name of its own: a short one where that is enough.

    Raises:
        CampaignError: there is no such task, a file cannot be read, or a task is named twice.
    """
    found = [argument for text in texts for argument in _read(text)]
    for i, argument in enumerate(found):
        if any(argument.fields == other.fields for other in found[:i]):
            raise CampaignError("--task", argument.text, "each task once")
    short = [argument.name for argument in found]
    return [
        argument if short.count(argument.name) == 1 else _renamed(argument, f"{argument.name} {i + 1}")
        for i, argument in enumerate(found)
    ]


def _renamed(argument: TaskArgument, name: str) -> TaskArgument:
    return TaskArgument(name, argument.text, argument.fields, argument.optional)


def _read(text: str) -> list[TaskArgument]:
    if text.endswith((".yaml", ".yml")):
        return [one for section in _sections(Path(text)) for one in _family(text, section)]
    name, _, written = text.partition(":")
    fields = fields_of("--task", written)
    if name == ALL:
        return [
            TaskArgument(one.name, text, one.fields, optional=True)
            for task in TASKS
            for one in _family(text, {"task": task, **fields})
        ]
    if name not in TASKS:
        known = nearest(name, [*TASKS, ALL])
        raise CampaignError("--task", name, f"a YAML file with a section `fitness`, or one of {known}")
    return _family(text, {"task": name, **fields})


def _family(text: str, fields: dict[str, Any]) -> list[TaskArgument]:
    """The task, or one for each name where a field that has to be one of several names is not given."""
    task = str(fields.get("task"))
    model = TASKS.get(task)
    for name, of in model.model_fields.items() if model else ():
        if of.is_required() and name not in ("task", *fields) and get_origin(of.annotation) is Literal:
            return [
                TaskArgument(f"{task} {value}", text, {**fields, name: value}, optional=True)
                for value in get_args(of.annotation)
            ]
    names = [str(fields[name]) for name, of in model.model_fields.items() if _chosen(name, of, fields)] if model else []
    return [TaskArgument(" ".join([task, *names]), text, fields)]


def _chosen(name: str, of: Any, fields: dict[str, Any]) -> bool:
    return name != "task" and name in fields and of.is_required() and get_origin(of.annotation) is Literal


def _sections(path: Path) -> list[dict[str, Any]]:
    """The section `fitness` of a campaign, or every entry of a list `tasks`."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CampaignError("--task", str(path), f"a readable YAML file ({error.strerror})") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: bytes that are no UTF-8, a date that does not exist
        raise CampaignError("--task", str(path), f"valid YAML ({' '.join(str(error).split())})") from error
    data = data if isinstance(data, dict) else {}
    listed = data.get("tasks")
    sections = listed if isinstance(listed, list) and listed else [data.get("fitness")]
    if not all(isinstance(section, dict) for section in sections):
        raise CampaignError("--task", str(path), "a YAML file with a section `fitness` or a list `tasks` of sections")
    for section in sections:
        if all(section.get(size) is None for size in SIZES) and data.get("target_length") is not None:
            section["length"] = data["target_length"]
    return [dict(one) for section in sections for one in _alone(section)]


def _alone(section: dict[str, Any]) -> list[dict[str, Any]]:
    """The section, or the tasks of a composite one by one: a table shows each of them, and their mean."""
    if section.get("task") != "composite":
        return [section]
    try:
        composite = CompositeTask.model_validate(section)
    except ValidationError as error:
        found = explain(error, CompositeTask)
        raise CampaignError(f"--task.{found.field}", found.value, found.allowed) from error
    return [part.of.model_dump(mode="json", exclude_defaults=True) | {"task": part.of.task} for part in composite.parts]

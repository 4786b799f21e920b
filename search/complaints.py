"""What pydantic says about a campaign, as one error that names the field, its value and what is allowed."""

import difflib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ropewalk.errors import FieldError
from search.errors import CampaignError

Place = tuple[str, ...]


def explain(error: ValidationError, root: type[BaseModel]) -> CampaignError:
    """The first thing that is wrong in data for `root`; an unknown key first, as it may be a missing one misspelt."""
    errors = error.errors()
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    place, models = _walk(first, root)
    field, value, context = ".".join(place) or "campaign", first["input"], first.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, FieldError):
        return CampaignError(".".join([*place, cause.field]), cause.value, cause.allowed)
    match first["type"]:
        case "extra_forbidden":
            known = [f.alias or name for model in models for name, f in model.model_fields.items()]
            near = difflib.get_close_matches(place[-1], known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            return CampaignError(field, value, f"{hint}known fields are {', '.join(known)}")
        case "missing":
            return CampaignError(field, None, "a value: the field is required")
        case "union_tag_invalid" | "union_tag_not_found":
            tag = context["discriminator"].strip("'")
            allowed = ", ".join(t for model in models for t in _tags(model, tag))
            return CampaignError(f"{field}.{tag}", context.get("tag"), f"one of {allowed}")
    alternatives = dict.fromkeys(
        e["msg"].removeprefix("Value error, ") for e in errors if e is first or _walk(e, root)[0] == place
    )
    return CampaignError(field, value, " or ".join(alternatives))


def _walk(error: Any, root: type[BaseModel]) -> tuple[Place, list[type[BaseModel]]]:
    """The field at fault as a person writes it, and the models of the section that it is in, or is itself.

    pydantic's location also holds tags of unions and names of types, which stand in no file.
    """
    place: list[str] = []
    models, inside = [root], [root]
    for i, part in enumerate(error["loc"]):
        tagged = [m for m in models if part in _tags(m)]
        fields = [f for m in models for n, f in m.model_fields.items() if (f.alias or n) == part]
        if len(models) > 1 and tagged:  # the choice of a union comes before anything inside it
            models = inside = tagged
        elif isinstance(part, int):
            place.append(str(part))
        elif fields:
            place.append(part)
            inside, models = models, [m for f in fields for m in _models_of(f.annotation)]
        elif error["type"] == "extra_forbidden" and i == len(error["loc"]) - 1:
            place.append(part)
            inside = models
    return tuple(place), (models if error["type"].startswith("union_tag") else inside)


def _tags(model: type[BaseModel], field: str = "task") -> tuple[str, ...]:
    return get_args(model.model_fields[field].annotation) if field in model.model_fields else ()


def _models_of(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_of(inner)]

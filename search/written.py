"""`field=value,field=value`: the fields of a profile or a task as they are written on the command line."""

from typing import Any

import yaml

from search.errors import CampaignError

BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}


def fields_of(owner: str, written: str) -> dict[str, Any]:
    """The fields with their values, read as YAML; commas within brackets belong to a value.

    Example:
        >>> fields_of("profile dpe", "window=64,scale_factors=[8, 8]")
        {'window': 64, 'scale_factors': [8, 8]}

    Args:
        owner: whose fields they are, for the error.

    Raises:
        CampaignError: a part is no `field=value`, or a field is given twice.
    """
    fields: dict[str, Any] = {}
    for part in _parts(written):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (equals and name and value):
            raise CampaignError(owner, part, "field=value,field=value")
        if name in fields:
            raise CampaignError(f"{owner}.{name}", value, "each field once")
        try:
            fields[name] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
            raise CampaignError(f"{owner}.{name}", value, "a number, a word or a list in brackets") from error
    return fields


def _parts(written: str) -> list[str]:
    parts, depth = [""], 0
    for letter in written:
        depth += BRACKETS.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()] if written.strip() else []

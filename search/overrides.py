"""`--set key=value`: one field of a campaign's plain data changed before it is validated."""

import copy
from typing import Any

import yaml

from search.errors import CampaignError


def override(data: dict[str, Any], text: str) -> None:
    """Change `data` by `key=value`: a dotted key with list positions as numbers, the value read as YAML.

    A section that is missing or empty is created on the way. Sections are copied before they are changed, since YAML
    aliases make two places share one.

    Raises:
        CampaignError: the text is malformed, or the key leads nowhere.
    """
    key, equals, written = text.partition("=")
    steps = key.split(".")
    if not equals or not all(steps):
        raise CampaignError("--set", text, "key=value with a dotted key, as in stages.0.population=8")
    try:
        value = yaml.safe_load(written)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise CampaignError(f"--set {key}", written, "a YAML value") from error
    place: Any = data
    for step in steps[:-1]:
        at = _position(place, step, key)
        found = place.get(at) if isinstance(place, dict) else place[at]
        place[at] = {} if found is None else copy.copy(found)
        place = place[at]
    place[_position(place, steps[-1], key)] = value


def _position(place: Any, step: str, key: str) -> str | int:
    """Where in a section or list a step of the key leads."""
    if isinstance(place, dict):
        return step
    if not isinstance(place, list):
        raise CampaignError(f"--set {key}", step, "a field inside a section")
    if not (step.isascii() and step.isdecimal() and int(step) < len(place)):
        allowed = f"an index from 0 to {len(place) - 1}" if place else "nothing: the list is empty; set it as a whole"
        raise CampaignError(f"--set {key}", step, allowed)
    return int(step)

"""`checkpoint.json`: all that a campaign needs to go on to the identical result, replaced after each generation."""

import json
from typing import Any

from search.errors import CampaignError
from search.storage import Storage

NAME = "checkpoint.json"
SCHEMA = "ropewalk/checkpoint/v1"


def save(storage: Storage, identity: dict[str, str], state: dict[str, Any]) -> None:
    """`identity` names what the state belongs to: the campaign's hash, the model, the example sets."""
    data = {"schema": SCHEMA, "identity": identity, "state": state}
    storage.write(NAME, json.dumps(data, allow_nan=False).encode())


def load(storage: Storage, identity: dict[str, str]) -> dict[str, Any] | None:
    """The saved state, or None when there is none.

    Raises:
        CampaignError: the file is damaged, or belongs to another campaign, model or example set.
    """
    if not storage.exists(NAME):
        return None
    try:
        data = json.loads(storage.read(NAME))
        schema, saved = data["schema"], data["identity"]
    except (ValueError, KeyError, TypeError) as error:
        raise CampaignError(NAME, storage.url, f"a whole checkpoint file ({error})") from error
    if schema != SCHEMA:
        raise CampaignError(f"{NAME}: schema", schema, SCHEMA)
    for key, value in identity.items():
        if saved.get(key) != value:
            allowed = (
                f"{saved.get(key)}, with which the campaign in {storage.url} began; use another --id for a new one"
            )
            raise CampaignError(f"{key} of the resumed campaign", value, allowed)
    return data["state"]

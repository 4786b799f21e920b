"""The profile: how one model's rotary embedding is changed for a target length, as plain data and as a file.

A profile is self-contained JSON without code. It is validated wherever it comes from: the dataclasses check their own
values, and reading adds that unknown and missing fields are refused. Saving the same profile gives the same bytes.
"""

import hashlib
import json
import os
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from ropewalk.axes import Frequency
from ropewalk.distance import Distance
from ropewalk.errors import ProfileError
from ropewalk.fields import integer, mapping, plain, text
from ropewalk.files import read_json, write_atomically
from ropewalk.shape import ModelShape

SCHEMA = "ropewalk/profile/v1"


@dataclass(frozen=True)
class Profile:
    """How to change the rotary embedding of one model for contexts of `target_length` tokens.

    Attributes:
        name: for people; not part of `hash`.
        provenance: where the profile came from, any plain JSON object; not part of `hash`.
    """

    name: str
    model: ModelShape
    target_length: int
    frequency: Frequency
    distance: Distance = field(default_factory=Distance)
    provenance: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        text("name", self.name)
        for item, kind in (("model", ModelShape), ("frequency", Frequency), ("distance", Distance)):
            if not isinstance(getattr(self, item), kind):
                raise ProfileError(item, getattr(self, item), f"a {kind.__name__}")
        object.__setattr__(self, "target_length", integer("target_length", self.target_length, 1))
        if not isinstance(self.provenance, dict):
            raise ProfileError("provenance", self.provenance, "a JSON object")
        object.__setattr__(self, "provenance", plain("provenance", self.provenance))
        self.frequency.check_fits(self.model)
        self.distance.check_fits(self.model)

    @classmethod
    def identity(cls, model: ModelShape, target_length: int) -> "Profile":
        """The profile that changes nothing."""
        return cls("identity", model, target_length, Frequency("native"))

    @classmethod
    def from_dict(cls, data: Any) -> "Profile":
        """Inverse of `to_dict`; raises `ProfileError` for a wrong, unknown or missing field."""
        if isinstance(data, dict) and data.get("schema") != SCHEMA:
            raise ProfileError("schema", data.get("schema"), f"{SCHEMA!r}")
        known = ["schema", *(item.name for item in fields(cls))]
        values = mapping("profile", data, known, required=["schema", "name", "model", "target_length", "frequency"])
        return cls(
            name=values["name"],
            model=ModelShape.from_dict(values["model"]),
            target_length=values["target_length"],
            frequency=Frequency.from_dict(values["frequency"]),
            distance=Distance.from_dict(values.get("distance", {"method": "none"})),
            provenance=values.get("provenance", {}),
        )

    def to_dict(self) -> dict[str, Any]:
        """The data of the profile file, in its order."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "model": self.model.to_dict(),
            "target_length": self.target_length,
            "frequency": self.frequency.to_dict(),
            "distance": self.distance.to_dict(),
            "provenance": plain("provenance", self.provenance),
        }

    def to_json(self) -> str:
        """The text of the profile file."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile file, replacing one that is there in a single step."""
        write_atomically(path, self.to_json())

    @cached_property
    def hash(self) -> str:
        """SHA-256 in hex of what is applied: equal exactly when two profiles do the same to the same architecture.

        Covers the model without its id and revision, the target length and both axes. A list of equal factors counts
        as the one factor it is.
        """
        model = self.model.to_dict()
        del model["id"], model["revision"]
        frequency = self.frequency.to_dict()
        if isinstance(self.frequency.factor, tuple) and len(set(self.frequency.factor)) == 1:
            frequency["factor"] = self.frequency.factor[0]
        if self.frequency.factors is not None and len(set(self.frequency.factors)) == 1:
            first = self.frequency.factors[0]
            frequency["factors"] = list(first) if isinstance(first, tuple) else frequency["factors"]
        applied = {
            "model": model,
            "target_length": self.target_length,
            "frequency": frequency,
            "distance": self.distance.to_dict(),
        }
        canonical = json.dumps(applied, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def with_provenance(self, provenance: dict[str, Any]) -> "Profile":
        """The same profile with another provenance."""
        return replace(self, provenance=provenance)

    def check_fits(self, shape: ModelShape) -> None:
        """Raise `ProfileError`, with both values, when the profile was made for another architecture."""
        for item in fields(ModelShape):
            if item.name in ("id", "revision"):
                continue
            ours, theirs = getattr(self.model, item.name), getattr(shape, item.name)
            if ours != theirs:
                raise ProfileError(
                    f"model.{item.name}",
                    theirs,
                    f"a model with {item.name} {ours}, for which profile {self.name!r} was made ({self.model.id})",
                )


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile file.

    Raises:
        ProfileError: the file is missing or not JSON, or a field is wrong; names the field and what is allowed.
    """
    return Profile.from_dict(read_json(path))

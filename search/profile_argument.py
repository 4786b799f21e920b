"""A profile as one argument of the command line: a file, a published name, or the fields of one axis or both.

    winner.json
    yarn
    self-extend:window=64,group_size=8
    linear:factor=4
    yarn:factor=4+self_extend:window=64,group_size=8

A name stands for a published profile or for a method of the library; `+` joins a frequency method with a distance
method. What is malformed is refused when the argument is read, before a model is loaded; whether the profile fits the
model is found out by `build`.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk import Distance, Frequency, ModelShape, Profile, ProfileError, load_profile
from ropewalk.distance import FIELDS
from ropewalk.errors import nearest
from ropewalk.frequencies import METHODS
from ropewalk.published import PUBLISHED, provenance, published, resolve_length
from search.written import fields_of

JOINED = re.compile(r"\+(?=[A-Za-z])")  # not the plus of 1e+3


@dataclass(frozen=True)
class ProfileArgument:
    """A profile that is known to be well formed.

    Attributes:
        text: as it was given; the name of its row in a table.
        build: the profile for the model; raises `ProfileError` when it does not fit.
    """

    text: str
    build: Callable[[], Profile]


def is_file(text: str) -> bool:
    """Whether an argument names a file rather than a profile."""
    return text.endswith(".json") or os.sep in text.partition(":")[0]


def read(text: str, shape: ModelShape, target_length: int | None) -> ProfileArgument:
    """Read an argument for a model.

    Args:
        target_length: N in tokens, of everything but a file, which has its own. None: the published one.

    Raises:
        ProfileError: the file is missing or malformed, there is no such name or field, or a value is wrong.
    """
    if is_file(text):
        return _file(Path(text), shape)
    name, fields = _part(text)
    if name in PUBLISHED and not JOINED.search(text):
        known, length = PUBLISHED[name], resolve_length(name, target_length)
        known.axes(shape, length, fields)
        return ProfileArgument(text, lambda: published(name, shape, length, **fields))
    return _joined(text, shape, target_length)


def check_names(text: str) -> None:
    """Refuse a name that is none, which needs no model; fields are read with one.

    Raises:
        ProfileError: one of the parts names neither a published profile nor a method.
    """
    for part in JOINED.split(text):
        name = part.partition(":")[0]
        if name not in PUBLISHED and name not in METHODS and name not in FIELDS:
            raise _unknown(name)


def _unknown(name: str) -> ProfileError:
    allowed = nearest(name, dict.fromkeys([*PUBLISHED, *METHODS, *FIELDS]))
    return ProfileError("profile", name, f"a .json file, or one of {allowed}")


def _file(path: Path, shape: ModelShape) -> ProfileArgument:
    profile = load_profile(path)

    def build() -> Profile:
        profile.check_fits(shape)
        return profile

    return ProfileArgument(str(path), build)


def _part(text: str) -> tuple[str, dict[str, Any]]:
    """Name and fields of `name:field=value,…`, or of the first part of several."""
    name, _, written = JOINED.split(text)[0].partition(":")
    return name, fields_of(f"profile {name}", written)


def _joined(text: str, shape: ModelShape, target_length: int | None) -> ProfileArgument:
    frequency, distance, sources, checks = None, None, [], []
    for part in JOINED.split(text):
        name, fields = _part(part)
        if name in PUBLISHED:
            known = PUBLISHED[name]
            frequencies, distances = known.axes(shape, resolve_length(name, target_length), fields)
            axis = distances if known.distance else frequencies
            sources.append(provenance(name, fields))
            if known.made_for is not None:
                checks.append((known.made_for, name))
        elif name in METHODS:
            axis = Frequency(**_known(name, fields, Frequency))
        elif name in FIELDS:
            axis = Distance(**_known(name, fields, Distance))
        else:
            raise _unknown(name)
        if isinstance(axis, Frequency):
            frequency = _once(text, frequency, axis)
        else:
            distance = _once(text, distance, axis)

    if target_length is None:
        raise ProfileError("target_length", None, f"a number of tokens for {text}")

    def build() -> Profile:
        for made_for, name in checks:
            made_for.check(name, shape)
        origin = {"written": text, **({"parts": sources} if sources else {})}
        return Profile(
            text, shape, target_length, frequency or Frequency("native"), distance or Distance(), provenance=origin
        )

    return ProfileArgument(text, build)


def _known(method: str, fields: dict[str, Any], kind: type) -> dict[str, Any]:
    known = [name for name in kind.__dataclass_fields__ if name != "method"]
    for name in fields:
        if name not in known:
            axis = kind.__name__.lower()
            raise ProfileError(f"{axis}.{name}", fields[name], f"no field of this name, only {nearest(name, known)}")
    return {"method": method, **fields}


def _once(text: str, before: Any, axis: Any) -> Any:
    if before is not None:
        raise ProfileError("profile", text, f"one {type(axis).__name__.lower()} method, not two")
    return axis

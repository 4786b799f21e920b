"""Checks of single values of a profile: each returns the value in its one stored form or raises `ProfileError`.

Used by the dataclasses themselves, so a profile built in Python is held to the same rules as one read from a file.
"""

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from ropewalk.errors import ProfileError, nearest


def text(field: str, value: Any) -> str:
    """A string with at least one visible character."""
    if not isinstance(value, str) or not value.strip():
        raise ProfileError(field, value, "a non-empty string")
    return value


def integer(field: str, value: Any, minimum: int) -> int:
    """A whole number of at least `minimum`; 4.0 and True are refused."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise ProfileError(field, value, f"a whole number of at least {minimum}")
    return int(value)


def number(field: str, value: Any, minimum: float, maximum: float = math.inf, *, above: bool = False) -> float:
    """A finite number in [minimum, maximum], or in (minimum, maximum] with `above`."""
    if maximum < math.inf:
        allowed = f"a number from {minimum:g} to {maximum:g}"
    else:
        allowed = f"a finite number {'above' if above else 'of at least'} {minimum:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ProfileError(field, value, allowed)
    try:
        result = float(value)
    except OverflowError as error:
        raise ProfileError(field, value, allowed) from error
    if not math.isfinite(result) or not minimum <= result <= maximum or (above and result == minimum):
        raise ProfileError(field, value, allowed)
    return result


def mapping(field: str, value: Any, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Any]:
    """A JSON object with no key outside `known` and every one of `required`."""
    if not isinstance(value, Mapping):
        raise ProfileError(field, value, "a JSON object")
    known = list(known)
    prefix = "" if field == "profile" else f"{field}."
    for key in value:
        if key not in known:
            raise ProfileError(f"{prefix}{key}", value[key], f"no field of this name, only {nearest(key, known)}")
    for key in required:
        if key not in value:
            raise ProfileError(f"{prefix}{key}", None, "this field is required")
    return dict(value)


def plain(field: str, value: Any) -> Any:
    """A deep copy of plain JSON data (tuples become lists); numbers must be finite and keys strings."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ProfileError(field, value, "a finite number")
        return float(value)
    if isinstance(value, list | tuple):
        return [plain(f"{field}[{index}]", item) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ProfileError(field, key, "string keys only")
        return {key: plain(f"{field}.{key}", item) for key, item in value.items()}
    raise ProfileError(field, value, "plain JSON data: null, true, false, a number, a string, a list or an object")

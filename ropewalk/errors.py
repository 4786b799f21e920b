"""Errors that name the field at fault, its value and what would have been allowed.

One shape for bad input everywhere: `FieldError` is the base that the other folders derive theirs from, so that a
command line can print any of them as one line.
"""

import difflib
from collections.abc import Iterable
from typing import Any

_SHOWN = 160


class FieldError(ValueError):
    """Bad input in one field.

    Args:
        field: dotted name, with an index where the value is one of a list: `frequency.factor[3]`.
        value: what was given; `None` when nothing was.
        allowed: what would have been accepted, in words.
    """

    def __init__(self, field: str, value: Any, allowed: str) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        shown = "nothing" if value is None else repr(value)
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "…"
        super().__init__(f"{field}: got {shown}; allowed: {allowed}")

    def __reduce__(self) -> tuple[type["FieldError"], tuple[str, Any, str]]:
        # The default would call the class with the one message it keeps in `args`, and fail in the receiving process.
        return type(self), (self.field, self.value, self.allowed)


class ProfileError(FieldError):
    """A profile is malformed, or cannot be applied to this model."""


class PatchError(RuntimeError):
    """The model did not behave under the patch as it must; most often its code changed with a transformers upgrade."""


def nearest(name: object, known: Iterable[str]) -> str:
    """Known names as words for `FieldError.allowed`, the most similar one first where there is one."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    listed = ", ".join(known)
    return f"{listed} (did you mean {close[0]}?)" if close else listed

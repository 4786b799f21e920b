"""What can go wrong before or around an evaluation; a candidate that fails is a `Result`, not an exception."""

from ropewalk.errors import FieldError


class ModelError(FieldError):
    """The model of a campaign cannot be found, read or used."""


class CapacityError(RuntimeError):
    """The cluster cannot host the workers; the message names what is short."""


class WorkerError(RuntimeError):
    """Workers do not come up; the message carries the cause."""


def first_line(error: Exception) -> str:
    """The first line of a message that may be a whole traceback; the error's type where there is no message."""
    lines = str(error).strip().splitlines()
    return " ".join(lines[0].split()) if lines else type(error).__name__

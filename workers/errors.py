"""What can go wrong before or around an evaluation; a candidate that fails is a `Result`, not an exception."""

from ropewalk.errors import FieldError


class ModelError(FieldError):
    """The model of a campaign cannot be found, read or used."""


class CapacityError(RuntimeError):
    """The cluster cannot host the workers; the message names what is short."""


class WorkerError(RuntimeError):
    """Workers do not come up; the message carries the cause."""

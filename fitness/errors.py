"""What goes wrong in a task: an impossible or malformed task, and a model that stops giving numbers."""

from ropewalk.errors import FieldError


class TaskError(FieldError):
    """A task cannot be built as described; nothing costly was started."""


class NonFiniteError(RuntimeError):
    """The model gave NaN or infinite logits: a fault of the candidate, never a score."""

"""Long real prose with no download: the language reference that Python carries for its `help()`."""

from functools import cache
from pydoc_data.topics import topics


@cache
def builtin_prose() -> str:
    """About 465,000 characters of English with some code; the text differs a little between Python versions."""
    return "\n\n".join(topics[name].strip() for name in sorted(topics))

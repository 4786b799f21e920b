"""JSON lines files, plain or compressed with gzip, one object a line; what is wrong with one is said with its line."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fitness.errors import TaskError

GZIP_MAGIC = b"\x1f\x8b"


def json_lines(file: str, expected: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object with its place, `FILE, line N`, as it is read: no more than one is held.

    Args:
        expected: the fields that a line must have, in words, for the errors.

    Raises:
        TaskError: the file is missing, empty or cut off, or a line is not a JSON object.
    """
    path, number = Path(file), 0
    try:
        with path.open("rb") as probe:
            opener = gzip.open if probe.read(2) == GZIP_MAGIC else open
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                place = f"{file}, line {number}"
                yield place, _object(line, place, expected)
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise TaskError("file", f"{file}, line {number + 1}", f"a whole file of JSON lines ({error})") from error
    except OSError as error:
        raise TaskError("file", file, f"a readable JSON lines file ({error.strerror})") from error
    if not number:
        raise TaskError("file", file, "at least one row")


def wrong(place: str, expected: str, why: str) -> TaskError:
    """The error for a line that is not as `expected`."""
    return TaskError("file", place, f"a JSON object with {expected} ({why})")


def _object(line: str, place: str, expected: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise wrong(place, expected, str(error)) from error
    if not isinstance(row, dict):
        raise wrong(place, expected, f"it is of type {type(row).__name__}")
    return row

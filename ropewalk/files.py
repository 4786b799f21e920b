"""Strict JSON in, atomic text out.

A profile is replaced at each improvement of a campaign while others may be reading it, so a reader must see the old
file or the new one, never half of one. Reading refuses what Python's `json` lets through although it is not JSON or is
ambiguous: NaN, Infinity and repeated keys.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Any

from ropewalk.errors import ProfileError


def write_atomically(path: str | os.PathLike[str], content: str) -> None:
    """Write UTF-8 text to `path` through a temporary file in the same folder.

    Raises:
        OSError: the folder is missing or not writable; `path` is then as it was.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parse a JSON file.

    Raises:
        ProfileError: the file is missing, unreadable or not JSON; the error names the file.
    """
    path = Path(path)

    def constant(name: str) -> Any:
        raise ProfileError(str(path), name, "JSON, which has finite numbers only")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in items:
            if key in result:
                raise ProfileError(str(path), key, "each key once in an object")
            result[key] = value
        return result

    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ProfileError(str(path), "no such file", "the path of a profile file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(str(path), str(error), "a readable UTF-8 profile file") from error
    try:
        return json.loads(content, parse_constant=constant, object_pairs_hook=pairs)
    except ProfileError:
        raise
    except (ValueError, RecursionError) as error:
        raise ProfileError(str(path), str(error), "a profile file in JSON") from error

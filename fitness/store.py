"""Example sets on disk, so that a node builds each of them once: a set at 128k tokens takes minutes, reading it none.

A set is kept under the hash of everything that it follows from: task, seed, split, tokenizer, chat template, the files
that it reads, and the code that builds it. So nothing in the folder is ever out of date, and all of it may be deleted.
"""

import hashlib
import json
import logging
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from filelock import FileLock

from fitness.chat import ChatTemplate
from fitness.examples import Example, ExampleSet, Question
from fitness.tasks import Task
from ropewalk.files import write_atomically

SCHEMA = "ropewalk/examples/v1"
PACKAGES = ("tokenizers", "transformers", "wonderwords")
log = logging.getLogger(__name__)


class ExampleStore:
    """The example sets in a folder, which is made when it is needed."""

    def __init__(self, folder: Path):
        self.folder = folder

    def get(
        self, task: Task, tokenizer: Any, seed: int, split: str, template: ChatTemplate | None, build: Callable
    ) -> ExampleSet:
        """The set from the folder, or what `build` gives, which is then there for the next one who asks.

        Of several processes that ask at the same time, one builds and the others wait for it. A folder that cannot be
        written costs time and a warning, not the set.
        """
        key = key_of(task, tokenizer, seed, split, template)
        if key is None:
            return build()
        path = self.folder / f"{key}.json"
        if (found := read(path)) is not None:
            return found
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path.with_suffix(".lock"))
            lock.acquire()
        except OSError as error:
            log.warning("example sets cannot be kept in %s (%s)", self.folder, error)
            return build()
        try:
            found = read(path)
            if found is None:
                found = build()
                _write(path, found)
            return found
        finally:
            lock.release()


def key_of(task: Any, tokenizer: Any, seed: int, split: str, template: ChatTemplate | None) -> str | None:
    """SHA-256 of all that a set follows from; None where this cannot be known: data of the Hub without a revision."""
    spec = task.model_dump(mode="json")
    if any(_floating(section) for section in _sections(spec)):
        return None
    parts = {
        "task": spec,
        "private": sorted((name, repr(value)) for name, value in (task.__pydantic_private__ or {}).items()),
        "seed": seed,
        "split": split,
        "tokenizer": tokenizer_fingerprint(tokenizer),
        "template": None if template is None else asdict(template),
        "files": {text: _state(text) for text in sorted(set(_texts(spec)))},
        "code": _code(),
        "versions": [platform.python_version(), *map(_version, PACKAGES)],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """SHA-256 that tells tokenizers apart which would cut a text differently."""
    known = _FINGERPRINTS.get(tokenizer)
    if known is None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        content = [
            json.dumps(sorted(tokenizer.get_vocab().items())) if backend is None else backend.to_str(),
            str(tokenizer.special_tokens_map),
            str(token_probe(tokenizer)),
        ]
        known = _FINGERPRINTS[tokenizer] = hashlib.sha256("\0".join(content).encode()).hexdigest()
    return known


def token_probe(tokenizer: Any) -> list[int]:
    """Ids of a short text: what is added at its ends is no part of the vocabulary."""
    return list(tokenizer("A key: 1f3a-β\n\n  and its value").input_ids)


def read(path: Path) -> ExampleSet | None:
    """The set in a file; None where there is none, or it is damaged and has to be built again."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            return None
        fields = _tuples(data["examples"])
        examples = tuple(
            Example(**{**example, "questions": tuple(Question(**question) for question in example["questions"])})
            for example in fields.pop("examples")
        )
        found = ExampleSet(**fields, examples=examples)
        return found if found.hash == data["hash"] else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the example set in %s cannot be read and is built again (%s)", path, error)
        return None


def _write(path: Path, examples: ExampleSet) -> None:
    data = {"schema": SCHEMA, "hash": examples.hash, "examples": asdict(examples)}
    try:
        write_atomically(path, json.dumps(data, ensure_ascii=False) + "\n")
    except OSError as error:
        log.warning("an example set cannot be kept in %s (%s)", path, error)


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value


def _sections(spec: Any) -> Iterator[dict[str, Any]]:
    """All mappings in a task's fields."""
    if isinstance(spec, dict):
        yield spec
        for value in spec.values():
            yield from _sections(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from _sections(value)


def _floating(section: dict[str, Any]) -> bool:
    return "name" in section and "revision" in section and section["revision"] is None


def _texts(spec: Any) -> Iterator[str]:
    for section in _sections({"": spec}):
        for value in section.values():
            yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def _state(text: str) -> list[Any] | None:
    """Size and time of change of a file, or of all files in a folder; None for a text that is no path."""
    try:
        path = Path(text)
        if not text or not path.exists():
            return None
        found = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        return [str(path.resolve()), *([str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in found)]
    except (OSError, ValueError):  # ValueError: a text with a zero byte
        return None


@cache
def _code() -> str:
    """SHA-256 of the modules of this package."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


_FINGERPRINTS: "WeakKeyDictionary[Any, str]" = WeakKeyDictionary()

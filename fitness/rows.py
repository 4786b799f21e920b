"""Where the pairs of a key-value context come from: drawn from a stream of numbers, or a row of an official file."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fitness.errors import TaskError
from fitness.splits import draw

Pair = tuple[str, str]
GZIP_MAGIC = b"\x1f\x8b"


class Row(Protocol):
    """The data behind one context.

    `pairs(n)` is a prefix of `pairs(n + 1)`, which makes the tokens of a context grow with its number of pairs.
    """

    id: str

    @property
    def limit(self) -> int:
        """The most pairs that the row can give."""

    def pairs(self, count: int) -> Sequence[Pair]:
        """The first `count` pairs."""

    def with_gold_at(self, position: int, count: int) -> Sequence[Pair]:
        """`count` pairs with the row's gold pair at `position`: taken out of its place and put back, as published."""


def _moved(gold: Pair, others: Sequence[Pair], position: int) -> list[Pair]:
    return [*others[:position], gold, *others[position:]]


@dataclass(frozen=True)
class GeneratedRow:
    """Pairs that follow from a label. The gold pair of the official protocol is the first one drawn.

    `keys` and `values` are forms as `forms.form` returns them.
    """

    id: str
    label: tuple[object, ...]
    keys: tuple[Callable[[int], str], int]
    values: tuple[Callable[[int], str], int]

    @property
    def limit(self) -> int:
        return self.keys[1]

    def pairs(self, count: int) -> list[Pair]:
        if count > self.limit:
            raise TaskError("pairs", count, f"at most {self.limit}, the distinct keys of this form")
        (as_key, _), (as_value, _) = self.keys, self.values
        keys: dict[str, None] = {}
        attempt = 0
        while len(keys) < count:
            keys.setdefault(as_key(draw(*self.label, "key", attempt)))
            attempt += 1
        return [(key, as_value(draw(*self.label, "value", i))) for i, key in enumerate(keys)]

    def with_gold_at(self, position: int, count: int) -> list[Pair]:
        gold, *others = self.pairs(count)
        return _moved(gold, others, position)


@dataclass(frozen=True)
class FileRow:
    """A row of an official file: all its pairs in their order, and the index of the gold one."""

    id: str
    records: tuple[Pair, ...]
    gold: int

    @property
    def limit(self) -> int:
        return len(self.records)

    def pairs(self, count: int) -> Sequence[Pair]:
        return self.records[:count]

    def with_gold_at(self, position: int, count: int) -> list[Pair]:
        others = [record for i, record in enumerate(self.records) if i != self.gold]
        return _moved(self.records[self.gold], others[: count - 1], position)


def read_rows(file: str) -> Iterator[FileRow]:
    """The rows of a JSON lines file, plain or gzip, with `ordered_kv_records`, `key` and `value`.

    Raises:
        TaskError: the file is missing or cut off, or a line is not such a row; names file and line.
    """
    path, number = Path(file), 0
    try:
        with path.open("rb") as probe:
            opener = gzip.open if probe.read(2) == GZIP_MAGIC else open
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _parse(line, f"{file}, line {number}", f"row-{number - 1}")
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise TaskError("file", f"{file}, line {number + 1}", f"a whole file of JSON lines ({error})") from error
    except OSError as error:
        raise TaskError("file", file, f"a readable JSON lines file ({error.strerror})") from error
    if not number:
        raise TaskError("file", file, "at least one row")


def _parse(line: str, place: str, name: str) -> FileRow:
    def wrong(why: str) -> TaskError:
        return TaskError("file", place, f"a JSON object with ordered_kv_records, key and value ({why})")

    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise wrong(str(error)) from error
    if not isinstance(row, dict):
        raise wrong(f"it is of type {type(row).__name__}")
    for field in ("ordered_kv_records", "key", "value"):
        if field not in row:
            raise wrong(f"{field} is missing")
    records = row["ordered_kv_records"]
    if not isinstance(records, list) or len(records) < 2:
        raise wrong("ordered_kv_records is not a list of at least two pairs")
    for record in records:
        if not isinstance(record, list) or len(record) != 2 or not all(isinstance(text, str) for text in record):
            raise wrong(f"{record!r:.60} is not a pair of texts")
    keys = [key for key, _ in records]
    if len(set(keys)) < len(keys):
        raise wrong("a key occurs twice")
    if [row["key"], row["value"]] not in records:
        raise wrong("key and value are not among the pairs")
    return FileRow(name, tuple((key, value) for key, value in records), keys.index(row["key"]))

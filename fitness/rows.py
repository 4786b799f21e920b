"""Where the pairs of a key-value context come from: drawn from a stream of numbers, or a row of an official file."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fitness.errors import TaskError
from fitness.jsonlines import json_lines, wrong
from fitness.splits import draw

Pair = tuple[str, str]
FIELDS = "ordered_kv_records, key and value"


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
    for number, (place, row) in enumerate(json_lines(file, FIELDS)):
        yield _parse(row, place, f"row-{number}")


def _parse(row: dict[str, Any], place: str, name: str) -> FileRow:
    for field in ("ordered_kv_records", "key", "value"):
        if field not in row:
            raise wrong(place, FIELDS, f"{field} is missing")
    records = row["ordered_kv_records"]
    if not isinstance(records, list) or len(records) < 2:
        raise wrong(place, FIELDS, "ordered_kv_records is not a list of at least two pairs")
    for record in records:
        if not isinstance(record, list) or len(record) != 2 or not all(isinstance(text, str) for text in record):
            raise wrong(place, FIELDS, f"{record!r:.60} is not a pair of texts")
    keys = [key for key, _ in records]
    if len(set(keys)) < len(keys):
        raise wrong(place, FIELDS, "a key occurs twice")
    if [row["key"], row["value"]] not in records:
        raise wrong(place, FIELDS, "key and value are not among the pairs")
    return FileRow(name, tuple((key, value) for key, value in records), keys.index(row["key"]))

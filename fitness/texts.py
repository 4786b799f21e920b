"""Texts that a user names: a file, a folder of files, or a data set of the Hub; the built-in prose if none is named.

One file is a single document, whose stretches are dealt out to the splits. A folder or data set is many documents,
which are dealt out whole, by their place. Nothing is skipped: a document that cannot be read is an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fitness import splits
from fitness.errors import TaskError
from fitness.prose import builtin_prose


class HubData(BaseModel):
    """A data set of the Hub, read by the package `datasets`, which has to be installed.

    Attributes:
        name: as `datasets.load_dataset` takes it, with `config` and `revision`.
        split: of the data set; its rows are dealt out to the splits of the search.
        field: the column that holds a document's text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    config: str | None = None
    revision: str | None = None
    split: str = "test"
    field: str = "text"

    def rows(self) -> Any:
        """The rows, by index.

        Raises:
            TaskError: `datasets` is not installed, cannot give the data set, or the column is missing.
        """
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise TaskError("dataset", self.name, "a text file, or pip install datasets first") from error
        try:
            rows = load_dataset(self.name, self.config, split=self.split, revision=self.revision)
        except (OSError, ValueError, RuntimeError) as error:
            allowed = f"a data set that can be loaded ({' '.join(str(error).split())[:300]})"
            raise TaskError("dataset", f"{self.name}, split {self.split}", allowed) from error
        if self.field not in rows.column_names:
            raise TaskError("dataset.field", self.field, f"one of {', '.join(rows.column_names)}")
        return rows


@dataclass(frozen=True)
class Document:
    """A text with the name that errors call it by."""

    name: str
    read: Callable[[], str]


def documents(file: str | None, dataset: HubData | None) -> Sequence[Document]:
    """All documents of a folder or data set, or the only one of a file or of the built-in prose.

    Raises:
        TaskError: both are named, there is nothing there, or the data set cannot be loaded.
    """
    if file is not None and dataset is not None:
        raise TaskError("dataset", dataset.name, "either file or dataset")
    if dataset is not None:
        rows = dataset.rows()
        found = [Document(f"{dataset.name}, row {i}", _row(rows, dataset, i)) for i in range(len(rows))]
    elif file is None:
        found = [Document("the built-in prose", builtin_prose)]
    elif Path(file).is_dir():
        paths = sorted(p for p in Path(file).rglob("*") if p.is_file() and not _hidden(p, Path(file)))
        found = [Document(str(path), _reader(path)) for path in paths]
    else:
        found = [Document(file, _reader(Path(file)))]
    if not found:
        raise TaskError("file" if dataset is None else "dataset", file or dataset.name, "at least one document")
    return found


def held(found: Sequence[Document], split: str) -> list[int]:
    """Indices of the documents that a split may draw from."""
    splits.check(split)
    return [i for i in range(len(found)) if splits.holds(split, i)]


def read_text(path: Path) -> str:
    """A whole text file.

    Raises:
        TaskError: it cannot be read, is not UTF-8, or holds nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError("file", str(path), f"a readable text file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise TaskError("file", str(path), f"a text file in UTF-8 ({error})") from error
    if not text.strip():
        raise TaskError("file", str(path), "a text file with some text")
    return text


def _reader(path: Path) -> Callable[[], str]:
    return lambda: read_text(path)


def _row(rows: Any, dataset: HubData, index: int) -> Callable[[], str]:
    def read() -> str:
        text = rows[index][dataset.field]
        if not isinstance(text, str) or not text.strip():
            raise TaskError(
                "dataset.field", dataset.field, f"a column of texts: row {index} of {dataset.name} holds none"
            )
        return text

    return read


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)

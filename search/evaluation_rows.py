"""Rows of an evaluation on disk: one file for each profile at each length, written when all its examples are scored.

So an evaluation that was interrupted, or gets another profile or length, measures only what is new.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fitness.scoring import Score
from ropewalk.files import write_atomically
from search.errors import CampaignError

FOLDER = "rows"
SCHEMA = "ropewalk/evaluation-row/v1"


@dataclass(frozen=True)
class Row:
    """Every question's score of one profile at one length.

    Attributes:
        tokens: that went through the model.
        seconds: that measuring took.
    """

    scores: tuple[Score, ...]
    tokens: int
    seconds: float


class RowStore:
    """The rows in a folder, or nothing kept where there is none.

    Raises:
        CampaignError: the folder cannot be made or written.
    """

    def __init__(self, output: Path | None):
        self.folder = None if output is None else output / FOLDER
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / ".writable", "")
            (self.folder / ".writable").unlink()
        except OSError as error:
            raise CampaignError("--output", str(output), f"a folder that can be written ({error.strerror})") from error

    def name(self, key: str) -> str | None:
        """The row's file, seen from the output folder."""
        return None if self.folder is None else f"{FOLDER}/{key}.json"

    def load(self, key: str) -> Row | None:
        """The row measured before; None where there is none, or its file is damaged and has to be measured again."""
        if self.folder is None:
            return None
        try:
            data = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
            if data["schema"] != SCHEMA or data["key"] != key:
                return None
            return Row(tuple(Score(**score) for score in data["scores"]), data["tokens"], data["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, key: str, row: Row, about: dict[str, Any]) -> None:
        """Write a whole row; `about` says in the file what it belongs to."""
        if self.folder is None:
            return
        data = {
            "schema": SCHEMA,
            "key": key,
            **about,
            "tokens": row.tokens,
            "seconds": round(row.seconds, 3),
            "scores": [asdict(score) for score in row.scores],
        }
        write_atomically(self.folder / f"{key}.json", json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")

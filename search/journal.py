"""`events.jsonl`: every event of a campaign, one JSON object a line, with the time it was written."""

import json
from datetime import UTC, datetime

from search.events import Event, GenerationFinished, to_dict
from search.storage import Storage

NAME = "events.jsonl"


class Journal:
    """A listener that appends to the campaign's folder.

    A resumed campaign tells its finished generations again; those that are on file are not written twice. A line torn
    by a killed process is closed and counts as not written.
    """

    def __init__(self, storage: Storage):
        self.storage = storage
        self.generations: set[tuple[str, int]] = set()
        if storage.exists(NAME):
            text = storage.read(NAME)
            if not text.endswith(b"\n"):
                storage.append(NAME, b"\n")
            for line in text.split(b"\n"):
                self._remember(line)

    def _remember(self, text: bytes) -> None:
        try:
            line = json.loads(text)
        except ValueError:  # empty, or torn
            return
        if line["event"] == GenerationFinished.__name__:
            self.generations.add((line["stage"], line["generation"]))

    def __call__(self, event: Event) -> None:
        if isinstance(event, GenerationFinished) and (event.stage, event.generation) in self.generations:
            return
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **to_dict(event)}
        self.storage.append(NAME, json.dumps(line, ensure_ascii=False).encode() + b"\n")

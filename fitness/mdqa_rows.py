"""Questions with their documents, from the files of lost in the middle (Liu et al., arXiv 2307.03172).

A line holds `question`, `answers` and `ctxs`, documents of `title` and `text` of which one `isgold`. Official files
have 10, 20 or 30 documents a line: the gold one and retrieved distractors, the same in the files of every gold
position. The oracle file has the gold document alone; its distractors are then gold documents of other questions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fitness import splits
from fitness.errors import TaskError
from fitness.jsonlines import json_lines, wrong
from fitness.metrics import normalised

FIELDS = "question, answers and ctxs"


@dataclass(frozen=True)
class Document:
    title: str
    text: str


@dataclass(frozen=True)
class QARow:
    """A question, its answers, the document that holds one, and others in the order in which they are taken."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold: Document
    others: tuple[Document, ...]

    def documents(self, count: int, position: int) -> list[Document]:
        """The gold document at `position` among the first `count` − 1 others."""
        others = self.others[: count - 1]
        return [*others[:position], self.gold, *others[position:]]


def read_qa(file: str) -> Iterator[QARow]:
    """The rows of a file as written, one at a time.

    Raises:
        TaskError: the file cannot be read, or a line is not such a row; names file and line.
    """
    for number, (place, row) in enumerate(json_lines(file, FIELDS)):
        yield _parse(row, place, f"row-{number}")


def rows_of(file: str, split: str, count: int, others: int, seed: int) -> tuple[list[QARow], bool]:
    """`count` rows of a split, each with `others` or more other documents, and whether these were retrieved for it.

    Questions with the same gold document go to the same split, whatever the seed, so splits share neither. Distractors
    from other rows are of the same split, hold none of the row's answers, and are in an order drawn for the row, so
    that fewer of them are the first of more.

    Raises:
        TaskError: the file cannot be read, or it has too few rows or documents.
    """
    splits.check(split)
    units: dict[str, int] = {}
    held, retrieved = [], False
    for number, row in enumerate(read_qa(file)):
        retrieved = retrieved or bool(row.others)
        if splits.holds(split, units.setdefault(row.gold.text, len(units))):
            held.append(number)
    if len(held) < count:
        raise TaskError("contexts", count, f"at most {len(held)}, the rows of {file} in split {split}")
    chosen = splits.sample(held, count, seed, split)
    wanted = set(chosen if retrieved else held)
    kept = {number: row for number, row in enumerate(read_qa(file)) if number in wanted}
    if not retrieved and others:
        pool = list({row.gold.text: row.gold for row in kept.values()}.values())
        searched = [normalised(f"{document.title} {document.text}") for document in pool]
        rows = [_with_distractors(kept[i], pool, searched, others, (seed, split, i)) for i in chosen]
    else:
        rows = [kept[i] for i in chosen]
    return rows, retrieved


def _with_distractors(
    row: QARow, pool: Sequence[Document], searched: Sequence[str], most: int, label: tuple[object, ...]
) -> QARow:
    """The row with up to `most` documents of the pool, none of which is its own or holds an answer."""
    answers = [text for answer in row.answers if (text := normalised(answer))]  # "*" normalises to nothing
    found: list[Document] = []
    for i in sorted(range(len(pool)), key=lambda i: splits.draw(*label, "document", i)):
        if len(found) == most:
            break
        if pool[i].text != row.gold.text and not any(answer in searched[i] for answer in answers):
            found.append(pool[i])
    return QARow(row.id, row.question, row.answers, row.gold, tuple(found))


def _parse(row: dict[str, Any], place: str, name: str) -> QARow:
    for field in ("question", "answers", "ctxs"):
        if field not in row:
            raise wrong(place, FIELDS, f"{field} is missing")
    question, answers, documents = row["question"], row["answers"], row["ctxs"]
    if not isinstance(question, str) or not question.strip():
        raise wrong(place, FIELDS, "question is not a text")
    if not isinstance(answers, list) or not answers or not all(isinstance(a, str) and a.strip() for a in answers):
        raise wrong(place, FIELDS, "answers is not a list of texts, at least one")
    if not isinstance(documents, list):
        raise wrong(place, FIELDS, "ctxs is not a list of documents")
    read: list[tuple[Document, bool]] = []
    for document in documents:
        fields = document if isinstance(document, dict) else {}
        title, text, gold = fields.get("title"), fields.get("text"), fields.get("isgold")
        if not isinstance(title, str) or not isinstance(text, str) or not isinstance(gold, bool):
            raise wrong(place, FIELDS, f"{document!r:.60} is not a document with title, text and isgold")
        read.append((Document(title, text), gold))
    golds = [document for document, gold in read if gold]
    if len(golds) != 1:
        raise wrong(place, FIELDS, f"{len(golds)} documents of ctxs are gold, not one")
    others = tuple(document for document, gold in read if not gold)
    return QARow(name, question, tuple(answers), golds[0], others)

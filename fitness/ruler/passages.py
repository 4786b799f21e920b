"""Questions with their documents, in SQuAD's and HotpotQA's own formats: JSON as published, plain or gzip, or the data
sets of the Hub with the same columns.

Rows that belong together stay in one split: of SQuAD an article with all its paragraphs and questions, of HotpotQA a
question with its ten paragraphs.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness import splits
from fitness.errors import TaskError
from fitness.jsonlines import GZIP_MAGIC
from fitness.texts import HubData


@dataclass(frozen=True)
class Asked:
    """A question.

    Attributes:
        gold: its documents; of SQuAD the one that holds the answer, of HotpotQA all ten that come with it.
        near: documents of the same article, which are the first distractors.
    """

    text: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]
    near: tuple[str, ...]


@dataclass(frozen=True)
class Collection:
    """The questions of one split, the documents that may be its distractors, and how many questions have no answer.

    Documents are sorted and each is there once, as published.
    """

    questions: tuple[Asked, ...]
    documents: tuple[str, ...]
    unanswerable: int = 0


def squad(file: str | None, dataset: HubData | None, split: str, everything: bool) -> Collection:
    """SQuAD, version 1.1 or 2.0; questions marked impossible are left out, as published, and counted.

    Args:
        everything: take distractors from all splits.

    Raises:
        TaskError: the file cannot be read or is not of this format.
    """
    questions, kept, all_documents, impossible = [], [], [], 0
    for i, (place, paragraphs) in enumerate(_articles(file, dataset)):
        mine = splits.holds(split, i)
        contexts = [_text(p, "context", place) for p in paragraphs]
        all_documents += contexts
        if not mine:
            continue
        kept += contexts
        for j, paragraph in enumerate(paragraphs):
            near = tuple(dict.fromkeys(c for c in contexts if c != contexts[j]))
            for qa in _list(paragraph, "qas", f"{place}, paragraph {j}"):
                spot = f"{place}, paragraph {j}, a question"
                answers = tuple(_text(a, "text", spot) for a in _list(qa, "answers", spot))
                if qa.get("is_impossible", False) or not answers:
                    impossible += 1
                    continue
                questions.append(Asked(_text(qa, "question", spot), answers, (contexts[j],), near))
    return Collection(tuple(questions), _sorted(all_documents if everything else kept), impossible)


def hotpotqa(file: str | None, dataset: HubData | None, split: str, everything: bool) -> Collection:
    """HotpotQA's distractor setting; a document is a title and its sentences.

    Raises:
        TaskError: as `squad`.
    """
    questions, kept, all_documents = [], [], []
    for i, (place, row) in enumerate(_questions(file, dataset)):
        documents = tuple(f"{title}\n{''.join(sentences)}" for title, sentences in _pairs(row, place))
        all_documents += documents
        if splits.holds(split, i):
            kept += documents
            questions.append(Asked(_text(row, "question", place), (_text(row, "answer", place),), documents, ()))
    return Collection(tuple(questions), _sorted(all_documents if everything else kept))


def _sorted(documents: list[str]) -> tuple[str, ...]:
    return tuple(sorted(set(documents)))


def _articles(file: str | None, dataset: HubData | None) -> Iterator[tuple[str, list[Any]]]:
    """Place and paragraphs of each article; rows of the Hub of one title in a run are an article."""
    if dataset is None:
        data = _load(file, "SQuAD")
        for i, article in enumerate(_list(data, "data", str(file))):
            place = f"{file}, data {i}"
            yield place, _list(article, "paragraphs", place)
        return
    articles: dict[str, dict[str, list[Any]]] = {}
    for i, row in enumerate(_rows(dataset, "context")):
        place = f"{dataset.name}, row {i}"
        answers = row.get("answers")
        texts = answers.get("text") if isinstance(answers, dict) else None
        if not isinstance(texts, list):
            raise _wrong(place, "answers with a list of texts")
        qa = {"question": row.get("question"), "answers": [{"text": text} for text in texts]}
        paragraphs = articles.setdefault(_text(row, "title", place), {})
        paragraphs.setdefault(_text(row, "context", place), []).append(qa)
    for title, paragraphs in articles.items():
        yield f"{dataset.name}, {title}", [{"context": context, "qas": qas} for context, qas in paragraphs.items()]


def _questions(file: str | None, dataset: HubData | None) -> Iterator[tuple[str, dict[str, Any]]]:
    if dataset is not None:
        for i, row in enumerate(_rows(dataset, "context")):
            yield f"{dataset.name}, row {i}", row
        return
    rows = _load(file, "HotpotQA")
    if not isinstance(rows, list):
        raise _wrong(str(file), "a list of questions")
    for i, row in enumerate(rows):
        yield f"{file}, row {i}", row


def _pairs(row: Any, place: str) -> list[tuple[str, list[str]]]:
    """Title and sentences of each paragraph: pairs in the published file, two lists in the Hub's data set."""
    context = row.get("context") if isinstance(row, dict) else None
    if isinstance(context, dict) and isinstance(context.get("title"), list):
        context = list(zip(context["title"], context.get("sentences", ()), strict=False))
    good = (
        isinstance(context, list)
        and context
        and all(
            len(pair) == 2 and isinstance(pair[0], str) and all(isinstance(s, str) for s in pair[1]) for pair in context
        )
    )
    if not good:
        raise _wrong(place, "context as pairs of a title and its sentences")
    return context


def _rows(dataset: HubData, column: str) -> Any:
    return dataset.model_copy(update={"field": column}).rows()


def _load(file: str | None, kind: str) -> Any:
    if file is None:
        raise TaskError("file", None, f"{kind}'s JSON file, or dataset: its name on the Hub")
    path = Path(file)
    try:
        with path.open("rb") as probe:
            opener = gzip.open if probe.read(2) == GZIP_MAGIC else open
        with opener(path, "rt", encoding="utf-8") as text:
            return json.load(text)
    except json.JSONDecodeError as error:
        raise TaskError("file", f"{file}, line {error.lineno}", f"{kind}'s JSON ({error.msg})") from error
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise TaskError("file", file, f"{kind}'s whole JSON file ({error})") from error
    except OSError as error:
        raise TaskError("file", file, f"{kind}'s JSON file, readable ({error.strerror})") from error


def _list(data: Any, field: str, place: str) -> list[Any]:
    found = data.get(field) if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise _wrong(place, f"a list `{field}`")
    return found


def _text(data: Any, field: str, place: str) -> str:
    found = data.get(field) if isinstance(data, dict) else None
    if not isinstance(found, str):
        raise _wrong(place, f"a text `{field}`")
    return found


def _wrong(place: str, what: str) -> TaskError:
    return TaskError("file", place, f"an entry with {what}")

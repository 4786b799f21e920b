"""The contexts of an InfiniteBench file with all questions about each, read without ever holding two contexts.

A line has `context` (or `content`), `input` (or `question`), `answer`, and `options` where there is a choice. Books are
asked about several times, on lines of their own: what is dealt out to the splits is the context, so no two splits share
one, and the questions of a context share its prefill where the prompt allows.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fitness import splits
from fitness.errors import TaskError
from fitness.infinitebench.formats import Asked
from fitness.jsonlines import json_lines, wrong

LETTERS = "ABCD"
FIELDS = "context, input and answer"
WITH_OPTIONS = "context, input, answer and four options"
CHOICES = ("code_debug", "longbook_choice_eng")


@dataclass(frozen=True)
class Unit:
    """A context's number among the different ones of its file, the line it is first on, and what is asked about it."""

    number: int
    line: int
    questions: tuple[Asked, ...]


def units_of(file: str, name: str, split: str, count: int, most: int | None, seed: int) -> list[Unit]:
    """`count` contexts of a split, each with at most `most` of its questions.

    Raises:
        TaskError: the split is unknown, the file cannot be read or a line of it is not as the task needs it, or it has
            too few contexts.
    """
    splits.check(split)
    numbers: dict[bytes, int] = {}
    lines: dict[int, int] = {}
    asked: dict[int, list[Asked]] = {}
    for line, (place, row) in enumerate(json_lines(file, _expected(name))):
        question = parse(row, place, name)
        digest = hashlib.sha256(context_of(row, place, name).encode()).digest()
        number = numbers.setdefault(digest, len(numbers))
        if splits.holds(split, number):
            lines.setdefault(number, line)
            asked.setdefault(number, []).append(question)
    if len(lines) < count:
        raise TaskError("contexts", count, f"at most {len(lines)}, the contexts of {file} in split {split}")
    units = []
    for number in splits.sample(list(lines), count, seed, split):
        questions = asked[number]
        if most is not None:
            chosen = sorted(splits.sample(range(len(questions)), most, seed, f"{split}/{number}"))
            questions = [questions[i] for i in chosen]
        units.append(Unit(number, lines[number], tuple(questions)))
    return units


def contexts(file: str, name: str, units: Sequence[Unit]) -> Iterator[tuple[Unit, str]]:
    """Each unit with its context, in the order of the file."""
    wanted = {unit.line: unit for unit in units}
    for line, (place, row) in enumerate(json_lines(file, _expected(name))):
        if line in wanted:
            yield wanted[line], context_of(row, place, name)


def context_of(row: dict[str, Any], place: str, name: str) -> str:
    """The context of a line."""
    context = row.get("context", row.get("content"))
    if not isinstance(context, str) or not context:
        raise wrong(place, _expected(name), "context is not a text")
    return context


def parse(row: dict[str, Any], place: str, name: str) -> Asked:
    """The question of a line of the task called `name`."""
    expected = _expected(name)
    text = row.get("input", row.get("question"))
    if not isinstance(text, str):
        raise wrong(place, expected, "input is not a text")
    if row.get("answer") in (None, "", []):
        raise wrong(place, expected, "answer is missing or empty")
    answers = _texts(row["answer"], place, expected)
    if name in CHOICES:
        options, answers = _choice(row.get("options"), answers, place)
        return Asked(text, answers, options)
    if name in ("code_run", "math_calc", "passkey", "number_string", "math_find"):
        for answer in answers:
            if not re.fullmatch(r"-?\d+(\.\d+)?" if name == "math_find" else r"-?\d+", answer):
                raise wrong(place, expected, f"the answer {answer!r:.40} is not a number")
    call = target = ""
    if name == "code_run":
        found = re.search(r"func_\d+\(-?\d+\)", str(row.get("func_call") or text))
        if not found:
            raise wrong(place, expected, f"input {text!r:.60} names no call like func_1(2)")
        call = found[0]
    if name == "math_find":
        found = re.search(r"\b([Tt]he .+?) of ", text)
        if not found:
            raise wrong(place, expected, f"input {text!r:.60} asks for no number, as `the … of` does")
        target = found[1].lower()
    return Asked(text, answers, (), call, target)


def _expected(name: str) -> str:
    return WITH_OPTIONS if name in CHOICES else FIELDS


def _texts(answer: Any, place: str, expected: str) -> tuple[str, ...]:
    """An answer, or each of a list of answers (nested once in some files), as a text."""
    if isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], list):
        answer = answer[0]
    answers = answer if isinstance(answer, list) else [answer]
    if not answers or not all(isinstance(a, str | int | float) and not isinstance(a, bool) for a in answers):
        raise wrong(place, expected, "answer is neither a text, a number nor a list of them")
    return tuple(map(str, answers))


def _choice(options: Any, answers: Sequence[str], place: str) -> tuple[tuple[str, ...], tuple[str, str]]:
    """The four options, and the right one with its letter."""
    if not isinstance(options, list) or len(options) != 4 or not all(isinstance(option, str) for option in options):
        raise wrong(place, WITH_OPTIONS, "options is not a list of four texts")
    if len(answers) == 2 and answers[1] in list(LETTERS):
        return tuple(options), (answers[0], answers[1])
    if answers[0] not in options:
        raise wrong(place, WITH_OPTIONS, f"the answer {answers[0]!r:.40} is not among the options")
    return tuple(options), (answers[0], LETTERS[options.index(answers[0])])

"""Contexts of the six tasks that need no data: passkey, number string, key-value, math_find, math_calc, code_run.

Texts and forms are the published ones (OpenBMB/InfiniteBench, `data/construct_synthetic_dataset.py`; the paper's
section 3). Not published where we could read it, and so ours: the ranges of numbers. A list holds different integers of
five digits, so that every question has one answer; running values stay within 0 to 999, because the metric knows no
sign; functions add or subtract 1 to 99.

A made context grows with its number of units, and is the same for the same label on every machine.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fitness.forms import as_uuid
from fitness.infinitebench.formats import Asked
from fitness.kv import spread
from fitness.splits import draw, holds

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
DEPTHS = (0, 25, 50, 75, 100)  # of a needle, in percent of the noise, one after the other
QUESTIONS = 5  # about the pairs of one context
HIGHEST = 999  # running value of an expression
CALLS = range(2, 11)  # how many functions a call runs through, as published
TARGETS: dict[str, Callable[[list[int]], int]] = {  # seven questions as published, of a sorted list of odd length
    "largest": lambda numbers: numbers[-1],
    "second largest": lambda numbers: numbers[-2],
    "third largest": lambda numbers: numbers[-3],
    "smallest": lambda numbers: numbers[0],
    "second smallest": lambda numbers: numbers[1],
    "third smallest": lambda numbers: numbers[2],
    "median": lambda numbers: numbers[len(numbers) // 2],
}


@dataclass(frozen=True)
class Made:
    """A context with its questions, and of each the depth of its answer in percent, where it stands in one place."""

    context: str
    questions: tuple[Asked, ...]
    positions: tuple[int | None, ...]


@dataclass(frozen=True)
class Maker:
    """How contexts of one task are made.

    Attributes:
        make: from the number of units, the context's number in its set, the questions asked and a label.
        fewest: of the units.
        most: of the units, where there are no more different ones.
        unit: what they are called.
        several: whether more than one question can be asked.
    """

    make: Callable[[int, int, int, tuple[object, ...]], Made]
    fewest: int
    unit: str
    most: int | None = None
    several: bool = False


def _needle(key: str, what: str, units: int, index: int) -> Made:
    """A key in noise; the depth goes on from context to context."""
    depth = DEPTHS[index % len(DEPTHS)]
    before = depth * units // 100
    needle = f"The {what} is {key}. Remember it. {key} is the {what}.\n"
    context = NOISE * before + needle + NOISE * (units - before)
    return Made(context.rstrip("\n"), (Asked(f"What is the {what}?", (key,)),), (depth,))


def _digits(label: tuple[object, ...], change: Callable[[str, int], str]) -> str:
    """Five digits, changed, of which the last is one of the split's: no two splits ask for the same key."""
    split = str(label[2])
    attempt = 0
    while True:
        number = draw(*label, "key", attempt)
        key = change(f"{number % 10**5:05d}", number // 10**5)
        if holds(split, int(key)):
            return key
        attempt += 1


def _doubled(digits: str, number: int) -> str:
    """Ten digits: five times one of those there are is written twice."""
    for _ in range(5):
        number, place = divmod(number, len(digits))
        digits = digits[:place] + digits[place] + digits[place:]
    return digits


def passkey(units: int, index: int, questions: int, label: tuple[object, ...]) -> Made:
    return _needle(_digits(label, lambda digits, _: digits), "pass key", units, index)


def number_string(units: int, index: int, questions: int, label: tuple[object, ...]) -> Made:
    return _needle(_digits(label, _doubled), "sequence of digits", units, index)


def kv_retrieval(units: int, index: int, questions: int, label: tuple[object, ...]) -> Made:
    """Pairs on one line, of which `questions` are asked for, evenly spread."""
    pairs = [(as_uuid(draw(*label, "key", i)), as_uuid(draw(*label, "value", i))) for i in range(units)]
    places = spread(min(questions, units), units)
    text = '\nKey: "{}"\nThe value associated with the specified key is: '
    asked = tuple(Asked(text.format(pairs[place][0]), (pairs[place][1],)) for place in places)
    context = "JSON data:\n{" + ", ".join(f'"{key}": "{value}"' for key, value in pairs) + "}"
    return Made(context, asked, tuple(round(100 * place / (units - 1)) for place in places))


def math_find(units: int, index: int, questions: int, label: tuple[object, ...]) -> Made:
    """A list of 2·`units` + 1 numbers; the seven questions come in turn."""
    numbers: dict[int, None] = {}
    attempt = 0
    while len(numbers) < 2 * units + 1:
        numbers.setdefault(10**4 + draw(*label, attempt) % (9 * 10**4))
        attempt += 1
    what = list(TARGETS)[index % len(TARGETS)]
    target = f"the {what}" if what == "median" else f"the {what} number"
    answer = TARGETS[what](sorted(numbers))
    text = f"You should answer with only one number, no other words. T{target[1:]} of the list is: "
    asked = Asked(text, (str(answer),), target=target)
    return Made(str(list(numbers)), (asked,), (None,))


def math_calc(units: int, index: int, questions: int, label: tuple[object, ...]) -> Made:
    """`units` numbers from 1 to 99, added or subtracted; the running values are asked for, from the first number on."""
    terms: list[str] = []
    values: list[int] = []
    for i in range(units):
        chance = draw(*label, i)
        number, minus = 1 + chance % 99, chance >> 128 & 1
        before = values[-1] if values else 0
        minus = before >= number and (minus or before + number > HIGHEST)
        values.append(before - number if minus else before + number)
        terms.append(f"{'- ' if minus else '+ ' if i else ''}{number}")
    return Made(" ".join(terms), (Asked("", tuple(map(str, values))),), (None,))


def code_run(units: int, index: int, questions: int, label: tuple[object, ...]) -> Made:
    """`units` functions, of which the one called runs through 2 to 10 in turn, itself among them; the rest is noise."""
    calls = min(CALLS[index % len(CALLS)], units)
    names = sorted(range(units), key=lambda i: draw(*label, "name", i))
    bodies, value = {}, draw(*label, "argument") % 100
    argument = value
    for i in range(units):
        chance = draw(*label, "body", i)
        change, minus = 1 + chance % 99, chance >> 128 & 1
        if i < calls - 1:
            called: int | None = i + 1
        else:  # the last of the chain calls none; noise calls any function before it
            called = None if i == calls - 1 else (chance >> 129) % i
        inner = "x" if called is None else f"func_{names[called]}(x)"
        bodies[names[i]] = f"def func_{names[i]}(x):\n    return {inner} {'-' if minus else '+'} {change}"
        if i < calls:
            value += -change if minus else change
    call = f"func_{names[0]}({argument})"
    text = f"Please give me the exact number of the return value of {call}."
    context = "\n\n".join(bodies[i] for i in range(units))
    return Made(context, (Asked(text, (str(value),), call=call),), (None,))


MAKERS: dict[str, Maker] = {
    "code_run": Maker(code_run, CALLS[-1], "functions"),
    "kv_retrieval": Maker(kv_retrieval, 2, "pairs", several=True),
    "math_calc": Maker(math_calc, 2, "numbers"),
    "math_find": Maker(math_find, 3, "pairs of numbers", 40_000),
    "number_string": Maker(number_string, 0, "lines of noise"),
    "passkey": Maker(passkey, 0, "lines of noise"),
}

"""What can be said of a prompt of RULER without its chance: its words around the context, and what the context holds.

So prompts of two implementations can be compared, whose keys, values, words and order are drawn differently.
"""

import itertools
import re
from collections import Counter
from typing import Any

NEEDLE = re.compile(r"One of the special magic (\w+) for (.+?) is: (\S+)\.")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ASSIGNMENT = re.compile(r"VAR ([A-Z]+) = (?:VAR )?([A-Z]+|\d+)")
NOISE = "The grass is green."
RANKS = 4


def structure(name: str, prompt: str) -> dict[str, Any]:
    """Of a prompt with the beginning of its answer; `name` as in `fitness.ruler.NAMES`.

    `units` and what starts with `about` depend on the length that is filled, all else has to be equal.
    """
    return next(of for start, of in KINDS.items() if name.startswith(start))(prompt)


def _needles(prompt: str) -> dict[str, Any]:
    head, context = prompt.split("\n", 1)
    context, tail = context.rsplit("\nWhat ", 1)
    found = NEEDLE.findall(context)
    asked = re.search(r"for (.+?) mentioned in the provided text\?", tail).group(1)
    keys = Counter(key for _, key, _ in found)
    queries = [key for key in keys if key in asked]
    noise = context.count(NOISE)
    made = {
        "head": head,
        "tail": "What " + tail.replace(asked, f"<{len(queries)}>"),
        "noun": sorted({noun for noun, _, _ in found}),
        "key": sorted({_form(key) for key in keys}),
        "value": sorted({_form(value) for _, _, value in found}),
        "values asked for": sum(keys[key] for key in queries),
        "one line": "\n" not in context,
    }
    if len(found) > 20:  # the needles are the haystack
        return {**made, "haystack": "needles", "units": len(found)}
    units = noise or len(context.split())
    return {**made, "haystack": "noise" if noise else "prose", "needles": len(found), "units": units}


def _tracking(prompt: str) -> dict[str, Any]:
    start = "Memorize and track"
    before, context = prompt.rsplit(start, 1)
    head, context = context.split("\n\n", 1)
    context, tail = context.rsplit("\nQuestion:", 1)
    found, shown = ASSIGNMENT.findall(context), ASSIGNMENT.findall(before)
    return {
        "head": start + head,
        "tail": re.sub(r"\d{5}", "<value>", tail),
        "assignments": len(found),
        "chain": all(b[1] == a[0] for a, b in itertools.pairwise(found)),
        "letters": sorted({len(name) for name, _ in found}),
        "value": _form(found[0][1]),
        "shown assignments": len(shown),
        "shown letters": sorted({len(name) for name, _ in shown}),
        "shown question": " ".join(re.sub(r"\d{5}|[A-Z]{3}", "<>", before.rsplit("\nQuestion:", 1)[1]).split()),
        "units": context.count(NOISE),
        "about shown": before.count(NOISE),
    }


def _common(prompt: str) -> dict[str, Any]:
    start = "Below is a numbered list of words."
    head, context = prompt.rsplit(start, 1)[1].split("\n", 1)
    context, tail = context.split("\nQuestion:", 1)
    listed = re.findall(r"(\d+)\. (.+?)(?= \d+\. |$)", context)
    counts = Counter(Counter(word for _, word in listed).values())
    return {
        "head": start + head,
        "tail": _answer(tail),
        "numbered from 1": [int(number) for number, _ in listed] == list(range(1, len(listed) + 1)),
        "common": counts[max(counts)],
        "repeats": sorted(counts),
        "units": counts[min(counts)],
    }


def _frequent(prompt: str) -> dict[str, Any]:
    context, tail = prompt.rsplit("\nQuestion:", 1)
    head, context = re.match(r"(.+?coded words\. )(?=\S)(?!Find)(.*)", context, re.DOTALL).groups()
    counts = Counter(context.split())
    ranked = counts.most_common()
    return {
        "head": head,
        "tail": _answer(tail),
        "most frequent": ranked[0][0],
        "letters": sorted({len(word) for word, _ in ranked[1:]}),
        "times rarer": [round(ranked[0][1] / times) for _, times in ranked[1:RANKS]],
        "units": sum(counts.values()),
    }


def _answering(prompt: str) -> dict[str, Any]:
    head, context = prompt.split("\n\nDocument 1:\n", 1)
    context, tail = context.rsplit("\n\nAnswer the question", 1)
    numbers = [1, *map(int, re.findall(r"\n\nDocument (\d+):\n", context))]
    return {
        "head": head,
        "tail": re.sub(r"(?<=Question: ).*(?= Answer:)", "<query>", _answer("Answer the question" + tail)),
        "numbered from 1": numbers == list(range(1, len(numbers) + 1)),
        "units": len(numbers),
    }


def _answer(tail: str) -> str:
    """White space before the answer's beginning is the harness's own matter."""
    return re.sub(r"\s+Answer:", " Answer:", tail)


def _form(text: str) -> str:
    if UUID.fullmatch(text):
        return "uuid"
    return f"{len(text)} digits" if text.isdecimal() else "words"


KINDS = {"niah": _needles, "vt": _tracking, "cwe": _common, "fwe": _frequent, "qa": _answering}

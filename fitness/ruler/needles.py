"""Needles: a sentence that gives a key a magic value, as RULER writes it (Hsieh et al., arXiv 2404.06654).

Keys and values are of three forms: `words` are an adjective and a noun joined by a hyphen, `numbers` have seven digits,
`uuids` are of version 4. Whatever is finite is dealt out to the splits, so that no key or value of a search occurs in
its report; UUIDs are too many to meet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fitness.dice import Dice
from fitness.forms import as_uuid
from fitness.ruler.templates import NEEDLE, NEEDLE_ANSWER, NEEDLE_CONTEXT, NEEDLE_QUERY
from fitness.splits import stretch
from fitness.wordlist import compounds

Form = Literal["words", "numbers", "uuids"]
DIGITS = 7


def dealt(split: str, size: int, dice: Dice) -> int:
    """A random one of `size` numbered things that belongs to a split; they are dealt out in tens, the last few unused.

    `size` must be 10 or more.
    """
    first, last = stretch(split, 10)
    return 10 * dice.below(size // 10) + first + dice.below(last - first)


def _word(split: str, dice: Dice) -> str:
    adjectives, nouns = compounds()
    first, second = divmod(dealt(split, len(adjectives) * len(nouns), dice), len(nouns))
    return f"{adjectives[first]}-{nouns[second]}"


def _number(split: str, dice: Dice) -> str:
    least = 10 ** (DIGITS - 1)
    return str(least + dealt(split, 9 * least, dice))


def _uuid(split: str, dice: Dice) -> str:
    return as_uuid(sum(dice.below(2**32) << 32 * i for i in range(4)))


FORMS: dict[str, Callable[[str, Dice], str]] = {"words": _word, "numbers": _number, "uuids": _uuid}


def distinct(form: str, count: int, split: str, dice: Dice) -> list[str]:
    """`count` different keys or values of a form."""
    found: dict[str, None] = {}
    while len(found) < count:
        found.setdefault(FORMS[form](split, dice))
    return list(found)


@dataclass(frozen=True)
class Needle:
    """A key and one of its values, of the form that the sentence names."""

    key: str
    value: str
    form: str

    def __str__(self) -> str:
        return NEEDLE.format(form=self.form, key=self.key, value=self.value)


def context_of(text: str, form: str, *, single: bool) -> str:
    """The text behind the instruction that announces what is hidden; `single` if one value is asked for."""
    return _worded(NEEDLE_CONTEXT, single).format(form=_noun(form, single), context=text)


def query_of(keys: Sequence[str], form: str, *, single: bool) -> tuple[str, str]:
    """The question for the values of some keys, and the beginning of its answer."""
    query = ", ".join(keys[:-1]) + ", and " + keys[-1] if len(keys) > 1 else keys[0]
    noun = _noun(form, single)
    return (
        _worded(NEEDLE_QUERY, single).format(form=noun, query=query),
        _worded(NEEDLE_ANSWER, single).format(form=noun, query=query),
    )


def answer_of(values: Sequence[str]) -> str:
    """The gold continuation. Several values may be given in any order; teacher forcing has to settle on this one."""
    return " " + (", ".join(values[:-1]) + ", and " + values[-1] if len(values) > 1 else values[0])


def _noun(form: str, single: bool) -> str:
    return form[:-1] if single else form


def _worded(template: str, single: bool) -> str:
    """RULER's singular wording for a single value."""
    if not single:
        return template
    for plural, singular in (("Some", "A"), ("are all", "is"), ("are", "is")):
        template = template.replace(plural, singular)
    return template

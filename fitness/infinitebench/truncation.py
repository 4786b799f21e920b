"""Cutting the middle out of a prompt that is too long, as InfiniteBench does: both ends keep as many tokens.

The cut is made in the text, at the borders of tokens, because what is scored is tokenised from text; the rest is then
counted again, since other tokens meet at the seam.
"""

from typing import Any

from fitness.encoding import token_ids
from fitness.errors import TaskError

CHARACTERS = 6  # tokenised at first for each token that is kept; twice as many if that is too few
SEAM = 32  # tokens at the inner edge of an end that the missing rest may have changed

Places = list[tuple[int, int]]  # start and end in the text of each token; special ones stand at 0


def middle_cut(tokenizer: Any, text: str, room: int, tail: int) -> tuple[int, int] | None:
    """Where to cut so that `text[:front] + text[back:]` has at most `room` tokens; None if the tail alone has more.

    Of a text much longer than that only its ends are tokenised.

    Args:
        tail: characters at the end that are kept whatever they take: the question.

    Raises:
        TaskError: the tokenizer does not know the places of its tokens.
    """
    if room < 1:
        return None
    first, last = _ends(tokenizer, text, room, tail)
    if first is last and len(first) <= room:
        return len(text), len(text)
    asked = sum(end > len(text) - tail for _, end in last)  # tokens of the tail, one that reaches into it among them
    kept = room
    while kept >= asked:
        rest = max(kept - kept // 2, asked)
        half = kept - rest
        front = first[half - 1][1] if half else 0
        back = max(min(last[len(last) - rest][0], len(text) - tail), front)
        size = len(token_ids(tokenizer, text[:front] + text[back:]))
        if size <= room:
            return front, back
        kept -= size - room
    return None


def beginning(tokenizer: Any, text: str, tokens: int) -> str:
    """The beginning of a text that stands by itself, as many of its tokens as are asked for, or all of it."""
    if len(tokenizer(text, add_special_tokens=False, verbose=False).input_ids) <= tokens:
        return text
    return text[: _encoded(tokenizer, text, add_special_tokens=False)["offset_mapping"][tokens - 1][1]]


def _ends(tokenizer: Any, text: str, room: int, tail: int) -> tuple[Places, Places]:
    """Tokens of the beginning and of the end, enough for either half of the room and for the tail; or twice all."""
    size = max(CHARACTERS * room // 2, 2 * tail)
    while 2 * size < len(text):
        first, last = _places(tokenizer, text[:size]), _places(tokenizer, text[-size:])
        if min(len(first), len(last)) > room // 2 + SEAM:
            shift = len(text) - size
            return first, [(start + shift, end + shift) for start, end in last]
        size *= 2
    whole = _places(tokenizer, text)
    return whole, whole


def _places(tokenizer: Any, text: str) -> Places:
    """Of the tokens that `token_ids` gives."""
    encoded = _encoded(tokenizer, text)
    ids, end = encoded["input_ids"], tokenizer.eos_token_id
    count = len(ids)
    while count > 1 and ids[count - 1] == end and not text.endswith(tokenizer.eos_token):
        count -= 1
    return encoded["offset_mapping"][:count]


def _encoded(tokenizer: Any, text: str, **settings: Any) -> Any:
    if not tokenizer.is_fast:
        allowed = "a fast tokenizer, which knows where its tokens stand in a text that has to be cut"
        raise TaskError("tokenizer", type(tokenizer).__name__, allowed)
    return tokenizer(text, return_offsets_mapping=True, verbose=False, **settings)

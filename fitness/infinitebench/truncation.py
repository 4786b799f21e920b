"""Cutting the middle out of a prompt that is too long, as InfiniteBench does: both ends keep as many tokens.

The cut is made in the text, at the borders of tokens, because what is scored is tokenised from text; the rest is then
counted again, since other tokens meet at the seam.
"""

from typing import Any

from fitness.encoding import token_ids
from fitness.errors import TaskError


def middle_cut(tokenizer: Any, text: str, room: int, tail: int) -> tuple[int, int] | None:
    """Where to cut so that `text[:front] + text[back:]` has at most `room` tokens; None if the tail alone has more.

    Args:
        tail: characters at the end that are kept whatever they take: the question.

    Raises:
        TaskError: the tokenizer does not know the places of its tokens.
    """
    places = _places(tokenizer, text)
    if len(places) <= room:
        return len(text), len(text)
    asked = sum(end > len(text) - tail for _, end in places)  # tokens of the tail, one that reaches into it among them
    kept = room
    while kept >= asked:
        rest = max(kept - kept // 2, asked)
        half = kept - rest
        front = places[half - 1][1] if half else 0
        back = max(min(places[len(places) - rest][0], len(text) - tail), front)
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


def _places(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Start and end in the text of each token, without those that `token_ids` takes off; special ones stand at 0."""
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

"""Cutting the middle out: both ends keep as many tokens, the question stays, and only the ends are tokenised."""

import random

import pytest

from fitness.encoding import token_ids
from fitness.infinitebench.truncation import beginning, middle_cut


def prose(seed, words):
    chance = random.Random(seed)
    return " ".join("".join(chance.choice("abcdef 123\n") for _ in range(chance.randint(1, 9))) for _ in range(words))


@pytest.mark.parametrize("kind", ["tokenizer", "greedy_tokenizer"])
@pytest.mark.parametrize(("words", "room"), [(300, 90), (300, 401), (40_000, 300), (40_000, 77)])
def test_it_fills_the_room_with_both_ends_alike(request, kind, words, room):
    tokenizer = request.getfixturevalue(kind)
    text = prose(words + room, words)
    front, back = middle_cut(tokenizer, text, room, 20)
    size = len(token_ids(tokenizer, text[:front] + text[back:]))
    assert room - 4 <= size <= room
    ends = len(token_ids(tokenizer, text[:front])), len(token_ids(tokenizer, text[back:]))
    assert abs(ends[0] - ends[1]) <= 4


def test_what_fits_is_not_cut(tokenizer):
    text = prose(1, 200)
    size = len(token_ids(tokenizer, text))
    assert middle_cut(tokenizer, text, size, 20) == (len(text), len(text))
    front, back = middle_cut(tokenizer, text, size - 1, 20)
    assert 0 < front < back < len(text)


@pytest.mark.parametrize("words", [300, 20_000])
def test_a_tail_longer_than_half_is_kept_whole_and_one_longer_than_all_is_not(tokenizer, words):
    text = prose(3, words)
    tail = text[-400:]
    taken = len(token_ids(tokenizer, tail))
    front, back = middle_cut(tokenizer, text, taken + 20, 400)
    assert back <= len(text) - 400
    assert taken <= len(token_ids(tokenizer, text[:front] + text[back:])) <= taken + 20
    assert middle_cut(tokenizer, text, taken - 20, 400) is None
    assert middle_cut(tokenizer, text, 0, 400) is None


def test_only_the_ends_of_a_long_text_are_tokenised(tokenizer):
    seen = []

    class Counting:
        is_fast = True

        def __call__(self, text, **settings):
            seen.append(len(text))
            return tokenizer(text, **settings)

        def __getattr__(self, name):
            return getattr(tokenizer, name)

    text = prose(5, 100_000)
    assert middle_cut(Counting(), text, 200, 20) == middle_cut(tokenizer, text, 200, 20)
    assert max(seen) < 20 * 200 < len(text)


def test_a_beginning_has_as_many_tokens_and_is_one(tokenizer):
    text = prose(4, 60)
    for tokens in (1, 7, 50):
        cut = beginning(tokenizer, text, tokens)
        assert text.startswith(cut)
        assert len(tokenizer(cut, add_special_tokens=False).input_ids) == tokens
    assert beginning(tokenizer, text, 10_000) == text

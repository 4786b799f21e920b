"""Haystacks: every split has text of its own, passages start at sentences, go round, and say when they repeat."""

import sys
from types import SimpleNamespace

import pytest

from fitness.errors import TaskError
from fitness.haystacks import Haystack, Passage, ends_sentence, source_of
from fitness.splits import SHARES
from fitness.texts import HubData


def sentences(first, last):
    return " ".join(f"Sentence w{i} ends here." for i in range(first, last))


def numbers(words):
    return {word for word in words if word.startswith("w")}


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text(sentences(0, 500), encoding="utf-8")
    return str(path)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "deep").mkdir()
    for i in range(20):
        (tmp_path / "deep" / f"{i:02}.txt").write_text(sentences(30 * i, 30 * i + 30), encoding="utf-8")
    return str(tmp_path)


@pytest.fixture
def hub(monkeypatch):
    rows = [{"essay": sentences(30 * i, 30 * i + 30)} for i in range(20)]

    class Rows(list):
        column_names = ("essay",)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *a, **k: Rows(rows)))
    return HubData(name="someone/essays", field="essay")


@pytest.mark.parametrize("source", ["text_file", "folder", "hub"])
def test_splits_share_no_text_whatever_the_seed(request, source):
    named = source_of(request.getfixturevalue(source))
    seen = {}
    for split in SHARES:
        haystack = Haystack(*named, split)
        seen[split] = set().union(*(numbers(haystack.passage(900, seed, split).words) for seed in range(6)))
        assert len(seen[split]) > 25
    assert sum(map(len, seen.values())) == len(set().union(*seen.values()))


def test_a_passage_follows_from_its_label_and_starts_a_sentence(text_file):
    haystack = Haystack(text_file, None, "search")
    starts = [haystack.passage(40, 7, i).words[:2] for i in range(8)]
    assert all(first == "Sentence" for first, _ in starts)
    assert len({second for _, second in starts}) > 4
    assert [Haystack(text_file, None, "search").passage(40, 7, i).words[:2] for i in range(8)] == starts


def test_a_passage_longer_than_the_text_repeats_it_and_says_so(text_file):
    haystack = Haystack(text_file, None, "validation")
    passage = haystack.passage(1000, 1)
    assert len(passage.words) == 1000
    assert len(set(passage.words[: passage.fresh])) - 3 == len(numbers(passage.words[: passage.fresh]))
    haystack.used(passage, passage.fresh)
    assert haystack.notes == ()
    haystack.used(passage, passage.fresh + 1)
    assert "too short for this length in split validation, so it repeats" in haystack.notes[0]


def test_the_builtin_prose_is_said_to_be_other_than_what_was_published():
    haystack = Haystack(None, None, "search")
    assert len(haystack.passage(3000, 0).words) == 3000
    assert "do not compare" in haystack.notes[0]


@pytest.mark.parametrize(
    ("word", "ends"), [("end.", True), ('it!"', True), ("so?)", True), ("e.g", False), ("1.5", False), ("(x)", False)]
)
def test_a_sentence_ends_with_its_sign(word, ends):
    assert ends_sentence(word) is ends


def test_places_for_needles_are_starts_of_sentences_and_the_end():
    passage = Passage(["One", "two.", "Three", "four", "five.", "Six", "seven"], 7)
    assert passage.sentences(7) == [0, 2, 5, 7]
    assert passage.sentences(4) == [0, 2, 4]
    assert [passage.place(depth, 7) for depth in (0, 0.04, 0.3, 0.7, 0.75, 1)] == [0, 0, 2, 4, 5, 7]
    assert passage.with_needles(6, [(5, "B."), (0, "A."), (5, "C.")]) == "A. One two. Three four five. B. C. Six"


def test_a_place_within_a_part_stays_in_it():
    long = Passage([*"abcdefghij", "k.", *"lmnopqrst"], 20)
    assert long.place_within(0.26, 1, 4, 20) == 5  # no sentence starts there: the word itself
    assert long.place_within(0.57, 2, 4, 20) == 11
    short = Passage([f"{word}." if i % 4 == 2 else word for i, word in enumerate("abcdefghijklmnopqrst" * 4)], 80)
    assert short.starts[:7] == [0, 3, 7, 11, 15, 19, 23]
    assert short.place_within(0.26, 1, 4, 80) == 23  # the sentence before starts in the part before
    assert short.place(0.26, 80) == 19


def test_a_source_without_words_for_a_split_is_refused(tmp_path):
    path = tmp_path / "tiny.txt"
    path.write_text("a b", encoding="utf-8")
    with pytest.raises(TaskError, match="some words for split validation"):
        Haystack(str(path), None, "validation").passage(5, 0)

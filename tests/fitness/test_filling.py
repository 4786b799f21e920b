"""Filling to a length: never over it, one unit more would be, with few tokenisations, and an error if nothing fits."""

import pytest

from fitness import filling
from fitness.encoding import encode
from fitness.errors import TaskError
from fitness.examples import Example, Question
from fitness.filling import Draft, Filler, PieceCounts

WORDS = ("alpha", "by", "conditional", "def", "exec", "the", "statement", "99", "x_y", "“quoted”")


def draft(filler, budget, factor=1.0, fewest=1, most=500, questions=1):
    def build(count):
        asked = tuple(
            Question(f"q/{i}", f"\nWhich {i}?", " this", ("this",), None, budget=budget) for i in range(questions)
        )
        return Example("e", " ".join(WORDS[i % len(WORDS)] for i in range(count)), asked)

    sizes = [sum(filler.counts([f" {WORDS[i % len(WORDS)]}" for i in range(count)])) for count in range(most + 1)]
    return Draft(build, lambda count: factor * sizes[count], fewest, most, "words")


@pytest.mark.parametrize("kind", ["tokenizer", "greedy_tokenizer", "bpe"])
@pytest.mark.parametrize(("length", "budget", "questions"), [(60, None, 1), (173, 20, 1), (201, 2, 1), (97, None, 3)])
def test_the_most_units_that_fit_and_never_more(request, kind, length, budget, questions):
    tokenizer = request.getfixturevalue(kind)
    filler = Filler(tokenizer, length)
    made = draft(filler, budget, questions=questions)
    found = filler.fill(made)
    assert encode(tokenizer, found.example).length == found.length <= length
    assert encode(tokenizer, made.build(found.count + 1)).length > length
    assert found.example == made.build(found.count)


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.5])
def test_an_estimate_in_other_units_finds_the_same(bpe, factor):
    exact = Filler(bpe, 300)
    filler = Filler(bpe, 300)
    assert filler.fill(draft(filler, 16, factor)) == exact.fill(draft(exact, 16))


def test_after_the_first_example_a_prompt_is_tokenised_once(bpe, monkeypatch):
    filler = Filler(bpe, 400)
    made = draft(filler, 16)
    filler.fill(made)
    sizes = []
    monkeypatch.setattr(filling, "token_ids", lambda *args: sizes.append(args) or original(*args))
    original = filling.__dict__["longest"].__globals__["token_ids"]
    filler.fill(made)
    assert len(sizes) == 1


def test_all_units_are_used_where_they_do_not_fill_the_length(bpe):
    filler = Filler(bpe, 400)
    found = filler.fill(draft(filler, 16, most=20))
    assert found.count == 20
    assert found.length < 400


def test_a_length_too_short_for_the_fewest_units_is_refused_with_what_they_need(bpe):
    filler = Filler(bpe, 40)
    made = draft(filler, 16, fewest=30)
    needed = encode(bpe, made.build(30)).length
    with pytest.raises(TaskError, match=f"length: got 40; allowed: at least {needed} tokens, which 30 words need"):
        filler.fill(made)


def test_a_budget_counts_where_it_is_more_than_the_answer(bpe):
    filler = Filler(bpe, 300)
    found = filler.fill(draft(filler, 100))
    question = found.example.questions[0]
    prompt = len(bpe(found.example.context + question.prompt).input_ids)
    assert found.length == prompt + 100


def test_counts_of_pieces_are_those_of_the_tokenizer_and_do_not_pile_up(bpe, monkeypatch):
    monkeypatch.setattr(filling, "REMEMBERED", 50)
    counts = PieceCounts(bpe)
    for i in range(20):
        pieces = [f" piece{i}", " the", f" other{i}", " the"]
        assert counts(pieces) == [len(bpe(piece, add_special_tokens=False).input_ids) for piece in pieces]
        assert len("".join(counts.known)) < 80

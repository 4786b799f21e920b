"""Needle in a haystack: depths, four quarters, shared and lone needles, lengths, splits and scorings."""

import re

import pytest
from pydantic import ValidationError

from fitness.encoding import encode, token_ids
from fitness.errors import TaskError
from fitness.niah import NIAHTask
from fitness.scoring import score_example
from fitness.splits import SHARES


def body(example):
    return example.context.split("\n", 1)[1]


def depths(example):
    """Depth of each needle in words of the text without needles, in their order, and the words."""
    found, words = [], 0
    parts = re.split(r"(One of the special magic \w+ for .*? is: \S+\.)(?= |$)", body(example))
    for i, part in enumerate(parts):
        if i % 2:
            found.append(words)
        else:
            words += len(part.split())
    return [place / words for place in found], words


@pytest.mark.parametrize("length", [400, 1000])
def test_a_grid_has_a_context_of_its_own_for_every_depth(bpe, length):
    found = NIAHTask(length=length, contexts=3, depths=(0, 0.25, 0.6, 1)).build(bpe, 0, "search")
    assert len(found.examples) == 12
    assert found.num_contexts == 3
    for i, example in enumerate(found.examples):
        (question,) = example.questions
        (depth,), _ = depths(example)
        wanted = (0, 0.25, 0.6, 1)[i % 4]
        assert question.position == round(100 * wanted)
        assert wanted - 0.06 < depth <= wanted
        assert question.references[0] in body(example)
    ends = [depths(example)[0][0] for example in found.examples if example.questions[0].position in (0, 100)]
    assert ends == [0, 1] * 3


def test_variants_of_a_text_hide_the_same_needle(bpe):
    found = NIAHTask(length=500, contexts=2, depths=3).build(bpe, 1, "search").examples
    for variants in (found[:3], found[3:]):
        assert len({example.questions[0].references for example in variants}) == 1
        assert len({example.id for example in variants}) == 1
        assert len({example.context for example in variants}) == 3
    assert found[0].questions[0].references != found[3].questions[0].references


@pytest.mark.parametrize(
    ("asked", "percents"), [(None, [0, 25, 50, 75, 100]), (1, [50]), (2, [0, 100]), (11, [*range(0, 101, 10)])]
)
def test_depths_are_evenly_spread(bpe, asked, percents):
    fields = {} if asked is None else {"depths": asked}
    found = NIAHTask(length=300, contexts=1, **fields).build(bpe, 0, "search")
    assert [example.questions[0].position for example in found.examples] == percents


def test_shared_needles_stand_in_one_context_with_keys_of_their_own(bpe):
    found = NIAHTask(length=900, contexts=2, depths=5, protocol="shared").build(bpe, 0, "search")
    assert len(found.examples) == 2
    for example in found.examples:
        assert [question.position for question in example.questions] == [0, 25, 50, 75, 100]
        assert len({question.prompt for question in example.questions}) == 5
        assert len({question.references for question in example.questions}) == 5
        assert depths(example)[0] == sorted(depths(example)[0])
        for question in example.questions:
            key = re.search(r"number for (\S+(?: \S+)?) mentioned", question.prompt)[1]
            assert f"for {key} is: {question.references[0]}." in body(example)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_quarters_hold_one_value_of_the_same_key_each(bpe, seed):
    found = NIAHTask(length=800, contexts=4, needle="quarters").build(bpe, seed, "search")
    for example in found.examples:
        places, words = depths(example)
        assert [min(int(4 * place), 3) for place in places] == [0, 1, 2, 3]
        assert words > 100
        (question,) = example.questions
        assert len(set(question.references)) == 4
        assert [body(example).index(value) for value in question.references] == sorted(
            body(example).index(value) for value in question.references
        )
        assert len(set(re.findall(r"magic numbers for (\S+(?: \S+)?) is:", body(example)))) == 1


@pytest.mark.parametrize("needle", ["single", "quarters"])
@pytest.mark.parametrize("scoring", ["teacher_forcing", "generation"])
def test_length_counts_the_answer_or_the_budget(bpe, needle, scoring):
    metric = "likelihood" if scoring == "teacher_forcing" else "exact"
    task = NIAHTask(length=600, contexts=2, needle=needle, scoring=scoring, metric=metric, budget=77)
    found = task.build(bpe, 0, "heldout")
    for example in found.examples:
        (question,) = example.questions
        prompt = len(token_ids(bpe, example.context + question.prompt))
        after = encode(bpe, example).length - prompt
        assert after == 77 if scoring == "generation" else after < 40
        assert 570 < encode(bpe, example).length <= found.length <= 600


def test_splits_share_no_key_no_value_and_no_text(bpe):
    keys, values, texts = {}, {}, {}
    for split in SHARES:
        examples = NIAHTask(length=300, contexts=6, depths=1).build(bpe, 5, split).examples
        needles = [re.search(r"for (\S+(?: \S+)?) is: (\d+)", body(example)).groups() for example in examples]
        keys[split], values[split] = ({needle[i] for needle in needles} for i in (0, 1))
        texts[split] = {example.context for example in examples}
    for seen in (keys, values, texts):
        assert sum(map(len, seen.values())) == len(set().union(*seen.values())) == 24


def test_the_same_arguments_give_the_same_set(bpe):
    task = NIAHTask(length=300, contexts=2, values="uuids")
    assert task.build(bpe, 3, "guard").hash == task.build(bpe, 3, "guard").hash != task.build(bpe, 4, "guard").hash


def test_text_of_the_users_own_is_the_haystack(bpe, tmp_path):
    for i in range(10):
        (tmp_path / f"{i}.txt").write_text(f"Only this file number{i}. " * 60, encoding="utf-8")
    found = NIAHTask(length=300, contexts=2, depths=2, haystack=str(tmp_path)).build(bpe, 0, "heldout")
    assert found.notes == ()
    for example in found.examples:
        rest = set(re.findall(r"number\d", body(example)))
        assert rest <= {"number4", "number5", "number6"}
        assert rest


def test_scores_are_shares_of_the_values_found(make_llama, tokenizer):
    task = NIAHTask(length=800, contexts=1, needle="quarters", budget=12)
    (example,) = task.build(tokenizer, 0, "search").examples
    (score,) = score_example(make_llama(), tokenizer, example, "generation").scores
    assert score.exact in (0, 0.25, 0.5, 0.75, 1)
    assert task.scoring == "generation"


def test_a_lone_needle_can_be_scored_without_generating(make_llama, tokenizer):
    task = NIAHTask(length=450, contexts=1, depths=1)
    (example,) = task.build(tokenizer, 0, "search").examples
    (score,) = score_example(make_llama(), tokenizer, example, task.scoring).scores
    assert task.scoring == "teacher_forcing"
    assert score.logprob < 0
    assert score.position == 50


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"needle": "quarters", "depths": 3}, "none with needle: quarters"),
        ({"needle": "quarters", "protocol": "shared"}, "official with needle: quarters"),
        ({"needle": "quarters", "scoring": "teacher_forcing"}, "likelihood, perplexity with scoring: teacher_forcing"),
        ({"scoring": "generation", "metric": "likelihood"}, "exact with scoring: generation"),
        ({"depths": (0.5, 0.501)}, "each depth once"),
        ({"depths": (0.5, 1.2)}, "less than or equal to 1"),
        ({"values": "letters"}, "'words', 'numbers' or 'uuids'"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        NIAHTask(length=500, **fields)


def test_a_length_that_holds_no_text_is_refused(bpe):
    with pytest.raises(TaskError, match=r"length: got 80; allowed: at least \d+ tokens, which 1 words need"):
        NIAHTask(length=80).build(bpe, 0, "search")


def test_another_length_changes_nothing_else():
    task = NIAHTask(length=500, depths=3, protocol="shared")
    assert task.at_length(900, 2) == NIAHTask(length=900, contexts=2, depths=3, protocol="shared")
    assert task.at_length(None) == task

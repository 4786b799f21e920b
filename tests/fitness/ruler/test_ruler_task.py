"""What holds for all thirteen tasks: lengths with budgets, metrics, splits that share nothing, sets as values."""

import hashlib
import re

import pytest
from pydantic import ValidationError

from fitness.encoding import encode, token_ids
from fitness.errors import TaskError
from fitness.metrics import METRICS
from fitness.ruler import NAMES, RulerTask
from fitness.ruler.task import DRAWINGS
from fitness.scoring import score_example

BUDGETS = {"vt": 30, "cwe": 120, "fwe": 50, "qa_1": 32, "qa_2": 32}  # as published, 128 for the others
SINGLE = [name for name in NAMES if name.startswith(("niah_single", "niah_multikey"))]
LENGTHS = {"cwe": 1200, "qa_2": 900, "vt": 1000}


def prompts(examples):
    return [example.context + example.questions[0].prompt for example in examples]


@pytest.mark.parametrize("name", NAMES)
def test_length_counts_the_published_budget_and_is_never_exceeded(built, bpe, name):
    length = LENGTHS.get(name, 700)
    found = built(name, length)
    assert len(found.examples) == 4
    budget = BUDGETS.get(name, 128)
    sizes = []
    for example in found.examples:
        (question,) = example.questions
        assert question.budget == budget
        assert question.metric == ("string_match_part" if name.startswith("qa") else "string_match_all")
        sizes.append(max(encode(bpe, example).length, len(token_ids(bpe, prompts([example])[0])) + budget))
    assert max(sizes) == found.length <= length


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("qa")])
def test_a_context_is_filled_up_to_a_unit(built, bpe, name):
    found = built(name, 1500)
    units = {"niah_multikey_3": 130, "cwe": 14, "fwe": 60}  # tokens of a line or word; fwe takes several words at once
    lines = name in ("niah_single_1", "niah_multikey_2", "vt")
    unit = units.get(name, 48 if lines else 30)  # the prose has words of 30 asterisks
    assert all(1500 - unit < encode(bpe, example).length <= 1500 for example in found.examples)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_arguments_give_the_same_set_and_fewer_examples_its_beginning(built, name):
    length = LENGTHS.get(name, 500)
    found = built(name, length, seed=4)
    assert built(name, length, seed=4).hash == found.hash
    assert built(name, length, seed=5).hash != found.hash
    assert built(name, length, contexts=2, seed=4).examples == found.examples[:2]


@pytest.mark.parametrize("name", NAMES)
def test_splits_share_no_prompt_no_question_and_no_answer(built, name):
    length = LENGTHS.get(name, 500)
    seen = [
        {
            split: {text for example in built(name, length, seed=seed, split=split).examples for text in take(example)}
            for split, seed in (("search", 1), ("heldout", 1), ("guard", 2))
        }
        for take in (
            lambda example: example.questions[0].references,
            lambda example: [example.context],
            lambda example: [example.questions[0].prompt] if name not in ("cwe", "fwe") else [example.context],
        )
    ]
    for texts in seen:
        assert sum(map(len, texts.values())) == len(set().union(*texts.values()))


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_stands_in_its_context(built, name):
    for example in built(name, LENGTHS.get(name, 500)).examples:
        (question,) = example.questions
        if not name.startswith("qa_2"):  # the small HotpotQA of the tests has answers of its own
            assert all(reference.lower() in example.context.lower() for reference in question.references)
        assert question.prompt.endswith(question.lead)
        assert question.lead.startswith(" ")
        assert all(reference in question.answer for reference in question.references[:1])


@pytest.mark.parametrize("name", NAMES)
def test_a_gold_output_scores_one_and_an_empty_one_nothing(built, name):
    (question,) = built(name, LENGTHS.get(name, 500), contexts=1).examples[0].questions
    assert METRICS[question.metric](question.answer, question.references) == 1
    assert METRICS[question.metric]("", question.references) == 0


def test_a_model_can_be_scored_by_generation_and_by_likelihood(make_llama, built, tokenizer):
    model = make_llama()
    (example,) = built("fwe", 900, contexts=1, tokenizer=tokenizer).examples
    generated = score_example(model, tokenizer, example, "generation").scores
    forced = score_example(model, tokenizer, example, "teacher_forcing").scores
    assert 0 <= generated[0].exact <= 1
    assert generated[0].output is not None
    assert forced[0].logprob < 0


@pytest.mark.parametrize("name", NAMES)
def test_teacher_forcing_gives_exact_only_where_one_text_is_the_answer(name):
    data = {"squad": "s.json", "hotpotqa": "h.json", "length": 500, "name": name, "scoring": "teacher_forcing"}
    assert (name in SINGLE) == DRAWINGS[name].SINGLE
    RulerTask(**data, metric="likelihood")
    if name in SINGLE:
        RulerTask(**data)
    else:
        with pytest.raises(ValidationError, match="likelihood, perplexity with scoring: teacher_forcing"):
            RulerTask(**data)


@pytest.mark.parametrize(("name", "field"), [("qa_1", "squad"), ("qa_2", "hotpotqa")])
def test_a_task_without_the_data_it_is_made_of_is_refused(name, field):
    with pytest.raises(ValidationError, match=f"{field}.*the JSON file that {name} is made of"):
        RulerTask(name=name, length=500)


def test_another_length_or_number_of_examples_changes_nothing_else():
    task = RulerTask(name="vt", length=500, contexts=7, metric="likelihood", scoring="teacher_forcing")
    assert task.at_length(None) == task
    moved = task.at_length(900, 3)
    assert (moved.length, moved.contexts, moved.metric) == (900, 3, "likelihood")


@pytest.mark.parametrize("name", NAMES)
def test_a_length_that_cannot_hold_the_task_is_refused_with_what_it_needs(built, name):
    with pytest.raises(TaskError, match=r"length: got 60; allowed: at least \d+ tokens") as refused:
        built(name, 60)
    needed = int(re.search(r"at least (\d+)", str(refused.value))[1])
    if name not in ("fwe", "cwe"):  # where the length decides what is drawn
        assert built(name, needed, contexts=1).length == needed


def test_an_unknown_split_is_refused(built):
    with pytest.raises(TaskError, match="split"):
        built("vt", 900, split="training")


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("niah_single_1", "09c530331c5310f6"),
        ("niah_multikey_3", "8e14c01e1d454a76"),
        ("vt", "2f4808c4fbb9c487"),
        ("cwe", "06f5fab945d3c850"),
        ("fwe", "ea97c9eb4ad6d831"),
    ],
)
def test_prompts_and_answers_are_the_same_on_every_machine_and_python_version(built, tokenizer, name, digest):
    found = built(name, 7000, contexts=2, seed=11, split="heldout", tokenizer=tokenizer).examples
    texts = [text for e in found for text in (e.context, e.questions[0].prompt, *e.questions[0].references)]
    assert hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16] == digest

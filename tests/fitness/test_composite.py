"""Several tasks as one number of 0 to 1: its arithmetic, its examples, its intervals, and what is refused."""

import math
from dataclasses import replace

import pytest
from pydantic import TypeAdapter, ValidationError

from fitness.composite import CompositeTask, Goal
from fitness.errors import TaskError
from fitness.kv import KVTask
from fitness.measures import CompositeMeasure, MeasuredPart, measure_of, overall
from fitness.scoring import Score, score_example
from fitness.statistics import bootstrap_mean, strata, values, weights

KV = {"task": "kv", "keys": "hex4", "values": "hex4", "contexts": 2, "questions": 3}
PERPLEXITY = {"task": "perplexity", "contexts": 2}
BOTH = {
    "task": "composite",
    "length": 160,
    "parts": [{"of": KV, "weight": 3, "lengths": [80, 160]}, {"of": PERPLEXITY, "name": "prose"}],
}


def score(name, exact=0.0, logprob=-1.0, tokens=1, context="c"):
    return Score(f"{name}/{context}/0", f"{name}/{context}", None, exact, logprob, tokens, None)


def part(name, share, metric="exact", scale=None, direction="maximise"):
    return MeasuredPart(name, metric, "teacher_forcing", share, scale, direction)


def test_the_score_is_the_weighted_mean_of_the_parts_means():
    measure = CompositeMeasure((part("a", 0.75), part("b", 0.25)))
    scores = [score("a", 1), score("a", 0), score("b", 1), score("b", 1), score("b", 0), score("b", 1)]
    assert overall(measure)(scores) == pytest.approx(0.75 * 0.5 + 0.25 * 0.75)
    assert sum(measure.weights(scores)) == pytest.approx(1)
    assert overall(measure)(scores[::-1]) == pytest.approx(overall(measure)(scores))


@pytest.mark.parametrize(
    ("made", "given", "expected"),
    [
        (part("a", 1), score("a", 1, -5), 1),
        (part("a", 1, "likelihood"), score("a", 0, -4, 2), math.exp(-2)),
        (part("a", 1, "perplexity"), score("a", 0, -30, 10), math.exp(-3)),
        (part("a", 1, "likelihood", (-4, -2)), score("a", 0, -3), 0.5),
        (part("a", 1, "likelihood", (-4, -2)), score("a", 0, -9), 0),
        (part("a", 1, "likelihood", (-4, -2)), score("a", 0, -1), 1),
        (part("a", 1, "exact", None, "minimise"), score("a", 0.25), 0.75),
        (part("a", 1, "likelihood", (-4, -2), "minimise"), score("a", 0, -2.5), 0.25),
    ],
)
def test_every_metric_becomes_a_number_from_0_to_1_in_the_declared_direction(made, given, expected):
    assert made.normalised(given) == pytest.approx(expected)
    assert CompositeMeasure((made,)).values([given]) == [pytest.approx(expected)]


def test_questions_of_perplexity_count_by_their_tokens():
    measure = CompositeMeasure((part("a", 0.5, "perplexity", (-2, 0)), part("b", 0.5)))
    scores = [score("a", 0, -10, 10), score("a", 0, 0.0, 30), score("b", 1)]
    assert overall(measure)(scores) == pytest.approx(0.5 * (10 * 0.5 + 30 * 1) / 40 + 0.5)


def test_the_interval_is_of_the_composite_and_draws_contexts_within_each_part():
    measure = CompositeMeasure((part("a", 0.9), part("b", 0.1)))
    scores = [score("a", 1.0, context=str(i)) for i in range(5)]
    scores += [score("b", float(i % 2), context=str(i)) for i in range(40)]
    interval = bootstrap_mean(
        values(scores, measure),
        [s.example_id for s in scores],
        seed=1,
        weights=weights(scores, measure),
        strata=strata(scores, measure),
    )
    assert interval.mean == pytest.approx(overall(measure)(scores)) == pytest.approx(0.95)
    assert 0.9 < interval.low < 0.95 < interval.high < 1  # part a, right everywhere, does not move
    assert interval.high - interval.low < 0.1 * 0.4


def test_a_section_of_a_campaign_becomes_parts_at_their_lengths():
    task = TypeAdapter(Goal).validate_python(BOTH)
    shares = {v.name: v.measured.share for v in task.variants()}
    assert shares == pytest.approx({"kv@80": 0.375, "kv@160": 0.375, "prose@160": 0.25})
    assert TypeAdapter(Goal).validate_python(task.model_dump(mode="json")) == task
    assert isinstance(TypeAdapter(Goal).validate_python(KV | {"pairs": 3}), KVTask)
    assert measure_of(task) == task.measure
    assert measure_of(KVTask(pairs=3)) == "exact"


def test_the_examples_are_those_of_the_parts_under_their_names(tokenizer):
    task = CompositeTask.model_validate(BOTH)
    examples = task.build(tokenizer, 5, "search")
    assert examples.length == 160
    by_part = {}
    for example in examples.examples:
        by_part.setdefault(task.measure.part_of(example.id).name, []).append(example)
        assert all(q.id.startswith(example.id.split("/")[0] + "/") for q in example.questions)
    assert {name: len(found) for name, found in by_part.items()} == {"kv@80": 2, "kv@160": 2, "prose@160": 2}
    assert examples == task.build(tokenizer, 5, "search")
    assert len({q.id for e in examples.examples for q in e.questions}) == examples.num_questions
    short, long = by_part["kv@80"][0], by_part["kv@160"][0]
    assert not long.context.startswith(short.context[:120])


def test_a_composite_of_one_task_scores_as_the_task_alone(make_llama, tokenizer):
    model = make_llama()
    alone = KVTask(**KV, length=100, metric="likelihood")
    task = CompositeTask(parts=[{"of": alone.model_dump(), "scale": [-20, 0]}])
    found = [
        s
        for e in task.build(tokenizer, 0, "search").examples
        for s in score_example(model, tokenizer, e, task.measure.scoring_of(e.id)).scores
    ]
    plain = sum(s.logprob / s.answer_tokens for s in found) / len(found)
    assert overall(task.measure)(found) == pytest.approx(1 + plain / 20)


def test_moved_to_a_length_every_part_is_there_once_with_its_weight():
    task = CompositeTask.model_validate(BOTH)
    short = task.at_length(64, 5)
    assert {v.name: v.measured.share for v in short.variants()} == pytest.approx({"kv@64": 0.75, "prose@64": 0.25})
    assert {v.task.contexts for v in short.variants()} == {5}
    more = task.at_length(task.length, 7)
    assert [v.name for v in more.variants()] == [v.name for v in task.variants()]
    assert {v.task.contexts for v in more.variants()} == {7}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parts": []}, "at least 1"),
        ({"parts": [{"of": KV, "weight": 0}]}, "greater than 0"),
        ({"parts": [{"of": KV}, {"of": KV}]}, "parts of different names"),
        ({"parts": [{"of": KV, "lengths": [80, 80]}]}, "each length once"),
        ({"parts": [{"of": KV, "lengths": [320]}]}, "at most 160"),
        ({"parts": [{"of": {**KV, "length": 90}, "lengths": [80]}]}, "either lengths or of.length"),
        ({"parts": [{"of": KV, "scale": [1, 0]}]}, r"\[worst, best\]"),
        ({"parts": [{"of": KV, "direction": "up"}]}, "maximise"),
        ({"direction": "minimise"}, "maximise"),
        ({"length": None}, "exactly one of length and pairs"),
    ],
)
def test_what_makes_no_sense_is_refused(change, words):
    with pytest.raises(ValidationError, match=words):
        CompositeTask.model_validate({**BOTH, "parts": [{"of": KV}], **change})


def test_a_part_that_cannot_be_built_is_named(tokenizer):
    task = CompositeTask(parts=[{"of": {**KV, "length": 20}}])
    with pytest.raises(TaskError, match=r"kv@20.length: got 20; allowed: at least"):
        task.build(tokenizer, 0, "search")


def test_a_part_that_generates_is_scored_by_generation(tokenizer):
    task = CompositeTask(
        length=100, parts=[{"of": KV | {"scoring": "generation"}, "name": "said"}, {"of": KV, "name": "forced"}]
    )
    assert task.measure.scoring_of("said@100/x") == "generation"
    assert task.measure.scoring_of("forced@100/x") == "teacher_forcing"


def test_notes_of_the_parts_are_kept_with_their_names(tokenizer):
    task = CompositeTask(length=100, parts=[{"of": KV}])
    (variant,) = task.variants()
    built = variant.task.build(tokenizer, 0, "search")
    combined = task.combine({variant.name: replace(built, notes=("not comparable",))}, 0, "search")
    assert combined.notes == ("kv@100: not comparable",)

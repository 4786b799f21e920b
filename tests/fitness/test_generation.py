"""Scoring by generation: greedy, from the same prompt ids, right if a reference is in the output."""

from dataclasses import replace

import pytest
from transformers import MistralConfig, MistralForCausalLM

from fitness.encoding import encode, longest, split
from fitness.generation import MARGIN, generated, greedy
from fitness.kv import KVTask
from fitness.scoring import score_example


@pytest.fixture(scope="module")
def example(tokenizer):
    return (
        KVTask(pairs=9, keys="hex4", values="hex4", contexts=1, questions=4).build(tokenizer, 0, "search").examples[0]
    )


@pytest.mark.parametrize("fields", [{}, {"kind": MistralForCausalLM, "config": MistralConfig, "sliding_window": 50}])
@pytest.mark.parametrize("chunk", [None, 20])
def test_outputs_over_one_prefill_are_those_of_generate_alone(make_llama, tokenizer, example, chunk, fields):
    model = make_llama(**fields)
    outputs, tokens = generated(model, tokenizer, encode(tokenizer, example), chunk)
    alone = []
    for question in example.questions:
        head, tail = split(tokenizer, example.context, question.prompt, question.answer)
        ids = greedy(model, tuple(head), len(tail) + MARGIN)
        alone.append(tokenizer.decode(ids, skip_special_tokens=True))
    assert outputs == alone
    assert len(set(alone)) > 1
    assert tokens < 2 * encode(tokenizer, example).length


def test_settings_of_the_model_for_sampling_do_not_apply(make_llama, tokenizer, example):
    model = make_llama()
    head, _ = split(tokenizer, example.context, example.questions[0].prompt, example.questions[0].answer)
    before = greedy(model, tuple(head), 12)
    model.generation_config.update(do_sample=True, temperature=2.0, repetition_penalty=5.0, num_beams=3)
    assert greedy(model, tuple(head), 12) == before


def test_a_token_that_the_model_rules_out_is_no_fault(make_llama, tokenizer, example):
    model = make_llama()
    model.generation_config.suppress_tokens = [3]
    scores = score_example(model, tokenizer, example, "generation").scores
    assert len(scores) == len(example.questions)


def test_a_generated_score_has_an_output_and_no_likelihood(make_llama, tokenizer, example):
    for score in score_example(make_llama(), tokenizer, example, "generation").scores:
        assert score.logprob is None
        assert isinstance(score.output, str)


def test_tiny_kv_answers_within_its_trained_length(tiny_kv):
    model, tokenizer = tiny_kv
    task = KVTask(length=160, keys="hex4", values="hex4", contexts=1, questions=6)
    scores = score_example(model, tokenizer, task.build(tokenizer, 0, "search").examples[0], "generation").scores
    assert sum(score.exact for score in scores) >= 5


def test_a_question_scores_by_its_metric_and_within_its_budget(make_llama, tokenizer, example):
    model, asked = make_llama(), example.questions[0]
    head, _ = split(tokenizer, example.context, asked.prompt, asked.answer)
    long = tokenizer.decode(greedy(model, tuple(head), 30), skip_special_tokens=True)
    wanted = (long, "never said")
    for metric, right in (("contains_any", 1.0), ("string_match_all", 0.5)):
        question = replace(asked, references=wanted, metric=metric, budget=30)
        [score] = score_example(model, tokenizer, replace(example, questions=(question,)), "generation").scores
        assert (score.output, score.exact) == (long, right)
    short = replace(asked, references=wanted, budget=2)
    [score] = score_example(model, tokenizer, replace(example, questions=(short,)), "generation").scores
    assert long.startswith(score.output)
    assert score.exact == 0.0


def test_the_length_of_an_example_counts_the_longest_budget(tokenizer, example):
    plain = encode(tokenizer, example)
    assert plain.length == longest(tokenizer, example)
    for i, budget in ((0, 100), (2, 100), (3, 1)):
        questions = [replace(q, budget=budget if j == i else None) for j, q in enumerate(example.questions)]
        budgeted = replace(example, questions=tuple(questions))
        expected = max(plain.length, len(plain.shared) + len(plain.questions[i].prompt) + budget)
        assert encode(tokenizer, budgeted).length == longest(tokenizer, budgeted) == expected

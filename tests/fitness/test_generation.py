"""Scoring by generation: greedy, from the same prompt ids, right if a reference is in the output."""

import pytest
from transformers import MistralConfig, MistralForCausalLM

from fitness.encoding import encode, split
from fitness.generation import MARGIN, generated, greedy
from fitness.kv import KVTask
from fitness.scoring import contains, score_example


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


@pytest.mark.parametrize(
    ("output", "references", "right"),
    [(' "ABC-1"\n\nKey', ("abc-1",), 1.0), (" abc", ("abc-1",), 0.0), ("x two", ("one", "Two"), 1.0), ("x", (), 0.0)],
)
def test_any_reference_in_lower_case_anywhere_in_the_output_counts(output, references, right):
    assert contains(output, references) == right


def test_tiny_kv_answers_within_its_trained_length(tiny_kv):
    model, tokenizer = tiny_kv
    task = KVTask(length=160, keys="hex4", values="hex4", contexts=1, questions=6)
    scores = score_example(model, tokenizer, task.build(tokenizer, 0, "search").examples[0], "generation").scores
    assert sum(score.exact for score in scores) >= 5

"""Teacher forcing is exact: the same as one full forward pass a question, and the same as greedy generation."""

import dataclasses

import pytest
import torch
from transformers import LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from fitness import forcing
from fitness.encoding import encode, split
from fitness.errors import NonFiniteError
from fitness.examples import Example, Question
from fitness.generation import greedy
from fitness.kv import KVTask
from fitness.perplexity import PerplexityTask
from fitness.scoring import score_example
from ropewalk import Distance, Frequency, ModelShape, Profile, apply_profile

MODELS = {
    "llama, sdpa": {},
    "llama, eager": {"attention": "eager"},
    "qwen3": {"kind": Qwen3ForCausalLM, "config": Qwen3Config, "head_dim": 8},
    "mistral, sliding window": {"kind": MistralForCausalLM, "config": MistralConfig, "sliding_window": 50},
    "mistral, no window": {"kind": MistralForCausalLM, "config": MistralConfig, "sliding_window": None},
}


class Watched(LlamaForCausalLM):
    """A Llama that remembers the most rows of logits it gave in one pass."""

    most = 0

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        Watched.most = max(Watched.most, output.logits.shape[1])
        return output


def plain(model, tokenizer, example):
    """(exact, logprob) of each question from one full forward pass of its own."""
    outcomes = []
    for question in example.questions:
        head, tail = split(tokenizer, example.context, question.prompt, question.answer)
        with torch.no_grad():
            logits = model(torch.tensor([head + tail])).logits[0, len(head) - 1 : -1].float()
        gold = torch.tensor(tail)
        logprob = logits.log_softmax(-1).gather(1, gold[:, None]).sum()
        outcomes.append((float((logits.argmax(-1) == gold).all()), float(logprob)))
    return outcomes


def assert_same(scores, outcomes):
    assert [s.exact for s in scores.scores] == [exact for exact, _ in outcomes]
    assert [s.logprob for s in scores.scores] == pytest.approx([logprob for _, logprob in outcomes], abs=1e-4)


def with_own_answers(model, tokenizer, example):
    """The example with the model's own greedy continuations as answers, every other one spoilt in its last token.

    Answers are texts: a continuation is taken up to the last token at which its text comes back as the same ids.
    """
    questions = []
    for number, question in enumerate(example.questions):
        prompt = tokenizer(example.context + question.prompt).input_ids
        ids = greedy(model, tuple(prompt), 3)
        for answer_ids in (
            [[*ids[:-1], spoilt] for spoilt in range(3, len(tokenizer))] if number % 2 else [ids, ids[:1]]
        ):
            answer = tokenizer.decode(answer_ids)
            if split(tokenizer, example.context, question.prompt, answer) == (prompt, answer_ids):
                break
        questions.append(dataclasses.replace(question, answer=answer))
    return dataclasses.replace(example, questions=tuple(questions))


@pytest.fixture(scope="module")
def example(tokenizer):
    return KVTask(pairs=9, keys="hex4", values="hex4", contexts=1).build(tokenizer, 0, "search").examples[0]


@pytest.mark.parametrize("chunk", [None, 20])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_questions_over_one_prefill_score_as_each_alone(
    make_llama, tokenizer, example, monkeypatch, name, packed, chunk
):
    if not packed:
        monkeypatch.setattr(forcing, "MASKABLE", ())
    model = make_llama(**MODELS[name])
    own = with_own_answers(model, tokenizer, example)
    for case in (example, own):
        assert_same(
            score_example(model, tokenizer, case, "teacher_forcing", chunk=chunk), plain(model, tokenizer, case)
        )
    assert {s.exact for s in score_example(model, tokenizer, own, "teacher_forcing").scores} == {0.0, 1.0}


def test_small_packs_score_as_one_large_one(make_llama, tokenizer, example, monkeypatch):
    model = make_llama()
    whole = score_example(model, tokenizer, example, "teacher_forcing")
    monkeypatch.setattr(forcing, "PACK_TOKENS", 45)
    parts = score_example(model, tokenizer, example, "teacher_forcing")
    assert parts.tokens == whole.tokens
    assert_same(parts, [(s.exact, s.logprob) for s in whole.scores])


def test_the_context_goes_through_the_model_once(make_llama, tokenizer, example):
    encoded = encode(tokenizer, example)
    scores = score_example(make_llama(), tokenizer, example, "teacher_forcing")
    assert scores.tokens == len(encoded.shared) + sum(q.length - 1 for q in encoded.questions)
    assert scores.tokens < 3 * len(encoded.shared)


def test_scores_name_question_context_and_position(make_llama, tokenizer, example):
    scores = score_example(make_llama(), tokenizer, example, "teacher_forcing").scores
    assert [(s.question_id, s.example_id, s.position) for s in scores] == [
        (q.id, example.id, q.position) for q in example.questions
    ]
    assert all(s.output is None and s.answer_tokens == 4 for s in scores)


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_exact_is_what_greedy_generation_gives_on_a_random_model(make_llama, tokenizer, example, seed):
    model = make_llama(seed)
    own = with_own_answers(model, tokenizer, example)
    assert assert_exact_is_greedy(model, tokenizer, own) == {0.0, 1.0}


def test_exact_is_what_greedy_generation_gives_on_tiny_kv(tiny_kv):
    model, tokenizer = tiny_kv
    seen = set()
    for length in (200, 500):  # within and beyond the trained 256
        task = KVTask(length=length, keys="hex4", values="hex4", contexts=2, questions=8, answer="opened")
        for example in task.build(tokenizer, 0, "search").examples:
            seen |= assert_exact_is_greedy(model, tokenizer, example)
    assert seen == {0.0, 1.0}


@pytest.mark.slow
def test_exact_is_what_greedy_generation_gives_on_smollm2(smollm2):
    model, tokenizer = smollm2
    seen = set()
    for answer in ("quoted", "bare", "opened"):
        task = KVTask(pairs=4, contexts=2, answer=answer)
        for example in task.build(tokenizer, 0, "search").examples:
            seen |= assert_exact_is_greedy(model, tokenizer, example)
    assert seen == {0.0, 1.0}


def assert_exact_is_greedy(model, tokenizer, example):
    scores = score_example(model, tokenizer, example, "teacher_forcing").scores
    for question, score in zip(example.questions, scores, strict=True):
        head, tail = split(tokenizer, example.context, question.prompt, question.answer)
        assert score.exact == float(greedy(model, tuple(head), len(tail)) == tail)
    return {score.exact for score in scores}


def test_a_profile_with_a_factor_per_layer_scores_as_its_plain_forward(make_llama, tokenizer, example):
    model = make_llama()
    native = plain(model, tokenizer, example)
    with apply_profile(model, profile(model, Frequency("linear", factor=(1.5, 4.0)))):
        scores = score_example(model, tokenizer, example, "teacher_forcing", chunk=30)
        assert_same(scores, plain(model, tokenizer, example))
    assert scores.scores[0].logprob != pytest.approx(native[0][1], abs=1e-3)


@pytest.mark.parametrize("chunk", [None, 30])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "distance",
    [
        Distance("self_extend", window=16, group_size=4),
        Distance("dca", chunk_size=24, local_size=8),
        Distance("dpe", window=16, scale_factors=(2.0, 8.0)),
    ],
    ids=lambda distance: distance.method,
)
def test_a_distance_method_scores_as_its_plain_forward(
    make_llama, tokenizer, example, monkeypatch, distance, packed, chunk
):
    if not packed:
        monkeypatch.setattr(forcing, "MASKABLE", ())
    model = make_llama()
    native = plain(model, tokenizer, example)
    applied = dataclasses.replace(profile(model, Frequency("native")), distance=distance)
    with apply_profile(model, applied):
        scores = score_example(model, tokenizer, example, "teacher_forcing", chunk=chunk)
        assert_same(scores, plain(model, tokenizer, example))
    assert scores.scores[0].logprob != pytest.approx(native[0][1], abs=1e-3)


def test_dynamic_ntk_sees_the_total_length_in_every_pass(make_llama, tokenizer, example):
    model = make_llama()
    model.config.max_position_embeddings = 64
    with apply_profile(model, profile(model, Frequency("dynamic_ntk", factor=2.0), trained_length=64)) as handle:
        handle.total_length = encode(tokenizer, example).length
        outcomes = plain(model, tokenizer, example)
        handle.total_length = None
        for chunk in (None, 30):
            assert_same(
                score_example(model, tokenizer, example, "teacher_forcing", chunk=chunk, handle=handle), outcomes
            )
        assert handle.total_length is None


def profile(model, frequency, **shape):
    fields = dataclasses.replace(ModelShape.from_config(model.config), **shape)
    return Profile("test", fields, 512, frequency)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("scoring", ["teacher_forcing", "generation"])
def test_logits_that_are_no_numbers_are_an_error_not_a_score(make_llama, tokenizer, example, bad, scoring):
    model = make_llama()
    with torch.no_grad():
        model.model.norm.weight[3] = bad
    with pytest.raises(NonFiniteError):
        score_example(model, tokenizer, example, scoring)


@pytest.mark.parametrize("chunk", [None, 33])
def test_a_long_answer_scores_as_one_forward_without_holding_all_logits(make_llama, tokenizer, monkeypatch, chunk):
    monkeypatch.setattr(forcing, "PACK_TOKENS", 50)
    model = make_llama(kind=Watched)
    examples = PerplexityTask(length=200, contexts=2).build(tokenizer, 0, "search")
    for example in examples.examples:
        Watched.most = 0
        scores = score_example(model, tokenizer, example, "perplexity", chunk=chunk)
        assert Watched.most <= 50
        assert scores.scores[0].answer_tokens == examples.length - 1 == 199
        assert_same(scores, plain(model, tokenizer, example))


def test_questions_without_a_common_beginning_are_scored_too(make_llama, tokenizer, greedy_tokenizer):
    model = make_llama()
    questions = tuple(Question(str(i), text, " two three", (), None) for i, text in enumerate(["one", "xyz", "abc"]))
    for each in (tokenizer, greedy_tokenizer):
        example = Example("e", "", questions)
        assert_same(score_example(model, each, example, "teacher_forcing"), plain(model, each, example))

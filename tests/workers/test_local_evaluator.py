"""The evaluator in this process: the scores of direct scoring, and candidate faults as failed results."""

import math

import pytest
import torch

from fitness.scoring import score_example
from ropewalk import apply_profile
from tests.workers.tiny import examples, profile, requests, save_model
from workers import ModelSpec
from workers.evaluator import LocalEvaluator
from workers.messages import Request


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def evaluator(folder):
    with LocalEvaluator(ModelSpec(id=str(folder)), threads=1) as made:
        made.register("search", examples())
        yield made


def test_results_are_those_of_scoring_the_examples_directly(evaluator):
    loaded = evaluator._loaded
    results = {r.request_id: r for r in evaluator.evaluate(requests(evaluator.shape, (1.0, 3.0)))}
    for factor in (1.0, 3.0):
        with apply_profile(loaded.model, profile(evaluator.shape, factor)) as handle:
            for i, example in enumerate(examples().examples):
                direct = score_example(loaded.model, loaded.tokenizer, example, "teacher_forcing", handle=handle)
                result = results[f"{factor}/{i}"]
                assert (result.status, result.scores, result.tokens) == ("ok", direct.scores, direct.tokens)
                assert result.seconds > 0
                assert result.peak_memory_bytes > 0


def test_profiles_do_not_leak_into_the_next_candidate(evaluator):
    alone = list(evaluator.evaluate(requests(evaluator.shape, (1.0,))))
    after = list(evaluator.evaluate(requests(evaluator.shape, (7.0, 1.0))))[6:]
    assert [r.scores for r in alone] == [r.scores for r in after]
    assert any(
        a.scores != b.scores for a, b in zip(alone, evaluator.evaluate(requests(evaluator.shape, (7.0,))), strict=True)
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_model_that_gives_no_numbers_fails_with_a_reason_and_no_score(evaluator, bad):
    weight = evaluator._loaded.model.lm_head.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(bad)
    results = list(evaluator.evaluate(requests(evaluator.shape, (2.0,))))
    assert {r.status for r in results} == {"failed"}
    assert all("NonFiniteError" in r.reason and r.scores == () for r in results)
    with torch.no_grad():
        weight.copy_(before)
    assert {r.status for r in evaluator.evaluate(requests(evaluator.shape, (2.0,)))} == {"ok"}


def test_a_profile_of_another_model_fails_with_a_reason(evaluator):
    request = requests(evaluator.shape, (2.0,))[0]
    foreign = {**request.profile, "model": {**request.profile["model"], "num_heads": 8}}
    (result,) = evaluator.evaluate([Request("x", foreign, "search", 0, 1, "teacher_forcing")])
    assert result.status == "failed"
    assert "num_heads" in result.reason


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("out of memory"), MemoryError("no more")])
def test_running_out_of_memory_fails_the_candidate_and_not_the_worker(evaluator, monkeypatch, error):
    def exhausted(*args, **kwargs):
        raise error

    monkeypatch.setattr("workers.evaluation.score_example", exhausted)
    (result,) = evaluator.evaluate(requests(evaluator.shape, (2.0,), count=1))
    assert result.status == "failed"
    assert result.reason.startswith("out of memory")
    monkeypatch.undo()
    (result,) = evaluator.evaluate(requests(evaluator.shape, (2.0,), count=1))
    assert result.status == "ok"


def test_a_fault_of_the_program_is_raised_and_not_scored(evaluator, monkeypatch):
    monkeypatch.setattr("workers.evaluation.score_example", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(evaluator.evaluate(requests(evaluator.shape, (2.0,), count=1)))


def test_chunks_of_a_context_change_no_decision(folder, evaluator):
    with LocalEvaluator(ModelSpec(id=str(folder)), chunk=7) as chunked:
        chunked.register("search", examples())
        for a, b in zip(
            evaluator.evaluate(requests(evaluator.shape, (2.0,))),
            chunked.evaluate(requests(chunked.shape, (2.0,))),
            strict=True,
        ):
            assert [s.exact for s in a.scores] == [s.exact for s in b.scores]
            assert [s.logprob for s in a.scores] == pytest.approx([s.logprob for s in b.scores], abs=1e-4)

"""Evaluation by actors: the local evaluator's results, whatever happens to the actors."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.workers.tiny import examples, requests, save_model
from workers import CapacityError, ModelSpec, PoolSpec, WorkerError
from workers.evaluator import LocalEvaluator
from workers.ray_evaluator import RayEvaluator

FACTORS = tuple(1.0 + 0.25 * i for i in range(10))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def evaluator(cluster, folder):
    with RayEvaluator(ModelSpec(id=str(folder)), PoolSpec(actors=2, cpus_per_actor=1)) as made:
        made.register("search", examples())
        yield made


@pytest.fixture(scope="module")
def expected(folder):
    with LocalEvaluator(ModelSpec(id=str(folder)), threads=1) as local:
        local.register("search", examples())
        return {r.request_id: r.scores for r in local.evaluate(requests(local.shape, FACTORS))}


def test_actors_give_exactly_the_scores_of_the_local_evaluator(evaluator, expected):
    results = list(evaluator.evaluate(requests(evaluator.shape, FACTORS)))
    assert {r.request_id: r.scores for r in results} == expected
    assert len({r.worker for r in results}) == 2


def test_actors_stay_between_calls(evaluator):
    pids = set(evaluator.pids)
    list(evaluator.evaluate(requests(evaluator.shape, (2.0,))))
    assert set(evaluator.pids) == pids


def test_shape_and_fingerprint_are_those_of_the_model(evaluator, folder):
    with LocalEvaluator(ModelSpec(id=str(folder))) as local:
        assert (evaluator.shape, evaluator.fingerprint) == (local.shape, local.fingerprint)


def test_killing_an_actor_in_mid_work_changes_no_result(evaluator, expected):
    before = set(evaluator.pids)
    results = []
    for result in evaluator.evaluate(requests(evaluator.shape, FACTORS)):
        results.append(result)
        if len(results) == 5:
            os.kill(min(before), signal.SIGKILL)
    assert Counter(r.request_id for r in results) == Counter(expected.keys())
    assert {r.request_id: r.scores for r in results} == expected
    assert len(set(evaluator.pids) & before) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpus_per_actor": 1}, ["workers.gpus_per_actor 1", "has 0 GPUs"]),
        ({"cpus_per_actor": 64}, ["workers.cpus_per_actor 64", "has 4 CPUs"]),
        ({"actors": 9}, ["workers.actors 9", "at most 4 actors"]),
    ],
)
def test_an_impossible_request_ends_at_once_with_the_shortage(cluster, folder, fields, words):
    begin = time.monotonic()
    with pytest.raises(CapacityError) as raised:
        RayEvaluator(ModelSpec(id=str(folder)), PoolSpec(**fields))
    assert time.monotonic() - begin < 5
    for word in words:
        assert word in str(raised.value)


def test_a_model_that_actors_cannot_load_ends_with_the_cause(cluster, tmp_path):
    with pytest.raises(WorkerError, match=r"config\.json"):
        RayEvaluator(ModelSpec(id=str(tmp_path)), PoolSpec(max_retries=0, cpus_per_actor=0.1))


@pytest.mark.gpu
def test_an_actor_with_a_gpu_of_its_own_gives_the_scores_of_the_local_evaluator(cluster, folder, expected):
    with RayEvaluator(ModelSpec(id=str(folder)), PoolSpec(cpus_per_actor=0.5, gpus_per_actor=1)) as made:
        made.register("search", examples())
        for result in made.evaluate(requests(made.shape, FACTORS)):
            assert [s.exact for s in result.scores] == [s.exact for s in expected[result.request_id]]
            assert [s.logprob for s in result.scores] == pytest.approx(
                [s.logprob for s in expected[result.request_id]], abs=1e-3
            )


def test_an_address_where_nothing_answers_is_named():
    code = "from workers.cluster import connect; from workers import PoolSpec; connect(PoolSpec(address='127.0.0.1:1'))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert process.returncode == 1
    assert "CapacityError: workers.address 127.0.0.1:1" in process.stderr

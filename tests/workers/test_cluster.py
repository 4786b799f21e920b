"""Joining a cluster: signals stay the caller's, folders are found, and capacity is counted node by node."""

import signal

import pytest
from pydantic import ValidationError

from workers import CapacityError, ModelSpec, PoolSpec, cluster


@pytest.fixture
def nodes(monkeypatch):
    def have(*resources, dead=()):
        alive = [{"Alive": True, "Resources": r} for r in resources]
        monkeypatch.setattr(cluster.ray, "nodes", lambda: alive + [{"Alive": False, "Resources": r} for r in dead])

    return have


@pytest.mark.parametrize("address", [None, "auto"])
def test_the_handler_of_sigterm_is_still_ours_after_ray_has_put_its_own(monkeypatch, address):
    def init(**settings):
        signal.signal(signal.SIGTERM, lambda number, frame: None)

    def ours(number, frame):
        pass

    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", init)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = signal.signal(signal.SIGTERM, ours)
    try:
        assert cluster.connect(PoolSpec(address=address)) == (address is None)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("pool", "fits"),
    [
        ({"cpus_per_actor": 2}, 2),  # 6 CPUs in all, but 3 on each node
        ({"cpus_per_actor": 0.3}, 20),
        ({"cpus_per_actor": 0, "gpus_per_actor": 1}, 3),
        ({"cpus_per_actor": 2, "gpus_per_actor": 1}, 2),  # the node with 2 GPUs has CPUs for one actor
        ({"cpus_per_actor": 0, "gpus_per_actor": 0.6}, 3),  # two parts of 0.6 do not share a GPU
        ({"cpus_per_actor": 0, "gpus_per_actor": 0.1}, 30),
        ({"cpus_per_actor": 0, "gpus_per_actor": 2}, 1),
    ],
)
def test_an_actor_has_to_fit_on_one_node(nodes, pool, fits):
    nodes({"CPU": 3.0, "GPU": 2.0}, {"CPU": 3.0, "GPU": 1.0}, dead=[{"CPU": 64.0, "GPU": 8.0}])
    cluster.check_capacity(PoolSpec(**pool, actors=fits))
    with pytest.raises(CapacityError, match=rf"workers\.actors {fits + 1} with .* at most {fits} actors"):
        cluster.check_capacity(PoolSpec(**pool, actors=fits + 1))


def test_actors_that_ask_for_nothing_fit_anywhere(nodes):
    nodes({"CPU": 1.0})
    cluster.check_capacity(PoolSpec(cpus_per_actor=0, actors=4096))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gpus_per_actor": 1.5}, "a whole number, or a part of one GPU"),
        ({"gpus_per_actor": 0.00001}, r"0, or at least 0\.0001"),
        ({"cpus_per_actor": 0.00001}, r"0, or at least 0\.0001"),
    ],
)
def test_shares_that_ray_cannot_give_out_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        PoolSpec(**fields)


def test_a_relative_folder_is_absolute_for_workers_but_in_a_job(monkeypatch, tmp_path):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(cluster.JOB_VARIABLE, raising=False)
    assert cluster.seen_from_workers(ModelSpec(id="model")).id == str(tmp_path / "model")
    assert cluster.seen_from_workers(ModelSpec(id="someone/model")).id == "someone/model"
    monkeypatch.setenv(cluster.JOB_VARIABLE, "{}")
    assert cluster.seen_from_workers(ModelSpec(id="model")).id == "model"

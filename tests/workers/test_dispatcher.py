"""The dispatcher with workers that sleep, die and raise on demand: nothing lost, nothing twice, nothing for ever."""

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import ray
from ray.exceptions import RayTaskError

from workers.dispatcher import DEPTH, Dispatcher
from workers.errors import WorkerError
from workers.messages import Request, Result


@ray.remote(num_cpus=0, max_restarts=0)
class Sleeper:
    """Does what a request's scoring says: a number of seconds to sleep, `die`, `raise`, or `die once FILE`."""

    def __init__(self, broken=False):
        if broken:
            raise OSError("no such weights")

    def pid(self):
        return os.getpid()

    def evaluate(self, request):
        order, _, path = request.scoring.partition(" ")
        if order == "die" or (order == "once" and not Path(path).exists()):
            if path:
                Path(path).touch()
            os._exit(1)
        if order == "raise":
            raise ZeroDivisionError("a fault of the program")
        if order != "once":
            time.sleep(float(order))
        return Result(request.id, "ok", None, (), 1, 0.0, 0, str(os.getpid()))


@ray.remote(num_cpus=0)
def crash():
    os._exit(1)


class SleepWorker:
    def __init__(self, broken=False):
        self.actor = Sleeper.remote(broken)
        self._ready = self.actor.pid.remote()

    def ready(self):
        return self._ready

    def submit(self, request):
        return self.actor.evaluate.remote(request)

    def kill(self):
        ray.kill(self.actor)


def ask(*orders):
    return [Request(f"{i}", {}, "s", 0, 1, order) for i, order in enumerate(orders)]


@pytest.fixture
def dispatch(cluster):
    made = []

    def make(size=2, retries=2, start=SleepWorker, tell=lambda reason: None):
        made.append(Dispatcher(start, size, retries, tell))
        return made[-1]

    yield make
    for dispatcher in made:
        dispatcher.close()


def ids(results):
    return Counter(r.request_id for r in results)


def test_every_request_gets_one_result(dispatch):
    dispatcher = dispatch()
    dispatcher.wait_until_ready()
    results = list(dispatcher.run(ask(*["0"] * 40)))
    assert ids(results) == Counter(str(i) for i in range(40))
    assert len({r.worker for r in results}) == 2


def test_results_come_as_they_complete_and_a_slow_one_holds_nobody_up(dispatch):
    dispatcher = dispatch()
    dispatcher.wait_until_ready()
    order = [r.request_id for r in dispatcher.run(ask("1.5", *["0.02"] * 10))]
    assert order[-1] in ("0", "2")  # the slow one, or the one that waited behind it on the same worker
    assert order.index("0") >= 9


def test_a_worker_holds_few_requests_at_a_time(dispatch):
    dispatcher = dispatch(size=1)
    dispatcher.wait_until_ready()
    run = dispatcher.run(ask(*["0.05"] * 10))
    next(run)
    assert len(dispatcher._slots[0].held) <= DEPTH


def test_killing_a_worker_in_mid_work_loses_and_repeats_nothing(dispatch):
    told = []
    dispatcher = dispatch(tell=told.append)
    pids = dispatcher.wait_until_ready()
    threading.Timer(0.3, os.kill, (pids[0], signal.SIGKILL)).start()
    results = list(dispatcher.run(ask(*["0.1"] * 12)))
    assert ids(results) == Counter(str(i) for i in range(12))
    assert {r.status for r in results} == {"ok"}
    assert len(told) == 1
    assert "worker died" in told[0]
    assert str(pids[0]) not in {str(pid) for pid in dispatcher.wait_until_ready()}


def test_a_request_that_killed_its_worker_once_succeeds_on_the_next(dispatch, tmp_path):
    results = list(dispatch().run(ask("0", f"once {tmp_path}/died", "0")))
    assert {r.status for r in results} == {"ok"}
    assert ids(results) == Counter("012")


def test_a_death_that_ray_reports_as_another_error_loses_nothing_either(dispatch):
    """As when a node is lost, or its memory runs out: no actor error, but the work is gone all the same."""
    crashes = [crash.options(max_retries=0).remote()]

    class Crashing(SleepWorker):
        def submit(self, request):
            return crashes.pop() if crashes else super().submit(request)

    told = []
    results = list(dispatch(start=Crashing, tell=told.append).run(ask(*["0"] * 6)))
    assert ids(results) == Counter("012345")
    assert {r.status for r in results} == {"ok"}
    assert len(told) == 1
    assert "worker died" in told[0]


def test_a_request_that_kills_every_worker_fails_with_the_reason_and_the_others_succeed(dispatch):
    results = list(dispatch(retries=1).run(ask("0", "die", "0", "0", "0")))
    status = {r.request_id: r for r in results}
    assert ids(results) == Counter("01234")
    assert status["1"].status == "failed"
    assert "2 workers died on it" in status["1"].reason
    assert all(status[i].status == "ok" for i in "0234")


def test_a_request_is_never_blamed_for_the_one_behind_it(dispatch):
    """The worker is gone before the result of what it did first has left it: the quick one is not at fault."""
    results = list(dispatch(size=1, retries=0).run(ask("0", "die", "0", "0")))
    assert {r.request_id: r.status for r in results} == {"0": "ok", "1": "failed", "2": "ok", "3": "ok"}


def test_a_fault_of_the_program_is_raised_after_the_retries(dispatch):
    with pytest.raises(RayTaskError, match="a fault of the program"):
        list(dispatch(retries=1).run(ask("0", "raise")))


def test_workers_that_cannot_start_end_the_run_with_the_cause(dispatch):
    dispatcher = dispatch(start=lambda: SleepWorker(broken=True))
    with pytest.raises(WorkerError, match="no such weights"):
        dispatcher.wait_until_ready()


def test_replacements_that_cannot_start_end_the_run_with_the_cause(dispatch):
    started = []

    def start():
        started.append(SleepWorker(broken=len(started) >= 1))
        return started[-1]

    dispatcher = dispatch(size=1, retries=1, start=start)
    dispatcher.wait_until_ready()
    with pytest.raises(WorkerError, match="no such weights"):
        list(dispatcher.run(ask("die", "0")))


def test_a_run_that_was_left_half_read_does_not_disturb_the_next(dispatch):
    dispatcher = dispatch()
    first = dispatcher.run(ask(*["0.05"] * 8))
    next(first)
    first.close()
    results = list(dispatcher.run([Request(f"second{i}", {}, "s", 0, 1, "0") for i in range(6)]))
    assert ids(results) == Counter(f"second{i}" for i in range(6))

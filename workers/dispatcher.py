"""Hands requests to workers in small pieces and loses none: results as they complete, dead workers replaced.

Each worker has at most `DEPTH` requests at a time, so that it never waits for the next one and little is held by a
worker that dies. What a dead worker held is given out again. Which of several requests it died on cannot be known: the
result of the oldest may have been on its way. So they are suspects, and a suspect has its next worker for itself. When
workers have died on a request alone more often than `max_retries`, it becomes a failed result, since a candidate must
not be able to take the cluster down. Evaluation is pure, so giving out a request twice is harmless; its result is
yielded once.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import ray
from ray.exceptions import RayError, RayTaskError

from workers.errors import WorkerError, first_line
from workers.messages import Request, Result

DEPTH = 2


class Worker(Protocol):
    """What the dispatcher needs of a worker; every reference is one that `ray.wait` takes."""

    def ready(self) -> ray.ObjectRef:
        """Done when the worker has started; fails with what kept it from starting."""

    def submit(self, request: Request) -> ray.ObjectRef:
        """The reference of the request's `Result`."""

    def kill(self) -> None:
        """End the worker; it may be dead already."""


@dataclass
class _Slot:
    """A place for one worker, and what its present worker holds, oldest first."""

    worker: Worker
    starting: ray.ObjectRef | None
    held: deque[tuple[ray.ObjectRef, Request]] = field(default_factory=deque)


@dataclass
class _Work:
    """The requests of one run that wait, the ids of those that are suspects, and how often each one has failed."""

    waiting: deque[Request]
    suspects: set[str] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)

    def next_for(self, slot: _Slot) -> Request | None:
        """The next request for a worker that may hold others already; None when it has to wait."""
        if not self.waiting:
            return None
        together = [self.waiting[0], *(request for _, request in slot.held)]
        if len(together) > 1 and any(request.id in self.suspects for request in together):
            return None
        return self.waiting.popleft()


class Dispatcher:
    """A fixed number of workers and the requests under way.

    Args:
        start: starts a new worker and returns at once.
        size: workers.
        max_retries: how many more workers a request may take down, alone on them, after the first.
        before_retry: called with the reason whenever a worker is replaced.
    """

    def __init__(
        self,
        start: Callable[[], Worker],
        size: int,
        max_retries: int,
        before_retry: Callable[[str], Any] = lambda reason: None,
    ):
        self._start, self._max_retries, self._tell = start, max_retries, before_retry
        self._failed_starts = 0
        self._slots = [self._new() for _ in range(size)]

    @property
    def workers(self) -> list[Worker]:
        return [slot.worker for slot in self._slots]

    def wait_until_ready(self) -> list[Any]:
        """What each worker's `ready` gave, once all have started.

        Raises:
            WorkerError: a worker could not start, `max_retries` times over.
        """
        values = []
        for slot in self._slots:
            while True:
                try:
                    values.append(ray.get(slot.worker.ready()))
                    slot.starting = None
                    break
                except RayError as error:
                    self._start_failed(slot, error)
        return values

    def run(self, requests: Sequence[Request]) -> Iterator[Result]:
        """One result for each request, in the order of completion.

        Raises:
            WorkerError: workers do not start any more.
            RayTaskError: a request raised in a live worker, more than `max_retries` times: a fault of the program.
        """
        work = _Work(deque(requests))
        for slot in self._slots:
            slot.held.clear()  # of an earlier run that was not read to its end
        while work.waiting or any(slot.held for slot in self._slots):
            self._hand_out(work)
            reference = self._next()
            slot = next(s for s in self._slots if s.starting == reference or any(r == reference for r, _ in s.held))
            if slot.starting == reference:
                self._started(slot)
                continue
            try:
                result = ray.get(reference)
            except RayTaskError:
                request = self._take(slot, reference)
                work.faults[request.id] += 1
                if work.faults[request.id] > self._max_retries:
                    raise
                work.waiting.append(request)
                continue
            except RayError as error:  # the actor died, its node, for want of memory, or its result was lost with it
                yield from self._died(slot, work, error)
                continue
            self._take(slot, reference)
            yield result

    def close(self) -> None:
        for slot in self._slots:
            slot.worker.kill()

    def _new(self) -> _Slot:
        worker = self._start()
        return _Slot(worker, worker.ready())

    def _hand_out(self, work: _Work) -> None:
        """Evenly: nobody gets a second request while somebody has none."""
        for depth in range(1, DEPTH + 1):
            for slot in self._slots:
                if slot.starting is None and len(slot.held) < depth and (request := work.next_for(slot)) is not None:
                    slot.held.append((slot.worker.submit(request), request))

    def _next(self) -> ray.ObjectRef:
        """A reference that is done; a worker answers in order, so only the oldest of each can be next."""
        references = [
            slot.starting if slot.starting is not None else slot.held[0][0]
            for slot in self._slots
            if slot.starting is not None or slot.held
        ]
        (done, *_), _ = ray.wait(references, num_returns=1)
        return done

    def _take(self, slot: _Slot, reference: ray.ObjectRef) -> Request:
        request = next(request for held, request in slot.held if held == reference)
        slot.held = deque(pair for pair in slot.held if pair[0] != reference)
        return request

    def _died(self, slot: _Slot, work: _Work, error: RayError) -> Iterator[Result]:
        held = [request for _, request in slot.held]
        work.suspects.update(request.id for request in held)
        self._replace(slot, f"worker died: {first_line(error)}")
        if len(held) == 1:
            (request,) = held
            work.faults[request.id] += 1
            if work.faults[request.id] > self._max_retries:
                times = f"{work.faults[request.id]} workers died on it, the last one: {first_line(error)}"
                yield Result(request.id, "failed", times, (), 0, 0.0, 0, "none")
                return
        work.waiting.extendleft(reversed(held))

    def _started(self, slot: _Slot) -> None:
        try:
            ray.get(slot.starting)
        except RayError as error:
            self._start_failed(slot, error)
            return
        slot.starting = None
        self._failed_starts = 0

    def _start_failed(self, slot: _Slot, error: Exception) -> None:
        self._failed_starts += 1
        if self._failed_starts > self._max_retries:
            raise WorkerError(f"a worker could not start: {error}") from error
        self._replace(slot, f"worker could not start: {first_line(error)}")

    def _replace(self, slot: _Slot, reason: str) -> None:
        self._tell(reason)
        slot.worker.kill()
        new = self._new()
        slot.worker, slot.starting, slot.held = new.worker, new.starting, new.held

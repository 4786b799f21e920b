"""Evaluation on a Ray cluster: actors that load the model once and stay, fed by the dispatcher."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

import ray

from fitness.examples import ExampleSet
from workers.cluster import check_capacity, connect, seen_from_workers
from workers.dispatcher import Dispatcher
from workers.errors import WorkerError
from workers.messages import Request, Result
from workers.spec import ModelSpec, PoolSpec

log = logging.getLogger(__name__)


class ActorWorker:
    """One actor as the dispatcher sees it. A new one is told all example sets before anything else."""

    def __init__(self, spec: ModelSpec, pool: PoolSpec, sets: dict[str, ray.ObjectRef]):
        from workers.actor import ModelActor

        options = {"num_cpus": pool.cpus_per_actor, "num_gpus": pool.gpus_per_actor}
        self._actor = ModelActor.options(**options).remote(spec, pool.threads_per_actor, pool.chunk)
        self._ready = self._actor.describe.remote()
        for name, examples in sets.items():
            self.register(name, examples)

    def ready(self) -> ray.ObjectRef:
        return self._ready

    def register(self, name: str, examples: ray.ObjectRef) -> None:
        self._actor.register.remote(name, examples)

    def submit(self, request: Request) -> ray.ObjectRef:
        return self._actor.evaluate.remote(request)

    def kill(self) -> None:
        ray.kill(self._actor)


class RayEvaluator:
    """Evaluates on `pool.actors` actors; use as a context manager.

    Raises:
        CapacityError: the cluster cannot host the actors, found out before any of them starts.
        WorkerError: the actors do not come up, or have not loaded the same weights.
    """

    def __init__(self, spec: ModelSpec, pool: PoolSpec):
        self._started_here = connect(pool)
        self._dispatcher: Dispatcher | None = None
        try:
            check_capacity(pool)
            self._spec, self._pool = seen_from_workers(spec), pool
            self._sets: dict[str, ray.ObjectRef] = {}
            self._dispatcher = Dispatcher(self._start, pool.actors, pool.max_retries, log.warning)
            described = self._dispatcher.wait_until_ready()
            self.shape, self.fingerprint, _ = described[0]
            self.shape = replace(self.shape, id=spec.id)
            if len({fingerprint for _, fingerprint, _ in described}) > 1:
                raise WorkerError(f"the actors have loaded different weights of {spec.id}: update the nodes' copies")
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids of the actors, in no particular order."""
        return [ray.get(worker.ready())[2] for worker in self._dispatcher.workers]

    def _start(self) -> ActorWorker:
        return ActorWorker(self._spec, self._pool, self._sets)

    def register(self, name: str, examples: ExampleSet) -> None:
        """Ship a set once into the cluster's object store; actors that start later get it too."""
        self._sets[name] = ray.put(examples)
        for worker in self._dispatcher.workers:
            worker.register(name, self._sets[name])

    def evaluate(self, requests: Sequence[Request]) -> Iterator[Result]:
        return self._dispatcher.run(requests)

    def close(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.close()
            self._dispatcher = None
        if self._started_here:
            ray.shutdown()
            self._started_here = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

"""The Ray actor that holds a model: loads once, stays, scores one request at a time."""

import os

import ray
import torch

from fitness.examples import ExampleSet
from ropewalk import ModelShape
from workers.evaluation import evaluate, self_check
from workers.evaluator import worker_name
from workers.loading import load_model
from workers.messages import Request, Result
from workers.spec import ModelSpec


@ray.remote(max_restarts=0, max_task_retries=0)
class ModelActor:
    """Never restarted by Ray: the dispatcher decides what becomes of the work that a dead one held."""

    def __init__(self, spec: ModelSpec, threads: int, chunk: int | None):
        torch.set_num_threads(threads)
        self._loaded = load_model(spec)
        self_check(self._loaded)
        self._sets: dict[str, ExampleSet] = {}
        self._chunk = chunk

    def describe(self) -> tuple[ModelShape, str, int]:
        """Shape, fingerprint and process id, once the model is loaded."""
        return self._loaded.shape, self._loaded.fingerprint, os.getpid()

    def register(self, name: str, examples: ExampleSet) -> None:
        self._sets[name] = examples

    def evaluate(self, request: Request) -> Result:
        return evaluate(self._loaded, self._sets, request, chunk=self._chunk, worker=worker_name())

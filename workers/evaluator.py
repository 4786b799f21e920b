"""The one seam between a search and the models, and its simplest side: the model in this process."""

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Protocol, Self

import torch

from fitness.examples import ExampleSet
from ropewalk import ModelShape
from workers.evaluation import evaluate, self_check
from workers.loading import load_model
from workers.messages import Request, Result
from workers.spec import ModelSpec


class Evaluator(Protocol):
    """Scores requests. Evaluation is pure: the same request gives the same scores on every worker."""

    shape: ModelShape
    fingerprint: str

    def register(self, name: str, examples: ExampleSet) -> None:
        """Make a set known under a name before requests refer to it."""

    def evaluate(self, requests: Sequence[Request]) -> Iterator[Result]:
        """One result for each request, in the order of completion."""

    def close(self) -> None:
        """Give back what was started."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


def worker_name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


class LocalEvaluator:
    """Evaluates in this process, one request after the other.

    Raises:
        ModelError: the model cannot be loaded.
        PatchError: profiles do not take effect on it.
    """

    def __init__(self, spec: ModelSpec, threads: int | None = None, chunk: int | None = None):
        if threads is not None:
            torch.set_num_threads(threads)
        self._loaded = load_model(spec)
        self_check(self._loaded)
        self._sets: dict[str, ExampleSet] = {}
        self._chunk = chunk
        self.shape, self.fingerprint = self._loaded.shape, self._loaded.fingerprint

    def register(self, name: str, examples: ExampleSet) -> None:
        self._sets[name] = examples

    def evaluate(self, requests: Sequence[Request]) -> Iterator[Result]:
        for request in requests:
            yield evaluate(self._loaded, self._sets, request, chunk=self._chunk, worker=worker_name())

    def close(self) -> None:
        self._sets.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

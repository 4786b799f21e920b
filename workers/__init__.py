"""Workers: loading models and evaluating profiles on them, in this process or on a Ray cluster."""

from workers.errors import CapacityError, ModelError, WorkerError
from workers.spec import ModelSpec, PoolSpec

__all__ = ["CapacityError", "ModelError", "ModelSpec", "PoolSpec", "WorkerError"]

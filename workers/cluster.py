"""Joining a Ray cluster or starting one on this machine, and whether it can host the workers."""

import logging
import os
from pathlib import Path

import ray

from workers.errors import CapacityError
from workers.spec import ModelSpec, PoolSpec

LOCAL_OBJECT_STORE = 200 * 2**20  # bytes: example sets are text, results are numbers
JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set by Ray for the entrypoint of a submitted job


def connect(pool: PoolSpec) -> bool:
    """Join the cluster that is meant; True when a local one had to be started, which `disconnect` then stops.

    Raises:
        CapacityError: no cluster answers at the address.
    """
    if ray.is_initialized():
        return False
    address = pool.address or os.environ.get("RAY_ADDRESS") or ("auto" if JOB_VARIABLE in os.environ else None)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    if address is not None:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise CapacityError(f"workers.address {address}: no Ray cluster can be joined there ({error})") from error
        return False
    ray.init(
        num_cpus=os.cpu_count(),
        include_dashboard=False,
        object_store_memory=LOCAL_OBJECT_STORE,
        _node_ip_address="127.0.0.1",
        **quiet,
    )
    return True


def check_capacity(pool: PoolSpec) -> None:
    """Raise `CapacityError`, naming what is short, when the cluster cannot hold all workers."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, each in (("CPU", pool.cpus_per_actor), ("GPU", pool.gpus_per_actor)):
        field = f"workers.{name.lower()}s_per_actor"
        largest = max(node.get(name, 0.0) for node in nodes)
        if each > largest:
            raise CapacityError(f"{field} {each:g}: the largest node of the cluster has {largest:g} {name}s")
        total = sum(node.get(name, 0.0) for node in nodes)
        if each * pool.actors > total:
            fits = int(total // each)
            raise CapacityError(
                f"workers.actors {pool.actors} with {each:g} {name}s each need {each * pool.actors:g} {name}s, the "
                f"cluster has {total:g}: at most {fits} actors"
            )


def seen_from_workers(spec: ModelSpec, *, started_here: bool) -> ModelSpec:
    """The model as workers find it. On a cluster that was started here a relative folder becomes absolute; in a job it
    stays relative, since every node has its own copy of the job's working directory."""
    if started_here and Path(spec.id).expanduser().is_dir():
        return spec.model_copy(update={"id": str(Path(spec.id).expanduser().resolve())})
    return spec

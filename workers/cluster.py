"""Joining a Ray cluster or starting one on this machine, and whether it can host the workers."""

import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import ray

from workers.errors import CapacityError
from workers.spec import ModelSpec, PoolSpec

ROUNDING = 1e-9  # so that 0.3 three times in 0.9 counts as three
ANSWER_SECONDS = 5.0
LOCAL_OBJECT_STORE = 200 * 2**20  # bytes: example sets are text, results are numbers
JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set by Ray for the entrypoint of a submitted job


def connect(pool: PoolSpec) -> bool:
    """Join the cluster that is meant; True when a local one had to be started, which the caller then stops.

    Raises:
        CapacityError: no cluster answers at the address.
    """
    if ray.is_initialized():
        return False
    address = pool.address or os.environ.get("RAY_ADDRESS") or ("auto" if JOB_VARIABLE in os.environ else None)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    with _own_sigterm():
        if address is None:
            ray.init(
                num_cpus=os.cpu_count(),
                include_dashboard=False,
                object_store_memory=LOCAL_OBJECT_STORE,
                _node_ip_address="127.0.0.1",
                **quiet,
            )
            return True
        _check_answers(address)
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise CapacityError(f"workers.address {address}: no Ray cluster can be joined there ({error})") from error
        return False


def _check_answers(address: str) -> None:
    """Ray itself tries for minutes to reach a host and port where nothing listens."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # `auto` and `local`, which Ray resolves
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise CapacityError(f"workers.address {address}: no Ray cluster answers there ({error})") from error


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """`ray.init` puts a handler of its own on SIGTERM, which exits; the one that was there comes back."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def check_capacity(pool: PoolSpec) -> None:
    """Raise `CapacityError`, naming what is short, when the cluster cannot hold all workers."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    each = {"CPU": pool.cpus_per_actor, "GPU": pool.gpus_per_actor}
    for name, wanted in each.items():
        largest = max(node.get(name, 0.0) for node in nodes)
        if wanted > largest:
            field = f"workers.{name.lower()}s_per_actor"
            raise CapacityError(f"{field} {wanted:g}: the largest node of the cluster has {largest:g} {name}s")
    fits = sum(_fit(node, each) for node in nodes)
    if pool.actors > fits:
        needs = " and ".join(f"{wanted:g} {name}s" for name, wanted in each.items() if wanted)
        there = "; ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
        raise CapacityError(
            f"workers.actors {pool.actors} with {needs} each: the nodes of the cluster ({there}) hold at most "
            f"{fits:g} actors"
        )


def _fit(node: Mapping[str, float], each: Mapping[str, float]) -> float:
    """How many actors one node holds; an actor stands on one node, and its part of a GPU on one GPU."""
    fits = math.inf
    for name, wanted in each.items():
        there = node.get(name, 0.0)
        if name == "GPU" and 0 < wanted < 1:
            fits = min(fits, math.floor(there) * math.floor(1 / wanted + ROUNDING))
        elif wanted:
            fits = min(fits, math.floor(there / wanted + ROUNDING))
    return fits


def seen_from_workers(spec: ModelSpec) -> ModelSpec:
    """The model as workers find it. A relative folder becomes absolute, since workers start in a folder of Ray's own.
    In a job it stays relative, since every node has its own copy of the job's working directory."""
    if JOB_VARIABLE not in os.environ and Path(spec.id).expanduser().is_dir():
        return spec.model_copy(update={"id": str(Path(spec.id).expanduser().resolve())})
    return spec

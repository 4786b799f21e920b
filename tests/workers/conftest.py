"""One small Ray for all tests of this folder, on loopback, stopped at the end."""

import logging

import pytest
import ray


@pytest.fixture(scope="session")
def cluster():
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
    )
    yield
    ray.shutdown()

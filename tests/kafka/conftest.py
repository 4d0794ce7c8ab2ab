"""One broker for all tests that do not break it: started here, or one that is running already."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from tests.kafka.broker import Broker
from tools.kafka.server import KafkaCluster
from tools.testbed.local_engine import close_hosts

RUNNING = "REPRISE_TEST_KAFKA"
"""Environment variable with the address of a broker to use, for many runs in a row."""


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    if address := os.environ.get(RUNNING):
        yield Broker(address)
        return
    with KafkaCluster() as cluster:
        yield Broker(cluster.bootstrap)


@pytest.fixture(autouse=True)
def no_clients_live_on() -> Iterator[None]:
    """A client has threads that ask its brokers for as long as somebody holds it; some hundred of them take a whole core."""
    yield
    close_hosts()
    gc.collect()

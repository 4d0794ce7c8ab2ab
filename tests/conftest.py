"""For all tests: properties are judged by their answers, not by how busy the machine is, and have the same examples each
time.  Polars has one thread, as in the partition hosts that Reprise starts (`reprise.spark_jobs.node.spare`): for a few rows
a pool costs more than it gives."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import examples

os.environ.setdefault("POLARS_MAX_THREADS", "1")
settings.register_profile(
    "reprise", examples(100), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("reprise")
gc.disable()  # until all tests are known: what they are made of stays


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported stays: to look through it again and again for garbage takes a tenth of the time of all tests."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)

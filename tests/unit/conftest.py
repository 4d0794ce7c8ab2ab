"""Unit tests lose nodes and drivers, never power: what is on disk before a loss of power is
`tests/unit/spark_jobs/storage/test_files.py`.

Random schedules and combinations in the rooms `SAMPLED` take most of the time of all that starts nothing.  Of those that are
`wide`, `make test` runs a sixth, which is the same each time; `make test-soak` runs them all."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

SAMPLED = [
    Path(__file__).parent / room
    for room in ("spark_jobs/engine", "spark_jobs/operators", "controller/simulated_world")
]
ONE_IN = 6


@pytest.fixture(autouse=True, scope="session")
def no_disk_is_waited_for() -> Iterator[None]:
    """Thousands of small files, each flushed, are slow on a machine whose disk others use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `soak` what is not in the sample: by the name of a test, so that a new one moves no other."""
    for item in items:
        if item.get_closest_marker("wide") and any(item.path.is_relative_to(room) for room in SAMPLED):
            name = item.nodeid.rpartition("/")[2]
            if "[" in name and zlib.crc32(name.encode()) % ONE_IN:
                item.add_marker(pytest.mark.soak)

"""Unit tests lose nodes and drivers, never power: what is on disk before a loss of power is
`tests/unit/spark_jobs/storage/test_files.py`.

Of the engine, the driver and the simulated world, `make test-fast` runs the first case of each file that is not marked
itself: most of them play a whole stream."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.run_tests import MARKS

ROOT = Path(__file__).parent
WHOLE_STREAMS = [ROOT / "spark_jobs/engine", ROOT / "controller/driver", ROOT / "controller/simulated_world"]
LEFT_OUT = re.findall(r"not (\w+)", MARKS["fast"])
"""Marks of tests that `make test-fast` leaves out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but the first case of a file as `long`."""
    seen = set[Path]()
    for item in items:
        if item.path.parent in WHOLE_STREAMS and not any(item.get_closest_marker(mark) for mark in LEFT_OUT):
            if item.path in seen:
                item.add_marker(pytest.mark.long)
            seen.add(item.path)


@pytest.fixture(autouse=True, scope="session")
def no_disk_is_waited_for() -> Iterator[None]:
    """Thousands of small files, each flushed, are slow on a machine whose disk others use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        yield

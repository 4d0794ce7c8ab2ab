"""Unit tests lose nodes and drivers, never power: what is on disk before a loss of power is
`tests/unit/spark_jobs/storage/test_files.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def no_disk_is_waited_for() -> Iterator[None]:
    """Thousands of small files, each flushed, are slow on a machine whose disk others use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        yield

"""Files that tests of sources write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reprise.spark_jobs.sources.tables import load_files


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    """Write bytes or text to a file of this name; its path."""

    def write(name: str, content: bytes | str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        load_files.cache_clear()
        return str(path)

    return write

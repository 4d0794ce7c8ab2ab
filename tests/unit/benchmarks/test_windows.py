"""What `make bench-windows` compares, with few ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import windows

pytestmark = pytest.mark.wide


def test_tighter_targets_leave_less_to_read_and_to_replay(tmp_path: Path) -> None:
    found = {one.name: one for one in windows.targets(500, tmp_path)}
    assert found["off"].recovery is None
    tight, loose = found["U = 125,000"].recovery, found["U = 1,000,000"].recovery
    assert tight is not None and loose is not None
    assert tight.replay_rows <= loose.replay_rows
    lines = list(windows.shown({"targets": list(found.values())}))
    assert lines[3].endswith("| 3.5 |")


def test_all_ways_store_the_same_state(tmp_path: Path) -> None:
    found = list(windows.ways(500, tmp_path))
    assert [(one.share, one.way) for one in found] == [
        (share, way) for share in (0.01, 1.0) for way in ("whole", "pages", "log")
    ]
    assert all(one.written_mb > 0 for one in found)

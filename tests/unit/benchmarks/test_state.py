"""What `make bench-state` compares, with small states."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from benchmarks import state


def test_bytes_of_pages_follow_what_was_touched(tmp_path: Path) -> None:
    found = {(one.share, one.keys): one for one in state.stored_bytes(2, tmp_path)}
    assert found[0.01, "together"].paged_mb < 0.1 * found[0.01, "together"].arrays_mb
    assert found[0.1, "together"].paged_mb < 0.2 * found[0.1, "together"].arrays_mb
    assert found[1.0, "together"].paged_mb > found[1.0, "together"].arrays_mb * 0.9


@pytest.mark.slow
@pytest.mark.wide
def test_a_state_of_four_times_its_memory_is_held_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk: one in memory keeps everything there."""
    monkeypatch.setattr(state, "SPILL_BATCHES", 3)
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        found = list(state.spills([8], Path(folder)))
    assert [(one.memory_mb, one.keys) for one in found] == [
        (2, "at random"),
        (2, "nine of ten among a tenth"),
    ]
    assert all(0 < one.most_mb <= 2 and one.rows_s > 0 for one in found)
    assert len(list(state.shown({"spill": found}))) == 2 + 2

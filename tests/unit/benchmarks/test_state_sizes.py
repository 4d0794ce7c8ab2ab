"""What `benchmarks.state_sizes` compares, with small states: each way stores, loses and restores the same one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import state_sizes
from benchmarks.state_sizes_load import Load, bytes_a_key
from benchmarks.state_sizes_reprise import WAYS, measured
from benchmarks.state_sizes_structured import latencies_of


def load(share: float, together: bool = False) -> Load:
    return Load(4000, share, together, snapshots=2, rate=10**9)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Load, "interval_s", 0.0)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_restores_the_state_that_was_lost(way: str, tmp_path: Path) -> None:
    found = measured(way, load(0.1, together=True), tmp_path)
    state = 4000 * bytes_a_key() / 2**20
    assert found["first_mb"] > 0.9 * state
    if way == "eventual":
        assert found["written_mb"] < state
    elif way == "paged":
        assert found["written_mb"] < 0.7 * state, "two or three of four pages"
    else:
        assert found["written_mb"] > 0.9 * state
    assert found["recovery_s"] > 0
    assert found["p50_ms"] <= found["p99_ms"] <= found["greatest_ms"]


def test_a_latency_is_from_when_a_file_was_due_until_its_rows_were_done() -> None:
    triggers = [{"ended": 12.0, "rows": 200}, {"ended": 15.0, "rows": 50}, {"ended": 16.5, "rows": 50}]
    assert latencies_of(triggers, [10.0, 11.0, 14.0], 100) == [2.0, 1.0, 2.5]


@pytest.mark.slow
@pytest.mark.wide
def test_structured_streaming_keeps_the_same_state_and_recovers_it(tmp_path: Path) -> None:
    """In processes of its own, on real Spark, and killed in between."""
    arguments = ["--megabytes", "1", "--touched", "0.1", "--ways", "arrays", "paged", "rocksdb"]
    assert state_sizes.main(["--out", str(tmp_path), *arguments, "--timeout", "300"]) == 0
    found = {one.case.way: one for one in state_sizes.parsed((tmp_path / "figures.json").read_text())}
    peer = found["rocksdb"]
    assert peer.first_mb > 0
    assert peer.written_mb > 0
    assert peer.recovery_s > 0
    assert peer.p99_ms > 0
    assert found["arrays"].state_keys == peer.state_keys

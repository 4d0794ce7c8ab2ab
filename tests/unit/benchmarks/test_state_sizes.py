"""What `benchmarks.state_sizes` compares, with small states: each way stores, loses and restores the same one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import state_sizes
from benchmarks.state_sizes import Case, CaseError, Figures, Process
from benchmarks.state_sizes_load import BATCHES, BEHIND, Load, bytes_a_key
from benchmarks.state_sizes_reprise import WAYS, measured
from benchmarks.state_sizes_structured import Written, latencies_of


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


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("share", [0.001, 0.1, 1.0])
def test_batches_touch_the_share_of_keys(share: float, together: bool) -> None:
    made = load(share, together)
    assert sorted(np.concatenate(list(made.filling())).tolist()) == list(range(4000))
    batches = list(made.batches())
    assert len(batches) == 2 * BATCHES + BEHIND
    touched = set(np.concatenate(batches[:BATCHES]).tolist())
    assert len(touched) == max(BATCHES, int(4000 * share))
    assert touched <= set(range(4000))
    assert [b.tolist() for b in made.batches()] == [b.tolist() for b in batches]


def test_a_latency_is_from_when_a_file_was_due_until_its_rows_were_done() -> None:
    triggers = [{"ended": 12.0, "rows": 200}, {"ended": 15.0, "rows": 50}, {"ended": 16.5, "rows": 50}]
    assert latencies_of(triggers, [10.0, 11.0, 14.0], 100) == [2.0, 1.0, 2.5]


def test_files_that_were_removed_again_count_as_written(tmp_path: Path) -> None:
    seen = Written(tmp_path)
    (tmp_path / "1.delta").write_bytes(b"x" * 100)
    (tmp_path / ".1.delta.crc").write_bytes(b"x" * 100)
    assert seen.upto_now() == 100
    (tmp_path / "1.delta").unlink()
    (tmp_path / "2.zip").write_bytes(b"x" * 7)
    assert seen.upto_now() == 107
    seen.end()


@pytest.mark.parametrize(
    ("code", "memory", "timeout", "why"),
    [
        (
            "x = b'x' * (300 << 20); import time; time.sleep(60)",
            200.0,
            60.0,
            "more than the 200 MB of --memory",
        ),
        ("import time; time.sleep(60)", 1000.0, 0.5, "longer than the 0 s of --timeout"),
        ("raise SystemExit('the disk is full')", 1000.0, 60.0, "ended with 1: the disk is full"),
    ],
)
def test_a_case_that_cannot_be_measured_says_why(
    code: str, memory: float, timeout: float, why: str, tmp_path: Path
) -> None:
    process = Process([sys.executable, "-c", code], dict(os.environ), tmp_path, "case")
    with pytest.raises(CaseError, match=why):
        process.said(memory, timeout)
    process.end()


def test_what_was_measured_is_shown_and_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[Case]()

    def one(case: Case, options: object, folder: Path) -> Figures:
        asked.append(case)
        assert list(folder.iterdir()) == []
        failed = "took more than the 9 MB of --memory" if case.way == "arrays" else ""
        return Figures(case, 1000, failed, 100.0, 8.0, 0.25, 1.5, 1.0, 2.0, 3.0, 0.5, from_disk=False)

    monkeypatch.setattr(state_sizes, "measured", one)
    arguments = ["--out", str(tmp_path), "--megabytes", "8", "--touched", "0.1", "--ways", "paged"]
    assert state_sizes.main(arguments) == 0
    assert state_sizes.main([*arguments, "arrays", "--go-on"]) == 1
    assert [case.way for case in asked] == ["paged", "arrays"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "| 8 | 10% random | paged | 0.25 | 1.5 | 1, 2, 3 | 0.50 (not from a disk) | 100 |"
    assert lines[-1].startswith("| 8 | 10% random | arrays | took more than the 9 MB")
    assert [one["case"]["way"] for one in json.loads((tmp_path / "figures.json").read_text())] == [
        "paged",
        "arrays",
    ]


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

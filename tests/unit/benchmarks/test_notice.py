"""What `make bench-notice` makes of the records of runs and of the times at which batches were shown."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import notice
from benchmarks.notice_figures import (
    ANNOUNCED,
    UNANNOUNCED,
    Loss,
    fractions,
    loss_of,
    stood_still,
    table,
    unavailable,
)
from reprise.controller.local.run.config import Outcome, RunResult

REPORT = {
    "zero": 100.0,
    "failure": 10.0,
    "incidents": [
        {"plans": [{"added": {"o0.0": "n1#1"}}, {"added": {"o0.0": "n3#1", "o1.0": "n3#1"}}]},
        {"plans": []},
    ],
    "series": {"elapsed": [0.0, 5.0, 10.0, 12.0, 14.0, 20.0], "share": [0.2, 1.0, 1.0, 0.5, 0.75, 1.0]},
}


def options(*more: str) -> argparse.Namespace:
    return notice._options(["--out", "out", *more])


def test_the_area_is_that_above_the_availability_from_the_fault_on() -> None:
    assert unavailable(REPORT, 10.0) == pytest.approx(2 * 0.5 + 6 * 0.25)
    assert unavailable(REPORT, 3.0) == pytest.approx(1 * 0.5)
    assert unavailable(REPORT, 90.0) == unavailable(REPORT, 10.0), "a stream that has ended is available"


def test_a_query_stands_still_from_the_fault_or_its_last_batch_to_its_next() -> None:
    writes = [
        {"query": q, "at": at} for q, at in [("a", 9.0), ("a", 11.0), ("a", 14.5), ("b", 13.0), ("b", 13.5)]
    ]
    assert stood_still(writes, 10.0) == pytest.approx(3.5)
    assert stood_still(writes[:1], 10.0) == 0.0


def test_the_nodes_that_are_lost_are_far_from_each_other_and_one_stays() -> None:
    assert notice.lost_nodes(8, 4) == ["n2", "n4", "n6", "n8"]
    assert notice.lost_nodes(8, 3) == ["n2", "n5", "n8"]
    assert notice.lost_nodes(4, 2) == ["n2", "n4"]
    for refused in ("0", "8"):
        with pytest.raises(SystemExit):
            options("--lose", refused)


def test_the_same_nodes_are_lost_with_and_without_notice() -> None:
    found = notice.variants(options("--notice", "7"))
    (resource, kill), (same, announced) = found[UNANNOUNCED], found[ANNOUNCED]
    assert len(found) == 2 and resource == same
    assert kill["kill"] == announced["notice"] and announced["for"] == 7.0
    assert kill["batch"] == announced["batch"]
    assert {operator.availability for operator in resource.operators} == {"checkpoint"}


def run_of(out: Path, **more: Any) -> RunResult:
    (out / "logs").mkdir(parents=True)
    (out / "sink" / "o0" / "0").mkdir(parents=True)
    (out / "sink" / "o0" / "0" / "batch-00000001.jsonl").write_text("{}\n")
    writes = [{"query": "o0.0", "at": at} for at in (109.0, 111.0, 112.0)]
    writes += [{"query": "o9.0", "at": at} for at in (110.0, 116.0)]
    (out / "events.jsonl").write_text("".join(json.dumps(write) + "\n" for write in writes))
    decided = ("moved ", "moves-over ", "moved ", "move-prepared ")
    (out / "logs" / "coordinator.log").write_text("".join(f"event=decided rule={d}x\n" for d in decided))
    promoted = "".join(
        f"event=standby-promoted partition={p} node=n1 position=3\n" for p in ("o0.0", "o1.0", "o0.0")
    )
    (out / "logs" / "driver.log").write_text(promoted)
    return RunResult(outcome=Outcome.DONE, out=out, record={}, incident=REPORT, **more)


def test_a_run_says_what_was_lost_what_moved_and_what_was_promoted(tmp_path: Path) -> None:
    found = loss_of(2, ANNOUNCED, run_of(tmp_path), 10.0, {"o0.0"}, True)
    assert found == Loss(
        2, ANNOUNCED, "done", lost_s=2.5, still_s=6.0, top_still_s=1.0, incidents=2, moved=2, promoted=2, restored=2,
        same=True,
    )  # fmt: skip


def test_fractions_are_of_runs_that_followed_each_other() -> None:
    found = [
        Loss(1, UNANNOUNCED, "done", lost_s=10.0, same=True),
        Loss(1, ANNOUNCED, "done", lost_s=1.0, same=True),
        Loss(2, UNANNOUNCED, "done", lost_s=2.0, same=True),
        Loss(2, ANNOUNCED, "done", lost_s=1.0, same=True),
        Loss(3, ANNOUNCED, "done", lost_s=9.0, same=True),
    ]
    assert fractions(ANNOUNCED, found) == [0.1, 0.5]
    unannounced, announced = table("", found).rows
    assert unannounced[:3] == (UNANNOUNCED, "6.00 (2.00 to 10.00)", "1.00")
    assert announced[:3] == (ANNOUNCED, "1.00 (1.00 to 9.00)", "0.30 (0.10 to 0.50)")
    assert announced[-2:] == ("yes", "3")

"""What the demo says of its three runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples.demo.verdict import Verdict, judge, show, sooner
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.scheduler.back import Recovery as Took

Entries = dict[str, dict[str, Any]]


def entry(priority: int, seconds: float, measured: bool = True) -> dict[str, Any]:
    return {
        "priority": priority,
        "recovery_s": seconds if measured else None,
        "at_least_s": None if measured else seconds,
        "relapses": 0,
    }


def result(out: Path, *incidents: Entries, usual_s: float = 1.0, output: str = "a") -> RunResult:
    names = {query: each["priority"] for queries in incidents for query, each in queries.items()}
    report = {
        "incidents": [{"queries": queries} for queries in incidents],
        # by how late outputs are: not what the verdict goes by
        "lost_s": 10.0,
        "order": "value",
        "queries": {query: {"priority": p, "baseline_s": usual_s} for query, p in names.items()},
    }
    sink = out / "sink" / "a" / "0"
    sink.mkdir(parents=True, exist_ok=True)
    (sink / "batch-0000000001.jsonl").write_text(output)
    return RunResult(Outcome.DONE, out, {}, report)


BLOCKING: Entries = {"a.0": entry(10, 63.1), "b.0": entry(1, 63.1), "c.0": entry(3, 62.0)}


def judged(tmp_path: Path, *incidents: Entries, blocking: Entries = BLOCKING, **more: Any) -> Verdict:
    ours = result(tmp_path / "incremental", *incidents, **more)
    theirs = result(tmp_path / "blocking", blocking)
    return judge(ours, result(tmp_path / "reference"), theirs, 1.0)


def said(tmp_path: Path, verdict: Verdict) -> str:
    console = Console(record=True, width=250)
    show(console, verdict, tmp_path)
    return console.export_text()


def test_downtime_weighted_by_priority_decides(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"a.0": entry(10, 20.0), "b.0": entry(1, 70.0), "c.0": entry(3, 90.0)})
    assert verdict.good
    assert verdict.lost_incremental.seconds == pytest.approx(540 / 14)
    assert verdict.lost_blocking.seconds == pytest.approx(880.1 / 14)
    text = said(tmp_path, verdict)
    assert "1.6 times as much" in text and "PASSED:" in text


def test_a_query_that_only_blocking_recovery_took_down_was_never_down(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"b.0": entry(1, 14.0)})
    assert verdict.lost_incremental.seconds == pytest.approx(1.0)
    assert "3 of 3 queries were, worth 14 of 14" in sooner(verdict.queries)


def test_times_that_were_not_measured_claim_no_benefit(tmp_path: Path) -> None:
    """The query was down for 5 s when its incident was closed, and nobody knows how long after that."""
    verdict = judged(tmp_path, {"a.0": entry(10, 5.0, measured=False), "b.0": entry(1, 4.0)})
    assert not verdict.good and not verdict.lost_incremental.measured
    text = said(tmp_path, verdict)
    assert "times as much" not in text and "FAILED:" in text


def test_blocking_recovery_that_took_at_least_so_long_was_slower(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"a.0": entry(10, 5.0)}, blocking={"a.0": entry(10, 50.0, measured=False)})
    assert verdict.good and not verdict.lost_blocking.measured
    assert "at least 10.0 times as much" in said(tmp_path, verdict)


def test_a_machine_that_did_not_follow_is_no_failure_of_recovery(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"a.0": entry(10, 100.0)}, usual_s=14.0)
    assert not verdict.good and "14.0 s" in verdict.busy
    assert verdict.answer.startswith("NOT SHOWN:")


def test_a_machine_that_followed_has_no_excuse(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"a.0": entry(10, 100.0)})
    assert verdict.identical and not verdict.benefit and not verdict.busy
    assert verdict.answer.startswith("FAILED:")


def test_other_outputs_fail_however_busy_the_machine(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"a.0": entry(10, 20.0)}, usual_s=14.0, output="b")
    assert verdict.busy and not verdict.identical
    assert verdict.answer.startswith("FAILED:")


def test_a_stream_that_is_over_before_the_nodes_are_killed_shows_nothing(tmp_path: Path) -> None:
    verdict = judged(tmp_path, blocking={})
    assert verdict.identical and not verdict.benefit
    assert verdict.answer.startswith("FAILED:")


def test_the_downtime_of_a_query_is_that_of_all_its_incidents(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"a.0": entry(10, 60.0, measured=False)}, {"a.0": entry(10, 4.5)})
    assert verdict.queries[0].incremental == Took(64.5, False, 0)

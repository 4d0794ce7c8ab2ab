"""What the demo says of its three runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from controller.run.config import Outcome, RunResult
from controller.run.demo_verdict import judge, show


def entry(priority: int, seconds: float, measured: bool = True) -> dict[str, Any]:
    return {
        "priority": priority,
        "recovery_s": seconds if measured else None,
        "at_least_s": None if measured else seconds,
        "relapses": 0,
    }


def result(out: Path, *incidents: dict[str, Any], order: str = "value") -> RunResult:
    report = {"incidents": [{"queries": queries} for queries in incidents], "lost_s": 10.0, "order": order}
    (out / "sink").mkdir(parents=True, exist_ok=True)
    return RunResult(Outcome.DONE, out, {}, report)


def said(tmp_path: Path, *incidents: dict[str, Any], order: str = "value") -> str:
    ours = result(tmp_path / "incremental", *incidents, order=order)
    verdict = judge(
        ours, result(tmp_path / "reference"), result(tmp_path / "blocking", {"a.0": entry(10, 63.1)})
    )
    console = Console(record=True, width=250)
    show(console, verdict, tmp_path)
    return console.export_text()


def test_a_most_valuable_query_that_came_back_last_is_said_with_the_reason(tmp_path: Path) -> None:
    text = said(tmp_path, {"a.0": entry(10, 71.9), "b.0": entry(1, 20.0), "c.0": entry(3, 30.0)})
    assert (
        "a.0, the most valuable (priority 10), was down for longer than 2 lesser ones worth 4 together"
        in text
    )
    assert "plans maximise the summed priority" in text


@pytest.mark.parametrize(
    ("first", "order"), [(entry(10, 5.0), "value"), (entry(10, 71.9), "strict")], ids=["first", "strict"]
)
def test_otherwise_nothing_is_said_of_the_order(tmp_path: Path, first: dict[str, Any], order: str) -> None:
    assert "plans maximise" not in said(tmp_path, {"a.0": first, "b.0": entry(1, 20.0)}, order=order)


def test_a_query_that_was_not_measured_is_shown_with_what_is_known_of_it(tmp_path: Path) -> None:
    text = said(tmp_path, {"a.0": entry(10, 60.0, measured=False)}, {"b.0": entry(1, 4.0)})
    assert "at least 60.0 s" in text
    assert "63.1 s" in text


def test_the_downtime_of_a_query_is_that_of_all_its_incidents(tmp_path: Path) -> None:
    text = said(tmp_path, {"a.0": entry(10, 60.0, measured=False)}, {"a.0": entry(10, 4.5)})
    assert "at least 64.5 s" in text

"""What `reprise demo` answers, from what its runs recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reprise.controller.cli.demo_verdict import Verdict, judge, show
from reprise.controller.local.report.compare import Comparison
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.scheduler.back import Recovery as Took

Entries = dict[str, dict[str, Any]]
SAME = Comparison(6, (), (), (), ())
LEAST_S = 44.2
OTHER = Comparison(5, (), (), (("a.0", 1),), ())


def entry(priority: int, seconds: float, measured: bool = True) -> dict[str, Any]:
    return {
        "priority": priority,
        "recovery_s": seconds if measured else None,
        "at_least_s": None if measured else seconds,
        "relapses": 0,
    }


BLOCKING: Entries = {"a.0": entry(10, 63.1), "b.0": entry(1, 63.1), "c.0": entry(3, 62.0)}


def result(*incidents: Entries, usual_s: float = 1.0) -> RunResult:
    names = {query: each["priority"] for queries in incidents for query, each in queries.items()}
    report = {
        "incidents": [{"queries": queries} for queries in incidents],
        "lost_s": 10.0,  # by how late outputs are: the verdict does not use it
        "order": "value",
        "queries": {query: {"priority": p, "baseline_s": usual_s} for query, p in names.items()},
    }
    return RunResult(Outcome.DONE, Path("out"), {}, report)


def compared(
    *incidents: Entries, blocking: Entries = BLOCKING, usual_s: float = 1.0, output: Comparison = SAME
) -> Verdict:
    outputs = {"incremental": output, "blocking": SAME}
    return judge(result(*incidents, usual_s=usual_s), outputs, LEAST_S, 1.0, result(blocking))


def alone(*incidents: Entries, least_s: float | None = LEAST_S) -> Verdict:
    return judge(result(*incidents), {"incremental": SAME}, least_s, 1.0)


def shown(verdict: Verdict) -> str:
    console = Console(record=True, width=250)
    show(console, verdict)
    return console.export_text()


def test_downtime_weighted_by_priority_decides() -> None:
    verdict = compared({"a.0": entry(10, 20.0), "b.0": entry(1, 70.0), "c.0": entry(3, 90.0)})
    assert verdict.passed
    assert verdict.incremental.seconds == pytest.approx(540 / 14)
    text = shown(verdict)
    assert "Blocking recovery lost 62.9 s, 1.6 times as much." in text
    assert "With blocking recovery no query was back before 62.0 s. With incremental recovery 1 of 3" in text
    assert "and incremental recovery lost less than blocking recovery." in text


def test_without_a_run_of_its_own_blocking_recovery_is_charged_with_the_least() -> None:
    verdict = alone({"a.0": entry(10, 20.0), "b.0": entry(1, 5.0)})
    text = shown(verdict)
    assert verdict.passed
    assert "loses at least 44.2 s, at least 2.4 times as much" in text and "63.1" not in text
    assert "incremental recovery lost less than the least that blocking recovery can lose" in text
    assert "a.0, the most valuable (priority 10), was down for longer than 1 lesser ones worth 1" in text
    assert not alone({"a.0": entry(10, 45.0)}).passed
    assert alone({"a.0": entry(10, 20.0)}, least_s=None).answer.startswith(
        "FAILED: no query was lost in a correlated"
    )


def test_a_query_that_only_blocking_recovery_took_down_was_never_down() -> None:
    verdict = compared({"b.0": entry(1, 14.0)})
    assert verdict.incremental.seconds == pytest.approx(1.0)
    assert "3 of 3 queries were, worth 14 of 14" in shown(verdict)


def test_times_that_were_not_measured_claim_no_benefit() -> None:
    """The query was down for 5 s when its incident was closed, and nobody knows how long after that."""
    verdict = compared({"a.0": entry(10, 5.0, measured=False), "b.0": entry(1, 4.0)})
    assert not verdict.passed and not verdict.incremental.measured
    text = shown(verdict)
    assert "times as much" not in text and "FAILED:" in text


def test_blocking_recovery_that_took_at_least_so_long_was_slower() -> None:
    verdict = compared({"a.0": entry(10, 5.0)}, blocking={"a.0": entry(10, 50.0, measured=False)})
    assert verdict.passed
    assert "lost at least 50.0 s, at least 10.0 times as much" in shown(verdict)


def test_a_machine_that_did_not_follow_is_no_failure_of_recovery() -> None:
    verdict = compared({"a.0": entry(10, 100.0)}, usual_s=14.0)
    assert not verdict.passed and "14.0 s" in verdict.busy
    assert verdict.answer.startswith("NOT SHOWN:")


def test_a_machine_that_followed_has_no_excuse() -> None:
    verdict = compared({"a.0": entry(10, 100.0)})
    assert verdict.identical and not verdict.less and not verdict.busy
    assert verdict.answer.startswith("FAILED:")


def test_other_outputs_fail_however_busy_the_machine() -> None:
    verdict = compared({"a.0": entry(10, 20.0)}, usual_s=14.0, output=OTHER)
    assert verdict.busy and verdict.answer.startswith("FAILED: outputs differ")


def test_a_stream_that_is_over_before_the_nodes_are_killed_shows_nothing() -> None:
    verdict = compared(blocking={})
    assert verdict.identical and verdict.answer.startswith("FAILED: no query was lost")


def test_the_downtime_of_a_query_is_that_of_all_its_incidents() -> None:
    verdict = compared({"a.0": entry(10, 60.0, measured=False)}, {"a.0": entry(10, 4.5)})
    assert verdict.queries[0].incremental == Took(64.5, False, 0)


def test_a_query_that_was_not_back_when_its_incident_closed_is_down_until_its_output_was_normal() -> None:
    """Detected 0.5 s after the failure, closed 5 s later; the output was normal 8 s after the failure."""
    found = result({"a.0": entry(10, 5.0, measured=False)})
    report = {**found.incident, "failure": 3.0}
    report["incidents"][0]["detected"] = 3.5
    report["queries"]["a.0"]["available_again_s"] = 8.0
    verdict = judge(replace(found, incident=report), {"incremental": SAME}, LEAST_S, 1.0)
    assert verdict.queries[0].incremental == Took(7.5, True, 0)
    assert verdict.passed

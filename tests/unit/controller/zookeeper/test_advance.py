"""Outputs that stand still although batches are due, told from those that are slow, paused or done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.controller.status.build import phase_of
from reprise.controller.status.query_state import Status, state_of
from reprise.controller.zookeeper.advance import BUSY_S, FEW, STILL_S, Watch, stalled
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Desired, Incident, Kind, Node, Phase, Progress, QueryTimeline, QueryView

QUERY = QueryView("out.0", 5, frozenset({"in.0", "out.0"}))
WELL = Observation(
    1000.0,
    True,
    {"n1#1": Node("n1", 1, 100)},
    Progress("1", 1, 1, frozenset({"n1#1"}), {"in.0": 57, "out.0": 12}, horizon=57),
    desired=Desired(1, 1, 0, "1", {"in.0": "n1#1", "out.0": "n1#1"}),
)


def report(horizon: int, out: int, **more: bool) -> Progress:
    return Progress("1", positions={"in.0": horizon, "out.0": out}, horizon=horizon, **more)  # type: ignore[arg-type]


def test_what_has_batches_before_it_and_does_not_move_is_known_since_when() -> None:
    watch = Watch()
    assert watch.note(1.0, report(10, 10), False) == {}
    assert watch.note(2.0, report(11, 10), False) == {"out.0": 2.0}
    assert watch.note(9.0, report(30, 10), False) == {"out.0": 2.0}
    assert watch.note(10.0, report(31, 11), False) == {"out.0": 10.0}
    assert watch.note(11.0, report(31, 31), False) == {}
    assert watch.since == 1.0


def test_what_is_due_and_was_not_released_is_before_it_too() -> None:
    """A source or the ledger does not answer, or the driver's loop hangs: the horizon stands with everything else."""
    watch = Watch()
    assert watch.note(1.0, replace(report(10, 10), due=10), False) == {}
    assert watch.note(2.0, replace(report(10, 10), due=12), False) == {"in.0": 2.0, "out.0": 2.0}
    assert watch.note(30.0, replace(report(10, 10), due=68), False) == {"in.0": 2.0, "out.0": 2.0}
    assert watch.note(31.0, replace(report(10, 10), due=70), True) == {}


def test_a_driver_that_does_not_report_shows_nothing_whatever_its_last_report_says() -> None:
    watch, last = Watch(), replace(report(10, 10), time=5.0)
    for now in range(1, 11):
        assert watch.note(float(now), last, False) == {}
    assert watch.silent_since is None
    assert watch.note(11.0, last, False) == {"in.0": 11.0, "out.0": 11.0}
    assert watch.silent_since == 1.0
    assert watch.note(12.0, replace(last, time=6.0), False) == {}
    assert watch.silent_since is None


@pytest.mark.parametrize("idle", ["observer away", "paused", "done", "another driver"])
def test_what_is_no_silent_driver(idle: str) -> None:
    watch, last = Watch(), replace(report(10, 10, done=idle == "done"), time=5.0)
    looks = [1.0, 3000.0, 6000.0] if idle == "observer away" else [float(now) for now in range(1, 40)]
    for now in looks:
        driver = str(now > 10) if idle == "another driver" and now < 20 else "1"
        watch.note(now, replace(last, driver=driver), idle == "paused" or now > 19)
        assert watch.silent_since is None


@pytest.mark.parametrize("idle", ["paused", "done", "unknown"])
def test_a_topology_that_owes_nothing_is_not_behind(idle: str) -> None:
    watch = Watch()
    watch.note(1.0, report(10, 5), False)
    progress = None if idle == "unknown" else report(10, 5, done=idle == "done")
    assert watch.note(2.0, progress, idle == "paused") == {}
    assert watch.note(3.0, report(10, 5), False) == {"out.0": 3.0}  # it is given its time again


@pytest.mark.parametrize(
    ("since", "lag", "expected"),
    [
        (None, 500, False),
        (1000.0 - STILL_S, FEW + 1, True),
        (1000.0 - STILL_S + 1, 500, False),
        (1000.0 - STILL_S, FEW, False),
        (1000.0 - BUSY_S, 1, True),
    ],
)
def test_when_it_counts_as_stalled(since: float | None, lag: int, expected: bool) -> None:
    assert stalled(since, lag, 1000.0) is expected


def test_a_query_that_shows_nothing_is_not_available_with_or_without_an_incident() -> None:
    assert state_of([QUERY], WELL).queries[0].status is Status.AVAILABLE
    standing = replace(WELL, still={"out.0": 940.0}, problems=("step 3 failed",))
    times = {"out.0": QueryTimeline(900.0, 910.0, 920.0)}
    incident = Incident("inc-1", Kind.CORRELATED, Phase.VERIFYING, 900.0, 5, 1, 2, 900.0, queries=times)
    for seen in (standing, replace(standing, incident=incident)):
        found = state_of([QUERY], seen)
        assert found.queries[0].status is Status.RECOVERING
        assert found.queries[0].reason == (
            "shows nothing after batch 12 since 00:15:40 UTC, although more is due; the newest problem: step 3 failed"
        )
        assert [q.id for q in found.stalled] == ["out.0"]
        assert found.share == 0.0


def test_no_query_is_available_while_the_driver_does_not_report() -> None:
    silent = replace(WELL, silent_since=940.0)
    (found,) = state_of([QUERY], silent).queries
    assert (found.status, found.reason) == (Status.WAITING, "the driver has not reported since 00:15:40 UTC")
    assert phase_of(silent) == "silent"
    assert phase_of(WELL) == "steady"
    assert state_of([QUERY], replace(silent, connected=False)).queries[0].status is Status.AVAILABLE


def test_while_zookeeper_does_not_answer_nothing_is_known_to_stand_still() -> None:
    away = replace(WELL, still={"out.0": 940.0}, connected=False)
    assert not state_of([QUERY], away).stalled

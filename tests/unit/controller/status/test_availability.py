"""Availability over time by the incidents on record, against what the capacity of each moment allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reprise.algorithms import FailedQuery, Instance, PartitionCost, Plan, solve
from reprise.controller.status.availability import availability
from reprise.controller.status.model import AvailabilityView
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.incident import (
    MAX_EVENTS,
    Candidate,
    Event,
    EventName,
    Incident,
    Kind,
    Phase,
    PlanRecord,
    QueryTimeline,
    Trigger,
)

PRIORITIES = {"a.0": 4, "b.0": 3, "c.0": 2, "d.0": 1}
ID = "inc-000004"


def incident(
    *events: tuple[float, EventName, str], queries: Mapping[str, QueryTimeline] | None = None
) -> Incident:
    return Incident(
        ID, Kind.CORRELATED, Phase.RECOVERING, 10.0, 3, 2, 4, 10.0, plans=(f"{ID}-p1",), queries=queries or {},
        events=tuple(Event(*event) for event in events),
    )  # fmt: skip


def answer(bound_of: tuple[str, ...]) -> Plan:
    """A plan whose bound is the priority of these queries."""
    return solve(
        Instance(
            9, tuple(PartitionCost(q, 1) for q in bound_of),
            tuple(FailedQuery(q, PRIORITIES[q], (q,)) for q in bound_of),
        )
    )  # fmt: skip


def plan(at: float, candidates: tuple[str, ...], left_out: tuple[str, ...] = ()) -> PlanRecord:
    return PlanRecord(
        f"{ID}-p1", ID, at, Trigger.FIRST, False, 3, 2, {}, tuple(Candidate(q, PRIORITIES[q], 1) for q in candidates),
        {}, {}, 0.0, dict.fromkeys(left_out, "no room"),
    )  # fmt: skip


def curve(
    one: Incident | None = None,
    plans: tuple[tuple[PlanRecord, Plan | None], ...] = (),
    now: float = 99.0,
    share: float = 1.0,
    available: int = 4,
) -> AvailabilityView:
    seen = Observation(now, True, incident=one, plans={record.id: record for record, _ in plans})
    return availability(PRIORITIES, seen, {record.id: found for record, found in plans}, share, available)


def points(view: AvailabilityView) -> list[tuple[float, float, int, float | None]]:
    return [(p.time, pytest.approx(p.share), p.available, p.bound) for p in view.points]


def test_without_incidents_there_is_the_point_of_now() -> None:
    view = curve(share=0.5, available=2)
    assert points(view) == [(99.0, 0.5, 2, 1.0)]
    assert view.complete


def test_a_loss_takes_its_queries_and_nobody_knows_what_is_allowed_until_there_is_a_plan() -> None:
    lost = incident(
        (10.0, EventName.OPENED, ""),
        (10.5, EventName.NODE_LOST, "n1"),
        (11.0, EventName.QUERIES_LOST, "a.0 b.0"),
    )
    found = points(curve(lost, ((plan(12.0, ("a.0", "b.0")), answer(("a.0",))),), share=0.3, available=2))
    assert found == [
        (10.5, 1.0, 4, None),
        (11.0, 0.3, 2, None),
        (12.0, 0.3, 2, 0.7),
        (99.0, 0.3, 2, 0.7),
    ]


def test_what_the_plan_says_nothing_of_is_unknown() -> None:
    lost = incident((11.0, EventName.QUERIES_LOST, "a.0"))
    view = curve(lost, ((plan(12.0, ("a.0",)), None),))
    assert [p.bound for p in view.points] == [1.0, None, None]


def test_a_query_that_the_plan_leaves_out_is_none_that_runs() -> None:
    """It has poison, so it is no candidate: the bound holds for the rest."""
    lost = incident((11.0, EventName.QUERIES_LOST, "a.0 d.0"))
    view = curve(lost, ((plan(12.0, ("a.0",), left_out=("d.0",)), answer(("a.0",))),))
    assert view.points[-1].bound == pytest.approx((3 + 2 + 4) / 10)


def test_a_bound_is_never_more_than_everything() -> None:
    view = curve(
        incident((11.0, EventName.OPENED, "")), ((plan(12.0, ("a.0",)), answer(("a.0", "b.0", "c.0"))),)
    )
    assert view.points[-1].bound == 1.0


def test_a_query_that_has_caught_up_is_back_and_may_fall_behind_again() -> None:
    found = curve(
        incident(
            (11.0, EventName.QUERIES_LOST, "a.0 b.0"),
            (20.0, EventName.QUERIES_CAUGHT_UP, "a.0"),
            (30.0, EventName.QUERIES_BEHIND, "a.0"),
            (40.0, EventName.QUERIES_CAUGHT_UP, "a.0 b.0"),
        )
    )
    assert [(p.time, p.available) for p in found.points] == [
        (11.0, 2),
        (20.0, 3),
        (30.0, 2),
        (40.0, 4),
        (99.0, 4),
    ]


def test_what_is_not_restored_when_an_incident_closes_stays_down() -> None:
    """It has poison; only what has a time of restoration is back."""
    times = {"a.0": QueryTimeline(11.0, 15.0), "b.0": QueryTimeline(11.0)}
    closed = incident((11.0, EventName.QUERIES_LOST, "a.0 b.0"), (50.0, EventName.CLOSED, ""), queries=times)
    at = {p.time: p for p in curve(closed, share=0.7, available=3).points}
    assert (at[50.0].available, at[50.0].share, at[50.0].bound) == (3, pytest.approx(0.7), pytest.approx(0.7))


def test_a_false_alarm_gives_everything_back() -> None:
    alarm = incident((11.0, EventName.QUERIES_LOST, "a.0 b.0"), (12.0, EventName.FALSE_ALARM, ""))
    at = {p.time: p for p in curve(alarm).points}
    assert (at[12.0].available, at[12.0].bound) == (4, 1.0)


def test_once_everything_is_restored_everything_is_allowed() -> None:
    view = curve(incident((10.0, EventName.NODE_LOST, "n1"), (20.0, EventName.RESTORED, "")))
    assert [p.bound for p in view.points] == [None, 1.0, 1.0]


def test_events_that_say_nothing_of_queries_are_no_points() -> None:
    view = curve(incident((10.0, EventName.WAITING, "x")))
    assert [p.time for p in view.points] == [99.0]


def test_several_steps_at_one_time_are_one_point() -> None:
    view = curve(incident((11.0, EventName.NODE_LOST, "n1"), (11.0, EventName.QUERIES_LOST, "d.0")))
    assert [(p.time, p.available, p.bound) for p in view.points] == [(11.0, 3, None), (99.0, 4, None)]


def test_queries_that_the_topology_has_not_are_not_counted() -> None:
    view = curve(incident((11.0, EventName.QUERIES_LOST, "gone.0 d.0")))
    assert (view.points[0].available, view.points[0].share) == (3, pytest.approx(0.9))


def test_a_timeline_that_is_not_whole_is_said() -> None:
    many = tuple((11.0 + k, EventName.WAITING, "") for k in range(MAX_EVENTS))
    assert not curve(incident(*many)).complete
    dropped = incident((10.0, EventName.OPENED, ""), (10.0, EventName.LINES_DROPPED, "7"))
    assert not curve(dropped).complete
    assert curve(incident(*many[:3])).complete


def test_a_topology_without_queries_has_all_there_is() -> None:
    view = availability({}, Observation(5.0, True), {}, 1.0, 0)
    assert points(view) == [(5.0, 1.0, 0, 1.0)]
    lost = replace(incident((1.0, EventName.QUERIES_LOST, "a.0")))
    assert availability({}, Observation(5.0, True, incident=lost), {}, 1.0, 0).points[-1].share == 1.0

"""Counters never fall, although ZooKeeper keeps a bounded history."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.observability.metrics.endpoint import RunMetrics, controller_registry
from reprise.controller.observability.metrics.totals import Totals
from reprise.controller.status.query_state import run_state
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Incident, Kind, PlanRecord
from reprise.scheduler.node_start import NodeStart, StartPhase
from tests.unit.controller.observability.test_controller_metrics import (
    EXPANDED,
    INCIDENT,
    RESOURCE,
    WELL,
    plan,
)

KINDS = list(Kind)


def incident(number: int) -> Incident:
    name = f"inc-{number:06d}"
    return replace(INCIDENT, id=name, kind=KINDS[number % len(KINDS)], closed_at=200.0)


def planned(number: int) -> PlanRecord:
    return replace(plan(1), id=f"inc-{number:06d}-p1", seconds=number / 1000)


def history(numbers: range | set[int], connected: bool = True) -> Observation:
    return replace(
        WELL,
        connected=connected,
        closed={i.id: i for i in map(incident, numbers)},
        plans={p.id: p for p in map(planned, numbers)},
    )


def test_what_leaves_the_record_stays_counted_where_it_is_scraped() -> None:
    metrics = RunMetrics(RESOURCE)
    registry = controller_registry("run", metrics.looks, lambda: metrics.session)

    def scraped(name: str, **labels: str) -> float:
        found = registry.get_sample_value(name, {"topology": "streams/watched", **labels})
        assert found is not None
        return found

    told = []
    for first in range(1, 9):  # four are kept on record
        metrics.watch(run_state(EXPANDED, history(range(first, first + 4))))
        told.append(
            (
                sum(scraped("reprise_incidents_total", kind=kind.value) for kind in KINDS),
                scraped("reprise_plans_total", algorithm="dp", outcome="nothing"),
                scraped("reprise_planning_seconds_count"),
            )
        )
    assert told == [(float(n), float(n), float(n)) for n in range(4, 12)]
    total = sum(range(1, 12)) / 1000
    assert abs(scraped("reprise_planning_seconds_sum") - total) < 1e-9


def test_each_start_of_a_node_is_counted_once_by_phase_as_more_of_it_becomes_known() -> None:
    metrics = RunMetrics(RESOURCE)
    registry = controller_registry("run", metrics.looks, lambda: metrics.session)
    asked = {StartPhase.REQUESTED: 100.0, StartPhase.HEARTBEAT: 102.5}
    ready = {**asked, StartPhase.READY: 104.0}
    unasked = {StartPhase.HEARTBEAT: 300.0}

    def scraped(of: str, phase: StartPhase) -> float | None:
        labels = {"topology": "streams/watched", "phase": phase.value}
        return registry.get_sample_value(f"reprise_node_start_seconds_{of}", labels)

    told = []
    for phases in (asked, ready, ready):
        starts = {"n7#1": NodeStart(phases), "n8#1": NodeStart(unasked)}
        seen = replace(WELL, incident=replace(INCIDENT, starts=starts))
        metrics.watch(run_state(EXPANDED, seen))
        told.append([scraped("count", phase) for phase in (StartPhase.HEARTBEAT, StartPhase.READY)])
    assert told == [[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    assert [scraped("sum", phase) for phase in (StartPhase.HEARTBEAT, StartPhase.READY)] == [2.5, 4.0]


def test_what_is_not_seen_for_a_while_is_not_counted_again() -> None:
    totals = Totals()
    for seen in (history(range(1, 4)), history(set(), connected=False), history(range(1, 4))):
        totals.add(seen)
    assert sum(totals.incidents.values()) == sum(totals.plans.values()) == len(totals.seconds) == 3


def test_a_topology_that_was_made_anew_under_its_name_is_counted_on() -> None:
    totals = Totals()
    for seen in (history(range(1, 4)), history(set()), history(range(1, 3))):
        totals.add(seen)
    assert sum(totals.incidents.values()) == 5


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=20))
def test_however_the_history_moves_no_counter_falls_and_none_counts_twice(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Each step closes some, keeps at most so many on record, and is seen with or without ZooKeeper."""
    totals, closed, gone = Totals(), 0, 0
    for new, kept, connected in steps:
        closed += new
        gone = max(gone, closed - max(kept, new))
        totals.add(history(range(gone + 1, closed + 1), connected))
        assert sum(totals.incidents.values()) == sum(totals.plans.values()) == len(totals.seconds) == closed

"""How a query stands, derived from records alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reprise.algorithms.failure import Failure
from reprise.controller.status.query_state import RunState, Status, run_state
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Desired, Incident, Kind, Node, Phase, PlanRecord, Progress, QueryTimeline
from reprise.scheduler.incident import Trigger
from reprise.spark_jobs.topology import Topology

TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: pair}
spec:
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource",
        with: {rate: 10, interval: 500ms, batches: 4, tags: 10}}
  operators:
    - name: count
      class: reprise.spark_jobs.operators:KeyedCount
      parallelism: 2
      with: {keys: [tweet]}
      inputs: [{from: tweets, by: [tweet]}]
      output: {priority: 1, priorities: {"1": 3}}
"""
NODES = {f"n{i}#1": Node(f"n{i}", 1, 1000) for i in (1, 2)}
DESIRED = Desired(1, 1, 0, "1", {"tweets.0": "n1#1", "count.0": "n1#1", "count.1": "n2#1"})
PROGRESS = Progress("1", seq=1, horizon=10, positions={"tweets.0": 10, "count.0": 10, "count.1": 9})
ALL_WELL = Observation(0.0, True, NODES, PROGRESS, desired=DESIRED)


def _incident(**more: Any) -> Incident:
    return Incident("inc-1", Kind.CORRELATED, Phase.RECOVERING, 0.0, 0, 1, 2, 0.0, **more)


def _plan(left_out: dict[str, str]) -> PlanRecord:
    return PlanRecord("inc-1-p1", "inc-1", 1.0, Trigger.FIRST, True, 0, 1, {}, (), {}, {}, 0.0, left_out)


def _of(state: RunState, query: str) -> tuple[Status, int, str]:
    found = next(q for q in state.queries if q.id == query)
    return found.status, found.lag, found.reason


def test_everything_at_work_is_available_and_the_valuable_come_first(topology: Topology) -> None:
    state = run_state(topology, ALL_WELL)
    assert [q.id for q in state.queries] == ["count.1", "count.0"]
    assert _of(state, "count.1") == (Status.AVAILABLE, 1, "")
    assert state.share == 1.0


def test_a_query_whose_node_is_gone_waits_and_says_for_what(topology: Topology) -> None:
    seen = replace(ALL_WELL, nodes={"n1#1": NODES["n1#1"]})
    state = run_state(topology, seen)
    assert _of(state, "count.1") == (Status.WAITING, 1, "1 partitions lost with n2#1; no plan yet")
    assert _of(state, "count.0")[0] is Status.AVAILABLE
    assert state.share == pytest.approx(0.25)


def test_the_newest_plan_of_the_incident_says_why(topology: Topology) -> None:
    placed = {p: n for p, n in DESIRED.assignment.items() if p != "count.1"}
    seen = replace(
        ALL_WELL,
        desired=replace(DESIRED, assignment=placed),
        incident=_incident(plans=("inc-1-p1",)),
        plans={"inc-1-p1": _plan({"count.1": "needs 100 more"})},
    )
    assert _of(run_state(topology, seen), "count.1") == (Status.WAITING, 1, "needs 100 more")


def test_a_query_is_not_available_before_all_of_its_partitions_are_at_work(topology: Topology) -> None:
    positions = {p: b for p, b in PROGRESS.positions.items() if p != "tweets.0"}
    state = run_state(topology, replace(ALL_WELL, progress=replace(PROGRESS, positions=positions)))
    assert {q.status for q in state.queries} == {Status.RECOVERING}
    assert _of(state, "count.0")[2] == "1 of 2 partitions are being restored"


def test_catching_up_is_recovering_only_while_an_incident_is_open(topology: Topology) -> None:
    behind = replace(ALL_WELL, progress=replace(PROGRESS, positions={**PROGRESS.positions, "count.0": 3}))
    assert _of(run_state(topology, behind), "count.0") == (Status.AVAILABLE, 7, "")
    behind = replace(behind, incident=_incident())
    assert _of(run_state(topology, behind), "count.0") == (Status.RECOVERING, 7, "catching up")


def test_poison_waits_with_the_error_of_the_code(topology: Topology) -> None:
    failed = {"count.0": Failure.parse("poison: operator count, partition count.0, batch 3: ValueError: no")}
    state = run_state(topology, replace(ALL_WELL, progress=replace(PROGRESS, failed=failed)))
    assert _of(state, "count.0")[0] is Status.WAITING
    assert "ValueError" in _of(state, "count.0")[2]


def test_before_the_start_everything_waits(topology: Topology) -> None:
    state = run_state(topology, Observation(0.0))
    assert state.count(Status.WAITING) == 2
    assert state.share == 0.0


def test_a_query_that_was_lost_is_available_when_its_record_says_that_it_is_back(topology: Topology) -> None:
    """And not before: being near for a moment is not enough, and being late for a moment changes nothing."""
    near = replace(ALL_WELL, incident=_incident(queries={"count.0": QueryTimeline(1.0, 2.0)}))
    status, lag, reason = _of(run_state(topology, near), "count.0")
    assert (status, lag) == (Status.RECOVERING, 0)
    assert "back when that holds" in reason
    late = replace(
        near,
        progress=replace(PROGRESS, positions={**PROGRESS.positions, "count.0": 3}),
        incident=_incident(queries={"count.0": QueryTimeline(1.0, 2.0, 3.0)}),
    )
    assert _of(run_state(topology, late), "count.0") == (Status.AVAILABLE, 7, "")


def test_a_survivor_is_measured_with_its_own_steady_lag_and_not_by_a_horizon_that_went_back(
    topology: Topology,
) -> None:
    behind = replace(ALL_WELL, progress=replace(PROGRESS, positions={**PROGRESS.positions, "count.0": 3}))
    usual = replace(behind, incident=_incident(steady={"count.0": 6}))
    assert _of(run_state(topology, usual), "count.0") == (Status.AVAILABLE, 7, "")
    rolled_back = replace(ALL_WELL, incident=_incident(horizon=40))
    assert _of(run_state(topology, rolled_back), "count.0") == (Status.RECOVERING, 30, "catching up")


def test_what_a_query_could_not_show_while_it_was_lost_is_no_stall(topology: Topology) -> None:
    """Its output stands since before the loss, and a slow machine needs a while for the first batch behind it."""
    standing = replace(
        ALL_WELL,
        time=20.0,
        still={"count.0": 1.0},
        progress=replace(PROGRESS, positions={**PROGRESS.positions, "count.0": 3}),
    )
    lost = replace(standing, incident=_incident(queries={"count.0": QueryTimeline(2.0)}))
    back = replace(standing, incident=_incident(queries={"count.0": QueryTimeline(2.0, 10.0)}))
    for seen in (lost, back):
        assert _of(run_state(topology, seen), "count.0") == (Status.RECOVERING, 7, "catching up")
        assert not run_state(topology, seen).stalled
    later = run_state(topology, replace(back, time=26.0))
    assert [(q.id, q.stalled_since) for q in later.stalled] == [("count.0", 10.0)]
    assert "shows nothing after batch 3 since 00:00:10 UTC" in _of(later, "count.0")[2]
    assert [q.id for q in run_state(topology, standing).stalled] == ["count.0"]

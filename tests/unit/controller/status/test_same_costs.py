"""What a partition costs and what a node has left are computed once: plans, status and metrics say the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.observability.metrics.look import Look
from reprise.controller.observability.metrics.recovery import recovery_samples
from reprise.controller.status import document
from reprise.controller.status.query_state import run_state
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper.observation import Observation, snapshot_of
from reprise.scheduler import Incident, Kind, Node, PartitionStats, Phase
from reprise.scheduler.costs import free_capacity, normal_costs
from reprise.scheduler.view import look
from reprise.spark_jobs.topology import StreamTopology, expand
from tests.support import oncall


def with_cap(cap: float) -> StreamTopology:
    resource = oncall.resource()
    return replace(resource, recovery=replace(resource.recovery, cpu_cap=cap))


def gauges(resource: StreamTopology, seen: Observation) -> dict[str, float]:
    topology = view_of(resource)
    shown = Look(resource, topology, run_state(expand(resource), seen), 0.0)
    found = {sample.metric: sample.value for sample in recovery_samples(shown, seen.time)}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def costs_and_room_of_plans(
    resource: StreamTopology, seen: Observation
) -> tuple[dict[str, int], dict[str, int]]:
    view = look(snapshot_of(view_of(resource), seen), policy_of(resource, 1.0, 30.0))
    costs = normal_costs(view)
    assert seen.desired is not None
    return costs, free_capacity(view, costs, seen.desired.assignment)


@given(
    st.dictionaries(st.sampled_from(sorted(oncall.PLACES)), st.floats(0.0, 400.0), max_size=5),
    st.integers(1, 400),
    st.integers(1, 100),
)
def test_plans_status_and_metrics_count_the_same_milli_cpu(
    measured: dict[str, float], size: int, percent: int
) -> None:
    """Also where a node is overloaded, and where 0.29 of 100 is a little less than 29 to a computer."""
    resource = with_cap(percent / 100)
    nodes = {f"n{i}#1": Node(f"n{i}", 1, size) for i in (1, 2, 3)}
    stats = {p: PartitionStats(cpu) for p, cpu in measured.items()}
    seen = replace(oncall.steady(), nodes=nodes, stats=stats)
    costs, room = costs_and_room_of_plans(resource, seen)
    shown = document(expand(resource), seen)
    assert {p.id: p.cost for p in shown.partitions} == costs
    assert {n.id: n.used for n in shown.nodes} == {
        node: sum(costs[p] for p, at in oncall.PLACES.items() if at == node) for node in nodes
    }
    assert gauges(resource, seen)["reprise_free_cpu_cores"] == sum(room.values()) / 1000


def test_an_open_incident_s_costs_hold_and_a_partition_that_it_does_not_know_costs_what_is_declared() -> None:
    resource, known = oncall.resource(), dict.fromkeys(oncall.PLACES, 7) | {"count.3": 61}
    del known["count.0"]
    now = oncall.START
    incident = Incident("inc-1", Kind.CORRELATED, Phase.WAITING, now, 15, 1, 3, now, costs=known)
    stats = {p: PartitionStats(90.0) for p in oncall.PLACES}
    seen = replace(oncall.steady(), incident=incident, stats=stats, nodes={})
    shown = {p.id: p.cost for p in document(expand(resource), seen).partitions}
    assert shown == {**known, "count.0": 40}
    assert gauges(resource, seen)["reprise_waiting_cpu_cores"] == pytest.approx(sum(shown.values()) / 1000)

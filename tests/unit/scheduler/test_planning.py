"""A plan with its reasons: which queries may come back at all, what they cost, and why each of the others waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.scheduler import (
    Desired,
    Node,
    PartitionView,
    Poison,
    Policy,
    Progress,
    QueryView,
    Snapshot,
    TopologyView,
)
from reprise.scheduler.model import Order, Strategy
from reprise.scheduler.planning import Planned, plan_recovery
from reprise.scheduler.precomputed import Planner
from reprise.scheduler.view import View, look

TOPOLOGY = TopologyView(
    "chain",
    (
        PartitionView("in.0"),
        PartitionView("a.0", upstream=("in.0",)),
        PartitionView("b.0", upstream=("in.0",)),
        PartitionView("idle.0", upstream=("in.0",)),
    ),
    (QueryView("a.0", 5, frozenset({"in.0", "a.0"})), QueryView("b.0", 3, frozenset({"in.0", "b.0"}))),
)
COSTS = {"in.0": 100, "a.0": 300, "b.0": 200, "idle.0": 100}
EVERYTHING = tuple(COSTS)
POLICY = Policy(cpu_cap=1.0, node_cpu_milli=400)


def view(*sizes: int, policy: Policy = POLICY, **changes: object) -> View:
    """Nodes of these sizes, on which nothing is at work."""
    nodes = tuple(Node(f"n{k}", 1, size) for k, size in enumerate(sizes, 1))
    progress = Progress("1", 1, 1, frozenset(n.id for n in nodes))
    snapshot = Snapshot(9.0, TOPOLOGY, nodes=nodes, progress=progress, desired=Desired(1, 1, 0, "1"))
    return look(replace(snapshot, **changes), policy)  # type: ignore[arg-type]


def planned(
    seen: View, pending: tuple[str, ...] = EVERYTHING, held: Mapping[str, str] | None = None
) -> Planned:
    return plan_recovery(seen, COSTS, held or {}, pending, Planner())


def load(added: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for partition, node in added.items():
        found[node] = found.get(node, 0) + COSTS[partition]
    return found


def test_what_fits_comes_back_and_what_nobody_needs_after_it() -> None:
    found = planned(view(400, 400))
    assert set(found.added) == set(EVERYTHING)
    assert all(used <= 400 for used in load(found.added).values())
    assert (found.needed, found.pending, found.left_out) == (700, EVERYTHING, {})
    assert {(c.query, c.priority, c.cost) for c in found.candidates} == {("a.0", 5, 400), ("b.0", 3, 300)}


def test_while_a_query_waits_what_nobody_needs_takes_no_room() -> None:
    found = planned(view(500))
    assert set(found.added) == {"in.0", "a.0"}, "idle.0 would fit beside them"
    assert found.left_out == {"b.0": "needs 200 more and 100 is free: 100 is missing; competes with a.0"}


def test_what_is_held_costs_nothing_and_takes_its_room() -> None:
    held = {"in.0": "n1#1", "a.0": "n1#1"}
    found = planned(view(500), ("b.0", "idle.0"), held)
    assert found.free == {"n1#1": 100}
    assert [(c.query, c.cost) for c in found.candidates] == [("b.0", 200)]
    assert found.added == {}
    assert "more than the capacity of 100" in found.left_out["b.0"]


def test_a_query_with_poison_is_no_candidate_and_its_other_partitions_come_last() -> None:
    seen = view(400, 400, poison=Poison("1", {"a.0": "its code raised"}))
    found = planned(seen, ("in.0", "b.0", "idle.0"))
    assert [c.query for c in found.candidates] == ["b.0"]
    assert found.left_out == {"a.0": "its code raised (partition a.0)"}
    assert set(found.added) == {"in.0", "b.0", "idle.0"}


def test_what_fits_on_no_node_of_the_topology_is_said_by_its_partition() -> None:
    small = replace(POLICY, node_cpu_milli=200)
    found = planned(view(200, 200, 200, policy=small))
    assert found.left_out["a.0"] == (
        "partition a.0 needs 300 milli-CPU and a node has at most 200 under the cap: it fits on no node"
    )
    assert set(found.added) >= {"in.0", "b.0"}, "the others are not held up by it"


def test_the_nodes_that_may_come_count_for_what_fits_at_all() -> None:
    found = planned(view(200))
    assert "it fits on no node" not in found.left_out["a.0"], "nodes of the topology have 400"
    assert "a.0" in found.left_out and "b.0" in found.left_out


def test_what_its_node_has_not_let_go_of_is_waited_for() -> None:
    found = planned(view(400, 400), ("in.0", "b.0", "idle.0"))
    assert found.left_out == {"a.0": "a.0 was lost a moment ago and its node has not let go of it yet"}
    assert set(found.added) == {"in.0", "b.0", "idle.0"}


def test_where_the_sum_would_do_the_room_of_one_node_is_named() -> None:
    found = planned(view(250, 250, 250))
    assert set(found.added) == {"in.0", "b.0"}
    most = max(250 - load(found.added).get(f"n{k}#1", 0) for k in (1, 2, 3))
    assert most < 300
    assert (
        f": its largest partition a.0 needs 300, and the most that one node has left is {most} ("
        in found.left_out["a.0"]
    )
    assert found.left_out["a.0"].endswith("running partitions are not moved, so it waits for another node")


def test_without_nodes_everything_waits() -> None:
    found = planned(view())
    assert (found.free, found.added) == ({}, {})
    assert set(found.left_out) == {"a.0", "b.0"}


def test_nothing_pending_is_a_plan_of_nothing() -> None:
    found = planned(view(400), ())
    assert (found.added, found.needed, found.pending) == ({}, 0, ())


def test_the_operator_centric_baseline_is_told_of_edges() -> None:
    seen = view(400, policy=replace(POLICY, strategy=Strategy.OPERATOR_CENTRIC))
    found = planned(seen)
    assert found.plan.partitions[0] == "in.0", "what others read comes first"
    assert set(found.added) == {"in.0", "b.0", "idle.0"}, (
        "the cheapest that is ready, whether or not a query needs it"
    )


def wide(order: Order) -> Planned:
    """Two lesser queries are worth more together than the great one, and cost as much."""
    topology = TopologyView(
        "wide",
        tuple(PartitionView(p) for p in ("great.0", "x.0", "y.0")),
        (
            QueryView("great.0", 9, frozenset({"great.0"})),
            QueryView("x.0", 5, frozenset({"x.0"})),
            QueryView("y.0", 5, frozenset({"y.0"})),
        ),
    )
    costs = {"great.0": 400, "x.0": 200, "y.0": 200}
    seen = view(400, policy=replace(POLICY, order=order), topology=topology)
    return plan_recovery(seen, costs, {}, tuple(costs), Planner())


def test_that_the_most_valuable_waits_for_lesser_ones_is_said() -> None:
    assert wide(Order.VALUE).outvalued == (
        "great.0 (priority 9) waits while 2 queries of lower priority, worth 10 together, come back: plans maximise the "
        "summed priority; `recovery.order: strict` brings the most valuable one first"
    )
    strict = wide(Order.STRICT)
    assert strict.plan.queries == ("great.0",)
    assert strict.outvalued == ""
    assert planned(view(400, 400)).outvalued == ""


@pytest.mark.parametrize("kind", [FailureKind.NODE_LOST])
def test_what_is_failed_and_placed_again_is_not_paid_twice(kind: FailureKind) -> None:
    progress = Progress("1", 1, 1, frozenset({"n1#1"}), failed={"b.0": Failure(kind)})
    seen = view(400, progress=progress)
    found = planned(seen, ("b.0",), {"in.0": "n1#1"})
    assert found.added == {"b.0": "n1#1"}
    assert found.needed == 200

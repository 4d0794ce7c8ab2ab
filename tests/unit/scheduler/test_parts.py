"""Costs, placement and the invariants, each alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.failure import Failure
from reprise.scheduler import (
    Decision,
    Desired,
    Incident,
    InvariantViolation,
    Kind,
    Outcome,
    PartitionStats,
    Phase,
    Poison,
    Policy,
    WriteDesired,
    WriteIncident,
)
from reprise.scheduler.costs import free_capacity, normal_costs
from reprise.scheduler.invariants import check
from reprise.scheduler.placement import spread
from reprise.scheduler.view import look
from tests.support.recovery_simulator import World, diamond


def running(cpu: int = 100) -> World:
    return World(diamond(2, cpu), Policy(nodes_wanted=3)).started(3)


@pytest.mark.parametrize(
    ("measured", "cost"),
    [(None, 100), (50.0, 100), (150.9, 150), (0.0, 100)],
)
def test_the_greater_of_declared_and_measured(measured: float | None, cost: int) -> None:
    w = running()
    if measured is not None:
        w.stats["left.0"] = PartitionStats(measured)
    assert normal_costs(look(w.snapshot(), w.policy))["left.0"] == cost


def test_nothing_is_free_of_cost() -> None:
    w = World(diamond(2, 0), Policy(nodes_wanted=3)).started(3)
    assert set(normal_costs(look(w.snapshot(), w.policy)).values()) == {1}


@pytest.mark.parametrize(
    ("declared", "measured", "costs"),
    [
        (100, (300.0, 250.0), (214, 185)),  # 200 over what is declared, shared as 200 to 150
        (200, (300.0, 200.0), (200, 200)),  # declared, they fill the node, and nothing is left to share
        (100, (120.0, 250.0), (120, 250)),  # it was not overloaded
    ],
)
def test_what_is_measured_is_scaled_to_the_node_that_it_ran_on(
    declared: int, measured: tuple[float, float], costs: tuple[int, int]
) -> None:
    """A node of half the size, of which 400 are under the cap; the same partitions would fit on another."""
    w = World(diamond(2, declared), Policy(nodes_wanted=3)).started(3)
    w.add("small", 500)
    assert w.desired is not None
    w.desired = replace(w.desired, assignment={"left.0": "small#1", "left.1": "small#1"})
    w.stats = {f"left.{k}": PartitionStats(cpu) for k, cpu in enumerate(measured)}
    found = normal_costs(look(w.snapshot(), w.policy))
    assert (found["left.0"], found["left.1"]) == costs


def test_partitions_that_run_nowhere_are_not_scaled_down_for_one_another() -> None:
    w = running()
    w.stats = {"left.0": PartitionStats(700.0), "left.1": PartitionStats(600.0)}
    nowhere = replace(w.snapshot(), desired=w.desired and replace(w.desired, assignment={}))
    costs = normal_costs(look(nowhere, w.policy))
    assert (costs["left.0"], costs["left.1"]) == (700, 600)


def test_room_is_what_the_cap_leaves_and_never_less_than_nothing() -> None:
    w = running()
    view = look(w.snapshot(), w.policy)
    held = {"left.0": "n1#1", "left.1": "n1#1", "right.0": "n2#1", "sink.0": "gone#1"}
    assert free_capacity(view, {"left.0": 300, "left.1": 200, "right.0": 900, "sink.0": 10}, held) == {
        "n1#1": 300,
        "n2#1": 0,
        "n3#1": 800,
    }
    assert free_capacity(view, {}, held)["n1#1"] == 798  # of unknown cost, and not of none


@given(st.lists(st.floats(0, 5000), min_size=9, max_size=9))
def test_what_ran_on_a_node_fits_on_such_a_node_again(measured: list[float]) -> None:
    w = running()
    w.stats = {p.id: PartitionStats(m) for p, m in zip(w.topology.partitions, measured, strict=True)}
    view = look(w.snapshot(), w.policy)
    costs = normal_costs(view)
    assert all(cost >= 100 for cost in costs.values())
    assert w.desired is not None
    for node in ("n1#1", "n2#1", "n3#1"):
        assert sum(costs[p] for p, n in w.desired.assignment.items() if n == node) <= 800
    assert all(room >= 0 for room in free_capacity(view, costs, w.desired.assignment).values())


@given(st.lists(st.integers(1, 50), max_size=12), st.lists(st.integers(0, 100), max_size=5))
def test_spread_never_fills_a_node_beyond_its_room(costs: list[int], free: list[int]) -> None:
    cost = {f"p.{k}": c for k, c in enumerate(costs)}
    room = {f"n{k}": f for k, f in enumerate(free)}
    placed = spread(cost, cost, room)
    if placed is not None:
        assert set(placed) == set(cost)
        for node, capacity in room.items():
            assert sum(cost[p] for p, n in placed.items() if n == node) <= capacity


def test_equal_partitions_are_spread_evenly_over_equal_nodes() -> None:
    cost = {f"p.{k}": 10 for k in range(9)}
    placed = spread(cost, cost, {"a": 100, "b": 100, "c": 100})
    assert placed is not None
    assert [placed[f"p.{k}"] for k in range(4)] == ["a", "b", "c", "a"]


def _incident(phase: Phase) -> Incident:
    costs = {p.id: 100 for p in diamond(2).partitions}
    return Incident("inc-1", Kind.CORRELATED, phase, 0.0, 0, 1, 3, 0.0, costs=costs)


@pytest.mark.parametrize(
    ("invariant", "change"),
    [
        ("sequence", {"seq": 99}),
        ("generation", {"generation": 3}),
        ("generation", {"generation": 0}),
        ("flags", {"punctuate": True}),
        ("E3", {"assignment": {"sink.0": "n9#1"}}),
        ("known-partitions", {"assignment": {"other.0": "n1#1"}}),
        ("O1", {"assignment": {}}),
        ("C1", {"assignment": None}),
    ],
)
def test_a_decision_that_breaks_an_invariant_is_refused(invariant: str, change: dict[str, object]) -> None:
    w = running()
    before = w.desired
    assert before is not None
    if change.get("assignment", ()) is None:  # everything that n2 and n3 ran goes to n1
        w.kill("n2", "n3")
        change = {"assignment": dict.fromkeys(before.assignment, "n1#1")}
    after: Desired = replace(before.next(punctuate=False), **change)  # type: ignore[arg-type]
    steps = (WriteDesired(after), WriteIncident(_incident(Phase.RECOVERING)))
    with pytest.raises(InvariantViolation) as caught:
        check(look(w.snapshot(), w.policy), Decision(Outcome.ACT, "test", "", steps))
    assert caught.value.invariant == invariant


def test_buffering_without_an_incident_is_refused() -> None:
    w = running()
    after = w.desired.next(retain=True)  # type: ignore[union-attr]
    with pytest.raises(InvariantViolation, match="M1"):
        check(look(w.snapshot(), w.policy), Decision(Outcome.ACT, "test", "", (WriteDesired(after),)))


@pytest.mark.parametrize("by", ["decision", "record"])
def test_room_is_counted_at_the_costs_of_the_incident_that_is_opened_or_open(by: str) -> None:
    """Measured now, everything would fit on one node; as it was before the failure it does not."""
    w = running(50)
    w.kill("n2", "n3")
    before, incident = w.desired, _incident(Phase.RECOVERING)
    assert before is not None
    after = before.next(assignment=dict.fromkeys(before.assignment, "n1#1"), punctuate=False)
    steps = (WriteDesired(after), *([WriteIncident(incident)] if by == "decision" else []))
    snapshot = replace(w.snapshot(), incident=incident if by == "record" else None)
    with pytest.raises(InvariantViolation, match=r"^C1: n1#1 would run 900 milli-CPU under a cap of 800"):
        check(look(snapshot, w.policy), Decision(Outcome.ACT, "test", "", steps))
    check(look(w.snapshot(), w.policy), Decision(Outcome.ACT, "test", "", (WriteDesired(after),)))


def test_poison_is_of_one_driver() -> None:
    w = running()
    stored = Poison("1", {"sink.0": "poison: batch 7"})
    now = replace(w.snapshot(), poison=stored)
    assert look(now, w.policy).poison == stored.partitions
    assert look(replace(now, progress=None), w.policy).poison == {}
    assert w.progress is not None
    failed = {"sink.0": Failure.parse("poison: batch 7")}
    other = replace(w.progress, driver="2", failed=failed)
    assert look(replace(now, progress=other), w.policy).poison == {}, "it has not been told of this driver"

"""Plans above the cap of nodes: when, how far, what is said of it, and that it ends."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from reprise.controller.zookeeper.records import encode_desired, parse_desired
from reprise.controller.zookeeper.recovery_records import encode_plan, parse_plan
from reprise.scheduler import Kind, PartitionStats, Policy
from reprise.scheduler.costs import normal_costs
from reprise.scheduler.overcommit import above_the_cap, slowdown
from reprise.scheduler.view import look
from tests.support.recovery_simulator import World, diamond


def running(nodes: int = 4, cpu: int = 220, overcommit: float = 1.2, **policy: object) -> World:
    settings = {"rebalance": True, "rebalance_after_s": 3.0, "overcommit": overcommit, **policy}
    return World(diamond(2, cpu), Policy(nodes_wanted=nodes, **settings)).started(nodes)  # type: ignore[arg-type]


def full(w: World) -> dict[str, int]:
    """Milli-CPU of the nodes that are above their cap."""
    view = look(w.snapshot(), w.policy)
    return above_the_cap(view, normal_costs(view), view.survivors)


def burst(**settings: object) -> World:
    """Two of four nodes are lost: 1,980 milli-CPU, and two nodes of 1,000 are left."""
    w = running(**settings)  # type: ignore[arg-type]
    w.kill("n3", "n4")
    w.run(15)
    return w


def test_without_it_queries_wait_and_with_it_they_come_back_and_it_is_said() -> None:
    assert burst(overcommit=0.0).incident is not None
    w = burst()
    assert w.healthy()
    (plan,) = w.plans
    assert not plan.left_out
    assert sorted(plan.slowdown.values()) == [1.0, 1.1], "880 and 1,100 of 1,000"
    assert "about 1.1 times as slow" in plan.note
    assert "within its CPU" in plan.note
    (incident,) = w.closed
    assert any("times as slow" in event.detail for event in incident.events if event.name == "plan")
    assert parse_plan(encode_plan(plan)) == plan
    assert parse_plan(encode_plan(plan).replace(b'"slowdown":', b'"unknown":')) == replace(plan, slowdown={})


def test_no_further_than_it_allows() -> None:
    w = burst(overcommit=1.05)
    assert not w.plans[0].left_out
    assert w.incident is not None, "1,050 hold four partitions, and so eight of nine"
    assert max(w.plans[0].slowdown.values()) <= 1.05


def test_where_the_cap_is_enough_it_is_kept() -> None:
    w = burst(cpu=150)
    assert w.healthy()
    assert all(not plan.slowdown for plan in w.plans)
    assert w.desired is not None
    assert not w.desired.demand


def test_one_lost_node_is_restored_above_the_cap_too() -> None:
    w = running(nodes=2, cpu=150, overcommit=1.4)
    w.kill("n2")
    w.run(15)
    assert w.healthy()
    assert w.closed[0].kind is Kind.BLOCKING
    assert w.plans[-1].slowdown == {"n1#1": 1.35}


def test_a_first_start_keeps_to_the_cap() -> None:
    w = World(diamond(2, 220), Policy(nodes_wanted=2, rebalance=True, overcommit=2.0))
    w.add("n1")
    w.add("n2")
    w.start_driver()
    w.run(20)
    assert w.incident is not None
    assert w.incident.kind is Kind.START
    assert all(not plan.slowdown for plan in w.plans)


def test_what_is_above_the_cap_moves_to_nodes_that_come() -> None:
    w = burst()
    assert full(w)
    w.add("n3")
    w.add("n4")
    w.run(60)
    assert w.healthy()
    assert not full(w)
    assert w.desired is not None
    assert not w.desired.demand
    assert len(w.closed) == 1, "nobody was lost again for it"


def test_partitions_on_a_full_node_are_not_taken_for_small() -> None:
    """What a full node shows is what it has.  The next plan goes by what they took before."""
    w = running(cpu=1)
    w.stats = {p.id: PartitionStats(220.0) for p in w.topology.partitions}
    w.kill("n3", "n4")
    w.run(15)
    assert w.healthy()
    assert w.desired is not None
    assert w.desired.demand
    assert parse_desired(encode_desired(w.desired)) == w.desired
    w.stats = {p.id: PartitionStats(90.0) for p in w.topology.partitions}
    w.run(20)
    costs = normal_costs(look(w.snapshot(), w.policy))
    assert {costs[p] for p in w.desired.demand} == {220}
    w.kill("n2")
    w.run(10)
    assert w.incident is not None
    kept = {p for p, n in w.desired.assignment.items() if n == "n1#1"}
    assert sum(w.incident.costs[p] for p in kept) <= 1200
    assert w.incident.costs["sink.0"] == 220


def test_what_is_measured_to_fit_on_what_is_left_comes_back_at_once() -> None:
    """Declared as next to nothing, as by default: nine partitions of 100 milli-CPU on two nodes, in one plan."""
    w = running(cpu=1, overcommit=0.0)
    w.stats = {p.id: PartitionStats(100.0) for p in w.topology.partitions}
    w.kill("n3", "n4")
    w.run(12)
    assert w.healthy()
    assert len(w.plans) == 1
    assert not w.plans[0].left_out


def test_declared_cpu_is_a_floor_where_it_is_asked_for() -> None:
    w = running(cpu=220, overcommit=0.0)
    w.stats = {p.id: PartitionStats(1.0) for p in w.topology.partitions}
    w.kill("n3", "n4")
    w.run(12)
    assert w.plans[0].left_out
    assert set(normal_costs(look(w.snapshot(), w.policy)).values()) == {220}


@pytest.mark.parametrize(("used", "cpu", "times"), [(900, 1000, 1.0), (1350, 1000, 1.35), (5, 0, 5.0)])
def test_slowdown(used: int, cpu: int, times: float) -> None:
    assert slowdown(used, cpu) == times


@pytest.mark.parametrize("seed", range(8))
def test_random_faults_above_the_cap(seed: int) -> None:
    """C1, O1 and all else are checked by the simulator with each decision; in the end everything is back under the cap."""
    rng = random.Random(seed)
    w = running(overcommit=rng.choice([1.1, 1.5, 2.5]))
    for _ in range(10):
        w.run(rng.uniform(0.3, 8))
        name, alive = f"n{rng.randint(1, 4)}", w.names()
        match rng.randrange(4):
            case 0 | 1 if len(alive) > 1 and name in alive:
                w.kill(name)
            case 2 if name not in alive:
                w.add(name)
            case 3:
                w.start_driver()
            case _:
                pass
    for k in range(4):
        if f"n{k + 1}" not in w.names():
            w.add(f"n{k + 1}")
    w.run(120)
    assert w.healthy(), w.log[-10:]
    assert not full(w)

"""Correlated failures: what docs/recovery.md promises of them, and the strategies."""

from __future__ import annotations

from math import inf

import pytest

from reprise.scheduler import Kind, PartitionStats, Phase, Policy, Scope, Strategy
from tests.support.diamond_worlds import rules
from tests.support.recovery_simulator import World, diamond


def world(
    strategy: Strategy = Strategy.INCREMENTAL,
    deterministic: bool = True,
    cpu: int = 200,
    scope: Scope = Scope.GLOBAL,
) -> World:
    """Four nodes with about three partitions each; two living ones have room for two more."""
    policy = Policy(nodes_wanted=4, strategy=strategy, scope=scope)
    return World(diamond(3, cpu, deterministic), policy).started(4)


@pytest.mark.parametrize(
    ("lost", "apart", "kind"),
    [
        (1, 0.0, Kind.BLOCKING),
        (2, 0.0, Kind.CORRELATED),
        (2, 0.6, Kind.CORRELATED),
        (3, 0.3, Kind.CORRELATED),
    ],
)
def test_the_kind_is_settled_once_the_burst_is_over(lost: int, apart: float, kind: Kind) -> None:
    w = world()
    for k in range(lost):
        w.kill(f"n{k + 1}")
        if apart:
            w.run(apart)
    w.run(3.0)
    assert w.incident is not None
    assert w.incident.kind is kind
    assert len(w.incident.lost) == lost
    assert len(w.plans) == 1  # one plan serves the burst


def test_a_decision_says_until_when_nothing_comes_of_looking_again() -> None:
    w = world()
    assert w.look()[1].until == inf
    w.kill("n1", "n2")
    detected = next(d for d in iter(w.coordinate, None) if d.rule == "failure-detected")
    assert w.incident is not None
    assert detected.until == w.incident.settle_until > w.now
    settling = w.look()[1]
    assert (settling.rule, settling.until) == ("settling", w.incident.settle_until)
    w.run(3.0)
    assert w.look()[1].until == 0.0  # waits for nodes, which others tell of


def test_the_first_plan_rolls_back_and_switches_on_buffering() -> None:
    w = world()
    checkpoint, before = max(w.checkpoints), w.desired
    w.kill("n1", "n2")
    w.run(2.0)
    assert before is not None
    assert w.desired is not None
    assert w.desired.generation == before.generation + 1
    assert (w.desired.retain, w.desired.punctuate) == (True, False)
    assert w.desired.checkpoint >= checkpoint
    assert w.plans[0].rollback
    assert w.plans[0].trigger == "first"
    survivors = {p for p, n in before.assignment.items() if n in ("n3#1", "n4#1")}
    given = len(survivors - w.desired.assignment.keys() | survivors & w.plans[0].added.keys())
    assert sum(w.plans[0].free.values()) == 400 + 200 * given
    assert w.desired.plan == w.plans[0].id == w.incident.plans[0]  # type: ignore[union-attr]


def test_each_arrival_brings_a_plan_without_rollback_and_the_end_switches_off() -> None:
    w = world()
    w.kill("n1", "n2")
    w.run(3.0)
    generation = w.desired.generation  # type: ignore[union-attr]
    w.add("n5")
    w.run(3.0)
    w.add("n6")
    w.run(6.0)
    assert [p.trigger for p in w.plans] == ["first", "arrival", "arrival"]
    assert [p.rollback for p in w.plans] == [True, False, False]
    assert rules(w)[-2:] == ["restored", "closed"]
    assert w.healthy()
    assert w.desired is not None
    assert (w.desired.generation, w.desired.retain) == (generation, False)
    assert w.desired.punctuate


def test_what_was_chosen_is_worth_most() -> None:
    w = world()
    w.kill("n1", "n2")
    w.run(2.0)
    plan = w.plans[0]
    assert sum(p.cost for p in plan.candidates if p.query in plan.plan["queries"]) > 0  # type: ignore[operator]
    assert plan.plan["optimal"]
    assert set(plan.left_out) == {c.query for c in plan.candidates} - set(plan.plan["queries"])  # type: ignore[call-overload]
    assert all(plan.left_out.values())


def test_without_news_there_is_no_further_plan() -> None:
    w = world()
    w.kill("n1", "n2")
    w.run(60.0)
    assert len(w.plans) == 1
    assert w.incident is not None
    assert w.incident.phase is Phase.WAITING
    version = w.version
    w.run(30.0)
    assert w.version == version  # and nothing is written


def test_a_plan_that_restores_nothing_is_recorded_once() -> None:
    w = World(diamond(2, 700), Policy(nodes_wanted=9)).started(
        9
    )  # one fills a node, and each query needs two
    w.kill(*(f"n{k}" for k in range(1, 9)))
    w.run(20.0)
    assert [len(p.added) for p in w.plans] == [0]
    w.add("small", cpu=200)
    w.run(20.0)
    assert [len(p.added) for p in w.plans] == [0, 0]


def test_a_loss_during_the_incident_returns_only_its_partitions() -> None:
    w = world()
    w.kill("n1", "n2")
    w.run(2.0)
    w.add("n5")
    w.run(2.0)
    before = w.desired
    w.kill("n5")
    w.run(2.0)
    assert before is not None
    assert w.desired is not None
    assert w.desired.generation == before.generation
    assert w.desired.assignment == {p: n for p, n in before.assignment.items() if n != "n5#1"}
    assert w.plans[-1].trigger == "loss"
    lost_again = [q for q, t in w.incident.queries.items() if t.losses == 2]  # type: ignore[union-attr]
    assert lost_again


def test_not_deterministic_a_loss_rolls_everything_back_and_an_arrival_does_not() -> None:
    w = world(deterministic=False)
    w.kill("n1", "n2")
    w.run(2.0)
    w.add("n5")
    w.run(2.0)
    generation = w.desired.generation  # type: ignore[union-attr]
    assert w.plans[-1].rollback is False
    w.kill("n5")
    w.run(2.0)
    assert w.desired.generation == generation + 1  # type: ignore[union-attr]
    assert w.plans[-1].rollback is True


def test_state_lost_on_a_living_node_is_taken_off_before_it_is_placed_again() -> None:
    w = world()
    w.kill("n1", "n2")
    w.run(2.0)
    victim = next(p for p, n in w.desired.assignment.items() if n == "n3#1")  # type: ignore[union-attr]
    w.lose_state(victim)
    w.progress = w.driver.progress()  # type: ignore[union-attr]
    w.coordinate()
    assert victim not in w.desired.assignment  # type: ignore[union-attr]
    w.run(1.0)
    assert victim in w.desired.assignment  # type: ignore[union-attr]
    assert w.plans[-1].trigger == "loss"
    assert not w.plans[-1].rollback


def test_costs_are_those_before_the_failure() -> None:
    w = world(cpu=50)
    w.stats = {"source.0": PartitionStats(120.9), "left.0": PartitionStats(10.0)}
    w.kill("n1", "n2")
    w.run(1.0)
    w.stats = {p.id: PartitionStats(900.0) for p in w.topology.partitions}  # catching up at full speed
    w.run(3.0)
    assert (w.closed[0].costs["source.0"], w.closed[0].costs["left.0"]) == (120, 50)
    assert len(w.plans[0].added) == 7  # all that is failed


def test_standby_nodes_count_as_soon_as_an_incident_is_open() -> None:
    w = World(diamond(3, 200), Policy(nodes_wanted=4, strategy=Strategy.BEST_CASE))
    for k in range(4, 6):
        w.add(f"n{k + 1}")
    w.started(4)
    assert not {"n5#1", "n6#1"} & set(w.desired.assignment.values())  # type: ignore[union-attr]
    w.kill("n1", "n2")
    w.run(2.0)
    assert len(w.plans) == 1
    assert not w.plans[0].left_out


def test_operator_centric_asks_its_own_planner() -> None:
    w = world(Strategy.OPERATOR_CENTRIC)
    w.kill("n1", "n2")
    w.run(2.0)
    assert w.plans[0].plan["algorithm"] == "operator-centric"


def test_the_blocking_strategy_stops_everything_until_all_nodes_are_back() -> None:
    w = world(Strategy.BLOCKING)
    w.kill("n1", "n2")
    w.run(3.0)
    assert w.desired is not None
    assert w.desired.assignment == {}
    w.add("n5")
    w.run(5.0)
    assert w.desired.assignment == {}
    assert not w.plans
    w.add("n6")
    w.run(5.0)
    assert [p.trigger for p in w.plans] == ["blocking"]
    assert w.plans[0].rollback
    assert len(w.plans[0].added) == len(w.topology.partitions)
    assert w.healthy()
    assert {q for q, t in w.closed[0].queries.items() if t.restored_at} == {q.id for q in w.topology.queries}


def test_timelines_of_queries() -> None:
    w = world()
    w.kill("n1", "n2")
    w.run(2.0)
    w.add("n5")
    w.add("n6")
    w.run(6.0)
    incident = w.closed[0]
    for timeline in incident.queries.values():
        assert timeline.restored_at is not None
        assert timeline.caught_up_at is not None
        assert incident.opened_at <= timeline.lost_at < timeline.restored_at <= timeline.caught_up_at
    names = [e.name for e in incident.events]
    assert names[0] == "opened"
    assert names[-1] == "closed"
    assert names.count("node-lost") == 2
    for name in ("queries-lost", "queries-restored", "queries-caught-up"):
        told = [q for e in incident.events if e.name == name for q in e.detail.split(" ")]
        assert sorted(told) == sorted(incident.queries), name
    assert [e.time for e in incident.events] == sorted(e.time for e in incident.events)

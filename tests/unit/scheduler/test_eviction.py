"""Survivors that cannot run give their room in a plan that rolls back; what runs stays."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from reprise.algorithms import Plan, solve
from reprise.scheduler import PartitionView, Policy, QueryView, Strategy, TopologyView, eviction, recovery
from reprise.scheduler import precomputed as precomputed_module
from reprise.scheduler.model import Order, Scope
from tests.support.recovery_simulator import World

CPU = 100


def chains(priorities: dict[str, int], length: int = 2) -> TopologyView:
    """One query a name: a chain of so many partitions `name.0`, `name.1`, ..."""
    partitions, queries = [], []
    for name, priority in priorities.items():
        ids = [f"{name}.{k}" for k in range(length)]
        partitions += [
            PartitionView(p, upstream=(ids[k - 1],) if k else (), cpu_milli=CPU) for k, p in enumerate(ids)
        ]
        queries.append(QueryView(ids[-1], priority, frozenset(ids)))
    return TopologyView("chains", tuple(partitions), tuple(queries), True)


def lost(w: World, where: dict[str, str], *killed: str) -> World:
    """The same placed as `where` says, and what follows the loss of nodes until a plan is made."""
    assert w.desired is not None and w.driver is not None
    ids = {p: f"{node}#1" for p, node in where.items()}
    w.desired = w.driver.desired = replace(w.desired, assignment=ids)
    w.drive()
    w.kill(*killed)
    w.run(3.0)
    assert w.plans
    return w


def world(topology: TopologyView, nodes: int, cpu: int = 2 * CPU, **policy: Any) -> World:
    """Started on so many nodes, each with room for two partitions of `CPU` under the cap if nothing else is said."""
    w = World(topology, Policy(nodes_wanted=nodes, cpu_cap=1.0, **{"scope": Scope.GLOBAL, **policy}))
    for k in range(nodes):
        w.add(f"n{k + 1}", cpu=cpu)
    w.start_driver()
    w.run(3.0)
    return w


SPLIT = {"a.0": "n1", "a.1": "n2", "b.0": "n3", "b.1": "n1", "c.0": "n2", "c.1": "n3"}
"""The loss of any two nodes leaves halves of two queries on the third."""


def test_the_room_of_survivors_that_cannot_run_brings_a_query_back() -> None:
    w = lost(world(chains({"a": 5, "b": 3, "c": 1}), 3), SPLIT, "n1", "n2")
    assert w.desired is not None
    assert w.desired.assignment == {"a.0": "n3#1", "a.1": "n3#1"}
    plan = w.plans[0]
    assert plan.free == {"n3#1": 200}
    assert plan.pending == ("a.0", "a.1", "b.0", "b.1", "c.0", "c.1")
    assert plan.note.startswith("2 partitions on living nodes, which no whole query needs,")
    assert any(line.endswith("give their room") for line in w.log)


def test_a_survivor_that_the_plan_wants_stays_where_it_is() -> None:
    w = lost(world(chains({"a": 1, "b": 3, "c": 5}), 3), SPLIT, "n1", "n2")
    assert w.desired is not None
    assert w.desired.assignment == {"c.0": "n3#1", "c.1": "n3#1"}
    assert w.plans[0].added == {"c.0": "n3#1"}  # c.1 has never left it
    assert "1 partition on a living node" in w.plans[0].note


def test_what_runs_stays_whatever_it_is_worth() -> None:
    where = {"a.0": "n1", "a.1": "n2", "b.0": "n2", "b.1": "n1", "c.0": "n3", "c.1": "n3"}
    w = lost(world(chains({"a": 50, "b": 30, "c": 1}), 3), where, "n1", "n2")
    assert w.desired is not None
    assert w.desired.assignment == {"c.0": "n3#1", "c.1": "n3#1"}
    assert not w.plans[0].added


def test_nobody_leaves_where_everything_fits() -> None:
    topology = chains({"a": 5, "b": 3, "c": 1})
    w = world(topology, 5)
    w = lost(w, SPLIT, "n1", "n2")
    assert w.desired is not None
    assert {p: n for p, n in SPLIT.items() if n == "n3"}.items() <= {
        p: n.partition("#")[0] for p, n in w.desired.assignment.items()
    }.items()
    assert (w.plans[0].pending, w.plans[0].note) == (("a.0", "a.1", "b.1", "c.0"), "")


def test_what_was_evicted_comes_back_with_the_next_node_and_everything_in_the_end() -> None:
    w = lost(world(chains({"a": 5, "b": 3, "c": 1}), 3), SPLIT, "n1", "n2")
    w.add("n4", cpu=2 * CPU)
    w.run(3.0)
    assert w.desired is not None
    assert w.desired.assignment == {"a.0": "n3#1", "a.1": "n3#1", "b.0": "n4#1", "b.1": "n4#1"}
    assert not w.plans[-1].rollback
    w.add("n5", cpu=2 * CPU)
    w.run(6.0)
    assert w.healthy()
    assert len(w.plans) == 3


@pytest.mark.parametrize("strategy", [Strategy.OPERATOR_CENTRIC, Strategy.BLOCKING])
def test_other_strategies_do_not_plan_by_queries(strategy: Strategy) -> None:
    w = world(chains({"a": 5, "b": 3, "c": 1}), 3, strategy=strategy)
    assert w.desired is not None and w.driver is not None
    w.desired = w.driver.desired = replace(w.desired, assignment={p: f"{n}#1" for p, n in SPLIT.items()})
    w.drive()
    w.kill("n1", "n2")
    w.run(3.0)
    stays = {} if strategy is Strategy.BLOCKING else {"b.0": "n3#1", "c.1": "n3#1"}
    assert w.desired.assignment == stays


def test_strict_order_gives_the_room_to_the_most_valuable_query() -> None:
    """By sum the two short ones are worth more, by order the long one comes first."""
    long, short = chains({"a": 5}, 4), chains({"b": 3, "c": 3})
    topology = TopologyView("mixed", long.partitions + short.partitions, long.queries + short.queries, True)
    where = {"a.0": "n1", "a.1": "n1", "a.2": "n2", "a.3": "n2"}
    where |= {"b.0": "n3", "b.1": "n1", "c.0": "n4", "c.1": "n2"}
    found = {}
    for order in Order:
        w = world(topology, 4, order=order)
        found[order] = lost(w, where, "n1", "n2").plans[0].plan["queries"]
    assert found == {Order.VALUE: ["b.1", "c.1"], Order.STRICT: ["a.3"]}


def test_a_planner_that_finds_less_with_more_room_leaves_survivors_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def worse(instance: Any, *rest: Any) -> Plan:
        asked.append(instance.capacity)
        plan = solve(instance, *rest)
        if instance.capacity == 100:  # what is free beside all survivors
            return plan
        return replace(plan, queries=(), partitions=(), placement={}, optimal=False)

    two, one = chains({"a": 5, "b": 3}), chains({"d": 4}, 1)
    w = world(TopologyView("mixed", two.partitions + one.partitions, two.queries + one.queries, True), 3)
    monkeypatch.setattr(precomputed_module, "solve", worse)
    w = lost(w, {"a.0": "n1", "a.1": "n2", "b.0": "n3", "b.1": "n1", "d.0": "n2"}, "n1", "n2")
    assert asked == [200, 100]
    assert w.desired is not None
    assert w.desired.assignment == {"b.0": "n3#1", "d.0": "n3#1"}


def sized(costs: dict[str, tuple[int, ...]], priorities: dict[str, int]) -> TopologyView:
    """Chains whose partitions cost what is given."""
    plain = [chains({name: priorities[name]}, len(own)) for name, own in costs.items()]
    partitions = tuple(
        replace(p, cpu_milli=costs[p.id.partition(".")[0]][int(p.id.partition(".")[2])])
        for topology in plain
        for p in topology.partitions
    )
    return TopologyView("sized", partitions, tuple(q for t in plain for q in t.queries), True)


def test_what_fits_on_no_single_node_though_all_are_back_is_placed_anew_with_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the incident would never end, without a checkpoint and with buffers that grow: 1,000 milli-CPU on 1,200 in
    three nodes of 400, and what comes back first takes places of which none is left for one of 250."""
    topology = sized({"a": (250, 150), "b": (100,), "c": (250, 250)}, {"a": 3, "b": 4, "c": 2})
    ends = {}
    for helped in (False, True):
        with monkeypatch.context() as patched:
            if not helped:
                patched.setattr(recovery, "rearranged", lambda *_: None)
            w = world(topology, 3, 400, node_cpu_milli=400)
            w.kill("n1", "n3")
            w.run(3.0)
            for k in range(2):
                w.add(f"m{k + 1}", cpu=400)
                w.run(3.0)
            w.run(25.0)
            ends[helped] = w
    assert not ends[False].healthy() and ends[True].healthy()
    *before, last = ends[True].plans
    assert not any("anew" in plan.note for plan in before)
    assert last.note.startswith("everything is placed anew")
    assert last.rollback and not last.left_out
    assert last.added.keys() == {p.id for p in topology.partitions}


def test_nobody_leaves_where_the_rest_would_not_find_room_on_as_many_nodes_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eviction, "spread", lambda *_: None)
    w = lost(world(chains({"a": 5, "b": 3, "c": 1}), 3), SPLIT, "n1", "n2")
    assert w.desired is not None
    assert {"b.0", "c.1"} <= w.desired.assignment.keys()
    assert not w.plans[0].note


@pytest.mark.parametrize("helped", [False, True])
def test_a_further_loss_with_a_rollback_ends_as_well(helped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not deterministic: the last nodes come with the last loss, so no arrival follows, and the plan of the loss itself
    places everything anew."""
    costs = {"a": (250, 100, 250), "b": (250,), "c": (150, 150), "d": (300,)}
    topology = replace(sized(costs, {"a": 1, "b": 4, "c": 5, "d": 5}), deterministic=False)
    if not helped:
        monkeypatch.setattr(recovery, "rearranged", lambda *_: None)
    w = world(topology, 4, 400, node_cpu_milli=400)
    w.kill("n2", "n3", "n4")
    w.run(3.6)
    w.add("m1", cpu=400)
    w.run(0.6)
    w.kill("m1")
    w.add("m2", cpu=400)
    w.run(0.3)
    w.kill("n1")
    for k in (3, 4, 5):
        w.add(f"m{k}", cpu=400)
    w.run(60.0)
    assert w.healthy() is helped
    assert [plan.trigger for plan in w.plans if "everything is placed anew" in plan.note] == ["loss"] * helped


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_that_is_not_made_where_sums_say_enough_changes_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    costs = {name: tuple(rng.choice((50, 100, 150)) for _ in range(rng.randint(1, 4))) for name in "abcde"}
    topology = sized(costs, {name: rng.randint(1, 10) for name in costs})
    ends = []
    for sums in (True, False):
        with monkeypatch.context() as patched:
            if not sums:
                patched.setattr(eviction, "_cannot_fit", lambda *_: False)
            w = World(topology, Policy(nodes_wanted=5)).started(5)
            w.kill("n1", "n2", "n4")
            w.run(6.0)
            assert w.plans
            ends.append((w.plans, w.desired))
    assert ends[0] == ends[1]

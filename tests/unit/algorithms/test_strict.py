"""Strict order of priority: judged by trying every set of queries that keeps the order."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost, solve, solve_strict
from tests.support.examples import examples
from tests.support.planning_cases import instances


def costs(instance: Instance, queries: tuple[FailedQuery, ...]) -> int:
    cost = {p.id: p.cost for p in instance.partitions}
    return sum(cost[name] for name in {p for query in queries for p in query.partitions})


def most_in_order(instance: Instance) -> int:
    """The greatest value of a set in which a query of lesser priority is only there when all of higher ones are; what comes
    at no cost beside it is not counted."""
    best = 0
    for size in range(len(instance.queries) + 1):
        for chosen in combinations(instance.queries, size):
            least = min((q.priority for q in chosen), default=11)
            higher = [q for q in instance.queries if q.priority > least]
            if all(q in chosen for q in higher) and costs(instance, chosen) <= instance.budget():
                best = max(best, sum(q.priority for q in chosen))
    return best


def five_small_and_a_great_one(capacity: int) -> Instance:
    small = [FailedQuery(f"small-{k}", 3, (f"s{k}",)) for k in range(5)]
    return Instance(
        capacity=capacity,
        partitions=(PartitionCost("g", 100), *(PartitionCost(f"s{k}", 20) for k in range(5))),
        queries=(FailedQuery("great", 10, ("g",)), *small),
    )


def test_the_sum_takes_many_small_ones_and_strict_order_the_great_one() -> None:
    instance = five_small_and_a_great_one(100)
    assert solve(instance).value == 15
    plan = solve_strict(instance)
    assert plan.queries == ("great",)
    assert (plan.value, plan.bound, plan.optimal) == (10, 10, True)
    assert {e.query for e in plan.excluded} == {f"small-{k}" for k in range(5)}


def test_room_is_kept_for_the_great_one_and_the_reason_says_so() -> None:
    plan = solve_strict(five_small_and_a_great_one(99))
    assert plan.queries == ()
    reasons = {e.query: (e.code, e.reason) for e in plan.excluded}
    assert reasons["great"][0] == "too-large"
    code, reason = reasons["small-0"]
    assert code == "order"
    assert reason == "waits for great (priority 10), which comes first in strict order of priority"
    small = next(e for e in plan.excluded if e.query == "small-0")
    assert (small.enters_at, small.missing_capacity) == (120, 21)


def test_what_costs_nothing_more_comes_along() -> None:
    instance = Instance(
        capacity=10,
        partitions=(PartitionCost("a", 10), PartitionCost("b", 5)),
        queries=(
            FailedQuery("high", 9, ("a",)),
            FailedQuery("middle", 5, ("b",)),
            FailedQuery("low", 1, ("a",)),
        ),
    )
    plan = solve_strict(instance)
    assert set(plan.queries) == {"high", "low"}
    assert [e.query for e in plan.excluded] == ["middle"]
    assert plan.value == 10


def test_nodes_decide_where_the_sum_would_not() -> None:
    instance = Instance(
        capacity=120,
        partitions=(PartitionCost("a", 80), PartitionCost("b", 30)),
        queries=(FailedQuery("high", 9, ("a",)), FailedQuery("low", 1, ("b",))),
        nodes=(NodeCapacity("n1", 60), NodeCapacity("n2", 60)),
    )
    plan = solve_strict(instance)
    assert plan.queries == ()
    assert {e.query: e.code for e in plan.excluded} == {"high": "packing", "low": "order"}


@pytest.mark.parametrize("algorithm", ["auto", "ilp", "dp", "best-density"])
@examples(60)
@given(instance=instances(max_queries=7))
def test_no_plan_in_order_is_worth_more(algorithm: str, instance: Instance) -> None:
    plan = solve_strict(instance, algorithm)
    chosen = tuple(q for q in instance.queries if q.id in plan.queries)
    assert costs(instance, chosen) == plan.cost <= instance.budget()
    assert {e.query for e in plan.excluded} == {q.id for q in instance.queries} - set(plan.queries)
    assert plan.value == sum(q.priority for q in chosen)
    assert plan.bound >= most_in_order(instance)
    if algorithm != "best-density":
        assert plan.value >= most_in_order(instance)
    restored = set(plan.partitions)
    for query in chosen:
        higher = [q for q in instance.queries if q.priority > query.priority]
        assert restored >= {p for q in higher for p in q.partitions} or restored >= set(query.partitions)


@examples(60)
@given(instance=instances(max_queries=7, nodes=True))
def test_a_lesser_query_costs_something_only_when_all_greater_ones_are_back(instance: Instance) -> None:
    plan = solve_strict(instance)
    by_id = {q.id: q for q in instance.queries}
    cost = {p.id: p.cost for p in instance.partitions}
    kept = {p for e in plan.excluded for p in e.missing}
    assert kept.isdisjoint(plan.partitions)
    down = max((by_id[e.query].priority for e in plan.excluded), default=0)
    own = {p for q in plan.queries if by_id[q].priority >= down for p in by_id[q].partitions}
    assert sum(cost[p] for p in plan.partitions if p not in own) == 0
    room = {n.id: n.free for n in instance.nodes}
    for partition, node in (plan.placement or {}).items():
        room[node] -= cost[partition]
    assert min(room.values(), default=0) >= 0

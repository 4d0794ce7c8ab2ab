"""Why each query is in a plan or not: judged by trying all sets of queries."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given

from reprise.algorithms import FailedQuery, Instance, PartitionCost
from reprise.algorithms.explain import EXACT_ENTRY_QUERIES, NAMED, choices, exclusions
from reprise.algorithms.problem import Problem, compile_problem
from tests.support.examples import examples
from tests.support.planning_cases import instances


def problem(capacity: int, cost: dict[str, int], **queries: tuple[int, str]) -> Problem:
    """Queries as (priority, partitions with spaces between)."""
    return compile_problem(
        Instance(
            capacity,
            tuple(PartitionCost(p, c) for p, c in cost.items()),
            tuple(FailedQuery(q, priority, tuple(names.split())) for q, (priority, names) in queries.items()),
        )
    )


def every_set(p: Problem) -> list[tuple[int, ...]]:
    names = range(len(p.masks))
    return list(chain.from_iterable(combinations(names, size) for size in range(len(names) + 1)))


def best(p: Problem, capacity: int) -> tuple[int, ...]:
    fitting = [q for q in every_set(p) if p.cost_of(p.union(q)) <= capacity]
    return p.closure(p.union(max(fitting, key=p.value_of)))


@examples(60)
@given(instances(max_queries=6))
def test_choices_restore_each_partition_once_and_pay_what_they_add(instance: Instance) -> None:
    p = compile_problem(instance)
    chosen = best(p, p.capacity)
    found = choices(p, chosen)
    assert sorted(c.query for c in found) == [p.query_ids[q] for q in chosen]
    restored = [name for c in found for name in c.restores]
    assert len(restored) == len(set(restored))
    assert set(restored) == set(p.names_in(p.union(chosen)))
    assert sum(c.cost for c in found) == p.cost_of(p.union(chosen))
    first = found[0] if found else None
    assert first is None or first.cost == first.cost_alone
    assert first is None or all(
        first.cost_alone * p.priority[q] <= p.cost_of(p.masks[q]) * first.priority for q in chosen
    ), "the first gives most priority for its cost"


def test_what_one_query_brings_makes_the_next_one_cheaper() -> None:
    p = problem(9, {"a": 4, "b": 1, "c": 3}, x=(4, "a"), y=(3, "a b"), z=(1, "c"))
    assert [(c.query, c.cost, c.cost_alone, c.restores) for c in choices(p, (0, 1, 2))] == [
        ("x", 4, 4, ("a",)), ("y", 1, 5, ("b",)), ("z", 3, 3, ("c",)),
    ]  # fmt: skip


@examples(40)
@given(instances(max_queries=5, max_partitions=6))
def test_a_query_enters_where_a_best_plan_first_contains_it(instance: Instance) -> None:
    p = compile_problem(instance)
    chosen = best(p, p.capacity)
    for exclusion in exclusions(p, chosen, p.union(chosen)):
        query = p.query_ids.index(exclusion.query)
        assert exclusion.entry_exact
        sets = [(p.cost_of(p.union(q)), p.value_of(q), query in q) for q in every_set(p)]

        def contains(capacity: int, sets: list[tuple[int, int, bool]] = sets) -> bool:
            """Whether a plan that is best at this capacity has it."""
            within = [(value, has) for cost, value, has in sets if cost <= capacity]
            most = max(value for value, _ in within)
            return any(has for value, has in within if value == most)

        assert contains(exclusion.enters_at)
        if exclusion.enters_at > p.capacity:
            costs = sorted({cost for cost, _, _ in sets if p.capacity < cost < exclusion.enters_at})
            assert not any(map(contains, costs)), "with less it does not come back"
        assert exclusion.missing == p.names_in(p.masks[query] & ~p.union(chosen))


def test_with_many_queries_the_entry_is_what_its_own_partitions_would_cost() -> None:
    cost = {f"p{k}": 2 for k in range(EXACT_ENTRY_QUERIES + 1)}
    p = problem(2, cost, **{f"q{k:02}": (1, f"p{k}") for k in range(EXACT_ENTRY_QUERIES + 1)})
    found = exclusions(p, (0,), p.masks[0])
    assert len(found) == EXACT_ENTRY_QUERIES
    assert {(e.enters_at, e.entry_exact) for e in found} == {(4, False)}


@pytest.mark.parametrize(
    ("capacity", "chosen", "code", "reason"),
    [
        (4, (0,), "too-large", "needs 5 alone, more than the capacity of 4"),
        (5, (0,), "outbid", "needs 5 more and 2 is free: 3 is missing; competes with x"),
        (9, (0,), "not-found", "needs 5 more and 6 is free: the planner did not find it"),
    ],
)
def test_the_reason_says_what_stands_in_the_way(
    capacity: int, chosen: tuple[int, ...], code: str, reason: str
) -> None:
    p = problem(capacity, {"a": 3, "b": 5}, x=(9, "a"), y=(1, "b"))
    (found,) = exclusions(p, chosen, p.masks[0])
    assert (found.query, found.code, found.reason) == ("y", code, reason)


def test_one_for_which_no_node_has_room_says_so() -> None:
    p = problem(9, {"a": 3, "b": 5}, x=(9, "a"), y=(1, "b"))
    (found,) = exclusions(p, (0,), p.masks[0], frozenset({1}))
    assert found.code == "packing"
    assert "free in sum, but not on nodes where its partitions fit" in found.reason


def test_a_planner_that_restores_by_partition_leaves_queries_undone() -> None:
    p = problem(9, {"a": 3, "b": 5, "c": 1}, x=(9, "a"), y=(1, "b c"))
    (found,) = exclusions(p, (0,), p.masks[0] | p.masks[1] & ~(1 << p.partition_ids.index("b")))
    assert (found.code, found.missing) == ("not-completed", ("b",))
    assert found.reason == "the planner restores partition by partition and left 5 of this query undone"


def test_the_cheapest_one_that_makes_room_alone_is_the_rival() -> None:
    p = problem(8, {"a": 4, "b": 4, "c": 4}, x=(9, "a"), y=(5, "b"), z=(4, "c"))
    (found,) = exclusions(p, (0, 1), p.union((0, 1)))
    assert (found.competes_with, found.missing_capacity) == (("y",), 4)


def test_a_partition_that_two_need_is_freed_by_neither_alone() -> None:
    p = problem(4, {"s": 3, "a": 1, "c": 4}, x=(5, "s"), y=(5, "s a"), z=(1, "c"))
    (found,) = exclusions(p, (0, 1), p.union((0, 1)))
    assert found.competes_with == ("x", "y")


def test_some_rivals_are_named_and_the_others_counted() -> None:
    small = {f"r{k}": (2, f"p{k}") for k in range(NAMED + 2)}
    p = problem(NAMED + 2, {**{f"p{k}": 1 for k in range(NAMED + 2)}, "g": NAMED + 2}, **small, z=(1, "g"))
    (found,) = exclusions(p, tuple(range(NAMED + 2)), p.union(range(NAMED + 2)))
    assert len(found.competes_with) == NAMED + 2
    assert found.reason.endswith("r0, r1, r2, r3, r4 and 2 more")


def test_where_all_come_back_nobody_is_left_out() -> None:
    p = problem(9, {"a": 3}, x=(9, "a"))
    assert exclusions(p, (0,), p.masks[0]) == ()
    assert choices(p, ()) == ()

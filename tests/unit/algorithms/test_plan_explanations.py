"""Explanations: what they say must be true of the instance."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from reprise.algorithms import FailedQuery, Instance, PartitionCost, solve
from tests.support.examples import examples
from tests.support.planning_cases import brute_force, instances


def small() -> Instance:
    """Capacity 10: A and B share s; C is dear and worth much; D never fits."""
    return Instance(
        10,
        tuple(PartitionCost(n, c) for n, c in [("s", 4), ("a", 2), ("b", 3), ("c", 7), ("d", 50)]),
        (
            FailedQuery("A", 6, ("s", "a")),
            FailedQuery("B", 6, ("s", "b")),
            FailedQuery("C", 7, ("c",)),
            FailedQuery("D", 10, ("d",)),
        ),
    )


def test_chosen_queries_come_in_order_with_what_each_adds() -> None:
    first, second = solve(small(), "auto").chosen
    assert (first.query, first.cost, first.cost_alone, first.restores) == ("A", 6, 6, ("a", "s"))
    assert (second.query, second.cost, second.cost_alone, second.restores) == ("B", 3, 7, ("b",))


def test_a_query_left_out_says_what_it_lacks_and_whom_it_competes_with() -> None:
    by_query = {e.query: e for e in solve(small(), "auto").excluded}
    outbid = by_query["C"]
    assert outbid.code == "outbid"
    assert outbid.missing == ("c",)
    assert outbid.missing_capacity == 6  # 9 spent of 10, 7 wanted
    assert outbid.competes_with == ("A", "B")  # dropping one alone frees 2 or 3: s stays
    assert (outbid.enters_at, outbid.entry_exact) == (13, True)  # C with A (13 = 7 + 6) is worth 13 > 12
    assert "6 is missing" in outbid.reason
    assert by_query["D"].code == "too-large"
    assert "more than the capacity of 10" in by_query["D"].reason


def test_the_plan_with_a_capacity_at_entry_contains_an_equal_with_the_query() -> None:
    plan = solve(replace(small(), capacity=13), "auto")
    assert plan.value == 13


@given(instance=instances())
@examples(100)
def test_entry_is_where_the_best_plan_with_the_query_is_as_good_as_any(instance: Instance) -> None:
    for excluded in solve(instance, "auto").excluded:
        assert excluded.entry_exact
        at = replace(instance, capacity=excluded.enters_at)
        query = next(q for q in instance.queries if q.id == excluded.query)
        cost = {p.id: p.cost for p in instance.partitions}
        # force the query: its partitions are paid, its priority is banked
        rest = Instance(
            at.capacity - sum(cost[name] for name in query.partitions),
            tuple(
                PartitionCost(p.id, 0 if p.id in query.partitions else p.cost) for p in instance.partitions
            ),
            tuple(q for q in instance.queries if q.id != query.id),
        )
        assert rest.capacity >= 0
        assert brute_force(rest) + query.priority == brute_force(at)


@given(instance=instances())
@examples(100)
def test_withdrawing_the_competitors_makes_room(instance: Instance) -> None:
    plan = solve(instance, "best-density")
    cost = {p.id: p.cost for p in instance.partitions}
    queries = {q.id: q for q in instance.queries}
    for excluded in plan.excluded:
        if excluded.code != "outbid":
            continue
        assert excluded.competes_with
        kept = [queries[name] for name in plan.queries if name not in excluded.competes_with]
        needed = {name for q in [*kept, queries[excluded.query]] for name in q.partitions}
        assert sum(cost[name] for name in needed) <= instance.capacity

"""A plan as people read it."""

from __future__ import annotations

from dataclasses import replace

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost, plan_table, solve

INSTANCE = Instance(
    capacity=1500,
    partitions=(PartitionCost("a.0", 1000), PartitionCost("shared", 250), PartitionCost("b.0", 1300)),
    queries=(FailedQuery("a", 9, ("a.0", "shared")), FailedQuery("b", 5, ("b.0", "shared"))),
    scale=1000,
)
PLAN = solve(INSTANCE, "ilp", 1.0)


def test_it_says_what_comes_back_what_does_not_and_at_which_capacity_it_would() -> None:
    head, *rows = plan_table(replace(PLAN, why="")).splitlines()
    assert head == f"{PLAN.algorithm}: priority 9, optimal; cost 1.25"
    assert rows[:3] == ["", "RESTORE  PRIORITY  ADDS  PARTITIONS", "a        9         1.25  a.0 shared"]
    assert rows[3:5] == ["", "LEFT OUT  CODE       ENTERS AT  REASON"]
    (left_out,) = PLAN.excluded
    assert rows[5].split()[:2] == ["b", left_out.code]
    assert rows[5].endswith(left_out.reason)


def test_an_entry_that_is_not_known_exactly_is_at_most_that() -> None:
    (left_out,) = PLAN.excluded
    for exact, text in ((True, " 2.55 "), (False, " <= 2.55 ")):
        entry = replace(left_out, enters_at=2550, entry_exact=exact)
        assert text in plan_table(replace(PLAN, excluded=(entry,)))


def test_a_plan_that_may_be_beaten_says_by_how_much_and_why_it_was_made_so() -> None:
    text = plan_table(replace(PLAN, optimal=False, bound=12, why="the clock ran out", packing_loss=3))
    assert "priority 9, at most 12 possible (25.0% gap); cost 1.25\nthe clock ran out\n" in text
    assert "the nodes' sizes cost 3 of priority against the plan for the sum" in text
    assert "cost 3" not in plan_table(replace(PLAN, packing_loss=0))


def test_where_nodes_are_given_each_partition_stands_beside_its_own() -> None:
    nodes = (NodeCapacity("n1#1", 1000), NodeCapacity("n2#1", 500))
    text = plan_table(solve(replace(INSTANCE, nodes=nodes), "ilp", 1.0))
    assert "a.0@n1#1 shared@n2#1" in text


def test_nothing_to_restore_and_nothing_left_out_is_one_line() -> None:
    empty = solve(Instance(capacity=10, partitions=(), queries=()), "ilp", 1.0)
    assert plan_table(replace(empty, why="")).count("\n") == 1

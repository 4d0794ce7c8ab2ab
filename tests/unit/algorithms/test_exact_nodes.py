"""Queries and their places decided at once, where what fits in sum fits on no nodes."""

from __future__ import annotations

import pytest

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost
from reprise.algorithms.exact_nodes import MAX_PLACES, MIN_TIME, _feasible, improve_on_nodes, worth_it
from reprise.algorithms.fit import Fitted
from reprise.algorithms.problem import Deadline, Outcome, Problem, StepClock, compile_problem

FREE = (4, 4)
PROBLEM = compile_problem(
    Instance(
        8,
        tuple(PartitionCost(name, cost) for name, cost in [("a", 3), ("b", 3), ("c", 4), ("d", 4)]),
        (FailedQuery("large", 9, ("a", "b")), FailedQuery("c", 5, ("c",)), FailedQuery("d", 5, ("d",))),
        tuple(NodeCapacity(f"n{i}", room) for i, room in enumerate(FREE)),
    )
)
LARGE = PROBLEM.query_ids.index("large")
POOR = Fitted((LARGE,), {PROBLEM.partition_ids.index("a"): 0, PROBLEM.partition_ids.index("b"): 1})


def improved(fitted: Fitted, bound: int | None, seconds: float = 60.0) -> tuple[Fitted, Outcome]:
    deadline = Deadline(StepClock(), seconds)
    return improve_on_nodes(PROBLEM, fitted, Outcome(fitted.queries, bound), FREE, deadline)


@pytest.mark.parametrize("bound", [None, 19, 12])
def test_a_better_plan_is_found_with_its_places_and_a_bound_that_is_no_lower(bound: int | None) -> None:
    found, outcome = improved(POOR, bound)
    assert {PROBLEM.query_ids[q] for q in found.queries} == {"c", "d"}
    names = {PROBLEM.partition_ids[k]: node for k, node in found.placement.items()}
    assert sorted(names) == ["c", "d"] and sorted(names.values()) == [0, 1]
    assert outcome.bound == 10, "no plan for these nodes is worth more"
    assert "queries and places together" in outcome.note


def test_the_best_plan_stays_and_is_shown_to_be_the_best() -> None:
    best, _ = improved(POOR, 19)
    found, outcome = improved(best, 19)
    assert found is best and outcome.bound == 10 and outcome.note == ""


def test_without_time_nothing_is_tried() -> None:
    assert improved(POOR, 19, seconds=MIN_TIME / 2) == (POOR, Outcome(POOR.queries, 19))


def test_an_instance_with_too_many_places_is_left_to_the_sum() -> None:
    nodes = MAX_PLACES // len(PROBLEM.cost)
    assert worth_it(PROBLEM, (1,) * nodes, Deadline(StepClock(), 60.0))
    assert not worth_it(PROBLEM, (1,) * (nodes + 1), Deadline(StepClock(), 60.0))


def mask(*names: str) -> int:
    return sum(1 << PROBLEM.partition_ids.index(name) for name in names)


@pytest.mark.parametrize(
    ("needed", "placed", "free", "feasible"),
    [
        (("c", "d"), {"c": 0, "d": 1}, FREE, True),
        (("c", "d"), {"c": 0, "d": 0}, FREE, False),
        (("c", "d"), {"c": 0, "d": 0}, (8, 0), True),
        (("c", "d"), {"c": 0}, FREE, False),
        (("c",), {"c": 0, "d": 1}, FREE, False),
        (("a", "c", "d"), {"a": 0, "c": 1, "d": 2}, (4, 4, 4), False),
    ],
)
def test_what_the_solver_says_is_checked_in_whole_numbers(
    needed: tuple[str, ...], placed: dict[str, int], free: tuple[int, ...], feasible: bool
) -> None:
    """Each partition that is needed has one place, no node has more than fits, and neither has the sum."""
    placement = {PROBLEM.partition_ids.index(name): node for name, node in placed.items()}
    assert _feasible(PROBLEM, mask(*needed), placement, free) is feasible


def test_a_partition_that_two_queries_need_is_placed_once() -> None:
    shared: Problem = compile_problem(
        Instance(
            6,
            (PartitionCost("s", 2), PartitionCost("x", 2), PartitionCost("y", 2)),
            (FailedQuery("x", 2, ("s", "x")), FailedQuery("y", 2, ("s", "y"))),
            (NodeCapacity("n0", 4), NodeCapacity("n1", 2)),
        )
    )
    found, outcome = improve_on_nodes(
        shared, Fitted(()), Outcome((), None), (4, 2), Deadline(StepClock(), 60.0)
    )
    assert len(found.queries) == 2 and sorted(found.placement) == [0, 1, 2]
    assert outcome.bound == 4

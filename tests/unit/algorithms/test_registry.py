"""One call from an instance to an explained plan: what all planners have in common."""

from __future__ import annotations

import pytest
from hypothesis import given

from reprise.algorithms import (
    FailedQuery,
    Instance,
    InstanceError,
    NodeCapacity,
    PartitionCost,
    UnknownAlgorithm,
)
from reprise.algorithms.registry import (
    ALGORITHMS,
    EXACT_ON_NODES,
    OPERATOR_CENTRIC,
    PLANNERS,
    SEARCHING,
    solve,
)
from tests.support.examples import examples
from tests.support.planning_cases import brute_force, instances

SMALL = Instance(
    7,
    (PartitionCost("a", 4), PartitionCost("b", 3), PartitionCost("c", 3)),
    (FailedQuery("x", 5, ("a",)), FailedQuery("y", 4, ("b",)), FailedQuery("z", 4, ("c",))),
)


def test_an_unknown_planner_is_named_with_those_that_there_are() -> None:
    with pytest.raises(
        UnknownAlgorithm, match="no planner 'fast'; there are auto, best-density, dp, ilp"
    ) as refused:
        solve(SMALL, "fast")
    assert OPERATOR_CENTRIC in str(refused.value)


def test_the_lists_name_planners_that_there_are() -> None:
    assert set(ALGORITHMS) == {*PLANNERS, OPERATOR_CENTRIC}
    assert set(SEARCHING) | set(EXACT_ON_NODES) <= PLANNERS.keys()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_instance_that_contradicts_itself_is_refused_by_each(algorithm: str) -> None:
    with pytest.raises(InstanceError):
        solve(Instance(1, (PartitionCost("a", 1),), (FailedQuery("x", 1, ("b",)),)), algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_to_restore_is_a_plan_that_is_proven(algorithm: str) -> None:
    plan = solve(Instance(5, (), ()), algorithm)
    assert (plan.queries, plan.partitions, plan.value, plan.bound, plan.optimal) == ((), (), 0, 0, True)
    assert plan.excluded == ()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_plan_says_all_of_each_query(algorithm: str) -> None:
    plan = solve(SMALL, algorithm)
    assert {*plan.queries, *(e.query for e in plan.excluded)} == {"x", "y", "z"}
    assert [c.query for c in plan.chosen] == list(plan.queries)
    assert plan.cost <= SMALL.capacity
    assert plan.value == sum(q.priority for q in SMALL.queries if q.id in plan.queries) <= plan.bound
    assert plan.optimal == (plan.value >= plan.bound)
    assert plan.placement is None, "there are no nodes"


def test_seconds_are_those_of_the_clock_that_is_given() -> None:
    now = iter(range(1_000_000))
    assert solve(SMALL).seconds == 0.0
    assert solve(SMALL, clock=lambda: float(next(now))).seconds > 0


def test_what_is_said_of_the_scale_stays_with_the_plan() -> None:
    nodes = (NodeCapacity("n1", 4), NodeCapacity("n2", 3))
    placed = solve(Instance(7, SMALL.partitions, SMALL.queries, nodes))
    assert placed.placement in ({"a": "n1", "b": "n2"}, {"a": "n1", "c": "n2"})
    assert placed.scale == SMALL.scale


def test_where_pieces_do_not_fit_onto_nodes_the_loss_is_said() -> None:
    nodes = (NodeCapacity("n1", 3), NodeCapacity("n2", 3))
    one = Instance(6, (PartitionCost("a", 4), PartitionCost("b", 2)), (
        FailedQuery("x", 9, ("a",)), FailedQuery("y", 1, ("b",))), nodes)  # fmt: skip
    plan = solve(one)
    assert plan.queries == ("y",)
    assert plan.optimal, "with these nodes nothing better is possible"
    rough = solve(one, "best-density")
    assert rough.packing_loss > 0 or rough.queries == ("y",)
    assert next(e for e in plan.excluded if e.query == "x").code in ("packing", "too-large")


@examples(60)
@given(instances(max_queries=6))
def test_no_planner_promises_less_than_there_is_and_none_takes_more_than_it_may(instance: Instance) -> None:
    most = brute_force(instance)
    for algorithm in ALGORITHMS:
        plan = solve(instance, algorithm)
        assert plan.value <= most <= plan.bound, algorithm
        assert plan.cost <= instance.budget(), algorithm
        assert not plan.optimal or plan.value == most, algorithm

"""What holds for every planner, and what each promises about its value."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import (
    ALGORITHMS,
    FailedQuery,
    Instance,
    PartitionCost,
    Plan,
    UnknownAlgorithm,
    solve,
)
from reprise.algorithms.best_density import best_density_literal
from reprise.algorithms.best_density_fast import best_density_fast
from reprise.algorithms.dp import dp_literal
from reprise.algorithms.problem import compile_problem
from tests.support.examples import examples
from tests.support.planning_cases import brute_force, instances, share_frequency

EXACT = ["dp", "ilp", "auto"]


def check(instance: Instance, plan: Plan) -> None:
    """Feasible, closed, consistent with itself, and explained for every query."""
    cost = {p.id: p.cost for p in instance.partitions}
    queries = {q.id: q for q in instance.queries}
    assert len(set(plan.partitions)) == len(plan.partitions)
    assert plan.cost == sum(cost[name] for name in plan.partitions) <= instance.budget()
    for name in plan.queries:
        assert set(queries[name].partitions) <= set(plan.partitions)
    assert plan.value == sum(queries[name].priority for name in plan.queries)
    assert plan.value <= plan.bound
    assert plan.optimal == (plan.value >= plan.bound)
    assert {e.query for e in plan.excluded} | set(plan.queries) == set(queries)
    assert not {e.query for e in plan.excluded} & set(plan.queries)
    if instance.nodes:
        assert plan.placement is not None
        assert set(plan.placement) == set(plan.partitions)
        for node in instance.nodes:
            assert sum(cost[p] for p, n in plan.placement.items() if n == node.id) <= node.free


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(data=st.data())
@examples(60)
def test_plans_are_feasible_closed_and_explained(algorithm: str, data: st.DataObject) -> None:
    instance = data.draw(instances(nodes=data.draw(st.booleans())))
    check(instance, solve(instance, algorithm))


@pytest.mark.parametrize("algorithm", EXACT)
@given(instance=instances())
@examples(80)
def test_exact_planners_reach_the_optimum(algorithm: str, instance: Instance) -> None:
    plan = solve(instance, algorithm)
    assert plan.value == plan.bound == brute_force(instance)


@given(instance=instances())
@examples(150)
def test_the_two_dynamic_programmes_agree(instance: Instance) -> None:
    problem = compile_problem(instance)
    assert problem.value_of(dp_literal(problem)) == solve(instance, "dp").value


@given(instance=instances())
@examples(200)
def test_best_density_keeps_its_guarantee(instance: Instance) -> None:
    optimum, d = brute_force(instance), share_frequency(instance)
    value = solve(instance, "best-density").value
    assert value >= (1 - math.exp(-1 / d)) * optimum if d else value == 0


@given(instance=instances(max_queries=12, max_partitions=14))
@examples(200)
def test_incremental_densities_change_nothing(instance: Instance) -> None:
    problem = compile_problem(instance)
    assert best_density_fast(problem) == (best_density_literal(problem), True)


def test_the_printed_start_from_the_densest_query_alone_would_break_the_guarantee() -> None:
    instance = Instance(
        100,
        (PartitionCost("cheap", 1), PartitionCost("dear", 100)),
        (FailedQuery("dense", 1, ("cheap",)), FailedQuery("valuable", 10, ("dear",))),
    )
    assert solve(instance, "best-density").queries == ("valuable",)


@given(instance=instances())
@examples(60)
def test_local_search_is_never_below_best_density(instance: Instance) -> None:
    assert solve(instance, "local-search", time_limit=0.1).value >= solve(instance, "best-density").value


@given(instance=instances(), more=st.integers(0, 20))
@examples(60)
def test_exact_value_grows_with_capacity(instance: Instance, more: int) -> None:
    larger = replace(instance, capacity=instance.capacity + more)
    assert solve(larger, "auto").value >= solve(instance, "auto").value


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(data=st.data())
@examples(25)
def test_the_order_of_the_input_does_not_show(algorithm: str, data: st.DataObject) -> None:
    instance = data.draw(instances(nodes=data.draw(st.booleans())))
    shuffled = replace(
        instance,
        partitions=tuple(data.draw(st.permutations(instance.partitions))),
        queries=tuple(
            replace(query, partitions=tuple(data.draw(st.permutations(query.partitions))))
            for query in data.draw(st.permutations(instance.queries))
        ),
        nodes=tuple(data.draw(st.permutations(instance.nodes))),
    )
    assert solve(shuffled, algorithm) == solve(instance, algorithm)


def test_operator_centric_restores_partitions_that_complete_nothing() -> None:
    """Figure 2 in small: two chains; cheapest first restores both heads and finishes neither query."""
    instance = Instance(
        4,
        tuple(PartitionCost(name, cost) for name, cost in [("a1", 1), ("a2", 3), ("b1", 1), ("b2", 3)]),
        (FailedQuery("A", 5, ("a1", "a2")), FailedQuery("B", 5, ("b1", "b2"))),
        edges=(("a1", "a2"), ("b1", "b2")),
    )
    plan = solve(instance, "operator-centric")
    assert plan.partitions == ("a1", "b1")
    assert plan.value == 0
    assert solve(instance, "auto").value == 5


def test_operator_centric_gets_through_feedback_edges() -> None:
    instance = Instance(
        10,
        tuple(PartitionCost(name, 2) for name in "abc"),
        (FailedQuery("Q", 1, ("a", "b", "c")),),
        edges=(("a", "b"), ("b", "a"), ("b", "c")),
    )
    assert solve(instance, "operator-centric").partitions == ("a", "b", "c")


def test_an_unknown_planner_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownAlgorithm, match="best-density"):
        solve(Instance(1, (), ()), "magic")


def test_best_density_of_nothing_is_nothing() -> None:
    assert best_density_literal(compile_problem(Instance(5, (), ()))) == ()

"""Reductions, parts and frontiers: each must leave the optimum where it was."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import FailedQuery, Instance, PartitionCost, exact, solve
from reprise.algorithms.candidate_run import all_candidates
from reprise.algorithms.frontier import Frontier, long_sums, short_sums
from reprise.algorithms.generators import sukp
from reprise.algorithms.problem import Deadline, StepClock, compile_problem
from reprise.algorithms.reduce import components, reduce_problem, restrict
from reprise.algorithms.structure import frontier_of, laminar_forest
from tests.support.examples import examples
from tests.support.planning_cases import brute_force, instances


@given(instance=instances())
@examples(150)
def test_reductions_keep_the_optimum(instance: Instance) -> None:
    problem = compile_problem(instance)
    reduced = reduce_problem(problem)
    small = reduced.problem
    left = Instance(
        small.capacity,
        tuple(map(PartitionCost, small.partition_ids, small.cost)),
        tuple(
            FailedQuery(name, priority, tuple(small.partition_ids[k] for k in small.members(q)))
            for q, (name, priority) in enumerate(zip(small.query_ids, small.priority, strict=True))
        ),
    )
    assert brute_force(left) + problem.value_of(reduced.taken) == brute_force(instance)


@given(instance=instances())
@examples(100)
def test_parts_share_nothing_and_cover_all(instance: Instance) -> None:
    problem = compile_problem(instance)
    parts = components(problem)
    assert sorted(q for part in parts for q in part) == list(range(len(problem.masks)))
    for i, part in enumerate(parts):
        for other in parts[i + 1 :]:
            assert problem.union(part) & problem.union(other) == 0


@given(instance=instances())
@examples(150)
def test_frontiers_answer_every_capacity(instance: Instance) -> None:
    problem = compile_problem(instance)
    reduced = reduce_problem(problem)
    frontier = frontier_of(reduced.problem)
    assert frontier is not None
    for index in range(len(frontier.values)):
        queries = frontier.queries(index)
        assert reduced.problem.value_of(queries) == frontier.values[index]
        assert reduced.problem.cost_of(reduced.problem.union(queries)) == frontier.costs[index]
    best = frontier.best(problem.capacity)
    assert frontier.values[best] + problem.value_of(reduced.taken) == brute_force(instance)


@st.composite
def frontiers(draw: st.DrawFn) -> Frontier:
    steps = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=12)
    values, costs = zip((0, 0), *draw(steps), strict=True)
    return Frontier(list(accumulate(values)), list(accumulate(costs)), lambda _: ([], []))


@given(first=frontiers(), second=frontiers(), capacity=st.integers(0, 60))
@examples(200)
def test_sorted_sums_and_the_table_of_values_join_alike(
    first: Frontier, second: Frontier, capacity: int
) -> None:
    small, large = sorted((first, second), key=lambda frontier: len(frontier.values))
    table = long_sums(small, large, capacity)
    assert short_sums(small, large, capacity) == tuple([int(number) for number in row] for row in table)


@st.composite
def trees(draw: st.DrawFn, max_queries: int = 10) -> Instance:
    """Queries are paths from the root of a random out-tree."""
    parents = [draw(st.integers(0, max(0, k - 1))) for k in range(draw(st.integers(1, 14)))]
    costs = draw(st.lists(st.integers(1, 9), min_size=len(parents), max_size=len(parents)))
    queries = []
    for i in range(draw(st.integers(1, max_queries))):
        at = draw(st.integers(0, len(parents) - 1))
        path = [at]
        while at:
            at = parents[at]
            path.append(at)
        queries.append(FailedQuery(f"q{i}", draw(st.integers(1, 10)), tuple(f"p{k}" for k in path)))
    partitions = tuple(PartitionCost(f"p{k}", cost) for k, cost in enumerate(costs))
    return Instance(draw(st.integers(0, sum(costs))), partitions, tuple(queries))


@given(instance=trees())
@examples(150)
def test_trees_are_found_laminar_and_solved(instance: Instance) -> None:
    reduced = reduce_problem(compile_problem(instance))
    for part in components(reduced.problem):
        assert laminar_forest(restrict(reduced.problem, part)) is not None
    assert solve(instance, "ilp").value == brute_force(instance)


@given(instance=trees() | instances(), less=st.integers(0, 60))
@examples(400)
def test_what_frontiers_say_of_less_capacity_is_what_planning_anew_finds(
    instance: Instance, less: int
) -> None:
    problem = compile_problem(instance)
    outcome = exact.by_structure(problem, reduce_problem(problem))
    assert outcome is not None
    tight = replace(problem, capacity=max(0, problem.capacity - less))
    assert outcome.with_less(tight.capacity) in (None, exact.by_structure(tight, reduce_problem(tight)))


def test_less_capacity_that_queries_still_fit_into_needs_no_new_plan() -> None:
    """Twelve alike; eleven fit, and then five."""
    problem = compile_problem(
        Instance(
            23,
            tuple(PartitionCost(f"p{k:02}", 2) for k in range(12)),
            tuple(FailedQuery(f"q{k:02}", 1 + k % 3, (f"p{k:02}",)) for k in range(12)),
        )
    )
    outcome = exact.by_structure(problem, reduce_problem(problem))
    assert outcome is not None
    fewer = outcome.with_less(11)
    assert fewer is not None
    assert problem.value_of(fewer.queries) == 3 * 4 + 2
    assert outcome.with_less(1) is None  # no query fits: reductions would settle it


def test_where_another_frontier_is_the_shorter_with_less_capacity_equals_are_chosen_anew() -> None:
    costs = {"a": 1, "b": 3, "c": 2, "d": 1, "e": 2}
    needs = ((3, "a"), (1, "ab"), (3, "c"), (1, "d"), (3, "de"))
    problem = compile_problem(
        Instance(
            7,
            tuple(PartitionCost(name, cost) for name, cost in costs.items()),
            tuple(FailedQuery(f"q{i}", worth, tuple(names)) for i, (worth, names) in enumerate(needs)),
        )
    )
    outcome = exact.by_structure(problem, reduce_problem(problem))
    assert outcome is not None
    tight = replace(problem, capacity=5)
    anew = exact.by_structure(tight, reduce_problem(tight))
    assert anew is not None
    assert anew.queries == (0, 3, 4)  # and not 0, 2 and 3, for which the frontiers for 7 decide
    assert outcome.with_less(5) is None


def test_crossing_partitions_are_not_laminar() -> None:
    instance = Instance(
        9,
        tuple(PartitionCost(name, 1) for name in "ab"),
        (FailedQuery("1", 1, ("a",)), FailedQuery("2", 1, ("a", "b")), FailedQuery("3", 1, ("b",))),
    )
    assert laminar_forest(compile_problem(instance)) is None


@pytest.mark.long
def test_a_long_chain_is_solved_without_recursion() -> None:
    """A pipeline of 400 stages; behind each a query that needs all stages so far and one partition of its
    own."""
    stages = [f"s{k:03}" for k in range(400)]
    teeth = [f"t{k:03}" for k in range(400)]
    instance = Instance(
        600,
        tuple(PartitionCost(name, 1) for name in stages + teeth),
        tuple(FailedQuery(f"q{k:03}", 1 + k % 10, (*stages[: k + 1], teeth[k])) for k in range(len(stages))),
    )
    plan = solve(instance, "ilp")
    assert plan.optimal
    assert "exact by its structure" in plan.why
    # with the first 400 - j stages paid, 200 + j teeth can be had: the best of all such choices, by hand
    priorities = [1 + k % 10 for k in range(400)]
    by_depth = [sum(sorted(priorities[:depth])[-(600 - depth) :]) for depth in range(1, 401)]
    assert plan.value == max(by_depth)


@pytest.mark.long
def test_five_hundred_separate_queries_are_a_plain_knapsack() -> None:
    instance = Instance(
        900,
        tuple(PartitionCost(f"p{k}", 1 + k % 7) for k in range(500)),
        tuple(FailedQuery(f"q{k}", 1 + k % 10, (f"p{k}",)) for k in range(500)),
    )
    plan = solve(instance, "auto")
    assert plan.optimal
    assert plan.cost <= 900


def test_the_integer_programme_proves_its_optimum_when_parts_are_large() -> None:
    plan = solve(ring(24, 30), "ilp", time_limit=20.0)
    assert plan.optimal
    assert "HiGHS" in plan.why


def ring(count: int, capacity: int) -> Instance:
    """Each query shares with both neighbours: one part, not laminar, too many subsets."""
    return Instance(
        capacity,
        tuple(PartitionCost(f"p{k:02}", 1 + k % 3) for k in range(count)),
        tuple(
            FailedQuery(f"q{k:02}", 1 + k * 7 % 10, (f"p{k:02}", f"p{(k + 1) % count:02}"))
            for k in range(count)
        ),
    )


def test_highs_starts_from_the_heuristic_plan() -> None:
    problem = compile_problem(ring(24, 30))
    warm = all_candidates(problem, wait=True)
    model, chosen = exact._model(problem)
    highs = exact.highs_for(model, Deadline(StepClock(), 1.0))
    exact._start_from(highs, problem, chosen, model, warm)
    highs.setOptionValue("mip_max_nodes", 0)
    highs.setOptionValue("mip_heuristic_effort", 0.0)
    highs.setOptionValue("presolve", "off")
    starts: list[float] = []
    highs.cbMipImprovingSolution += lambda event: starts.append(-event.data_out.objective_function_value)
    highs.run()
    assert starts[0] == problem.value_of(warm)


@pytest.mark.long
def test_when_time_runs_out_the_start_stands_with_a_bound_above_the_optimum() -> None:
    instance = sukp(random.Random(1), 60, 60, 0.1, 0.75)
    problem = compile_problem(instance)
    reduced = reduce_problem(problem)
    warm = all_candidates(reduced.problem, wait=True)
    spent = Deadline(lambda: 0.0, 0.0)
    cut = exact.by_programme(problem, reduced, spent, lambda _: warm)
    longer = solve(instance, "local-search", time_limit=2.0)
    assert problem.value_of(cut.queries) >= problem.value_of(reduced.expand(warm))
    assert cut.bound is not None
    assert cut.bound >= longer.value


def test_a_part_at_a_time_where_parts_share_nothing() -> None:
    """Four rings of 12 are 48 queries in one programme, or four small parts whose frontiers are joined."""
    rings = [ring(12, 60) for _ in range(4)]
    instance = Instance(
        60,
        tuple(PartitionCost(f"{i}{p.id}", p.cost) for i, one in enumerate(rings) for p in one.partitions),
        tuple(
            FailedQuery(f"{i}{q.id}", q.priority, tuple(f"{i}{name}" for name in q.partitions))
            for i, one in enumerate(rings)
            for q in one.queries
        ),
    )
    plan = solve(instance, "ilp")
    assert plan.optimal
    assert "4 parts that share nothing" in plan.why
    problem = compile_problem(instance)
    whole = exact.by_programme(
        problem, reduce_problem(problem), Deadline(StepClock(), 20.0), lambda small: ()
    )
    assert problem.value_of(whole.queries) == plan.value == whole.bound


def test_up_to_eighteen_queries_all_sets_are_compared() -> None:
    plan = solve(ring(18, 25), "ilp")
    assert (plan.algorithm, plan.optimal) == ("dp", True)


@pytest.mark.long
def test_without_a_clock_the_integer_programme_is_the_same_every_time() -> None:
    instance = sukp(random.Random(2), 40, 40, 0.1, 0.75)
    assert solve(instance, "ilp", time_limit=0.05) == solve(instance, "ilp", time_limit=0.05)

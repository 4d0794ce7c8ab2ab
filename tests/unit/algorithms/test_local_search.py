"""The search: its tables never drift, it never gets worse with time, and its bounds are bounds."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import Instance, solve
from reprise.algorithms.bounds import split_bound
from reprise.algorithms.candidate_run import all_candidates
from reprise.algorithms.generators import Setting, sukp, topology
from reprise.algorithms.local_search import search
from reprise.algorithms.problem import compile_problem
from tests.support.examples import examples
from tests.support.planning_cases import brute_force, instances


def steps(count: int) -> Callable[[], bool]:
    left = iter(range(count))
    return lambda: next(left, None) is None


def test_more_steps_never_give_less() -> None:
    problem = compile_problem(sukp(random.Random(3), 60, 60, 0.1, 0.75))
    start = all_candidates(problem, wait=True)
    values = [problem.value_of(search(problem, start, steps(count))[0]) for count in (0, 1, 5, 50)]
    assert values == sorted(values)
    assert values[0] >= problem.value_of(start)
    assert values[-1] > values[0]  # on this instance the search finds more than its start


@given(instance=instances(), rounds=st.integers(1, 40))
@examples(200)
def test_no_split_of_costs_bounds_below_the_optimum(instance: Instance, rounds: int) -> None:
    assert split_bound(compile_problem(instance), rounds) >= brute_force(instance)


def test_more_rounds_tighten_the_bound() -> None:
    problem = compile_problem(topology(random.Random(1), Setting("s", queries=60, max_share=6), 0.5))
    assert split_bound(problem, 80) < split_bound(problem, 1)


def test_auto_says_which_planner_ran_and_why() -> None:
    tree = topology(random.Random(1), Setting("s", queries=40, max_share=1), 0.5)
    assert solve(tree, "auto").algorithm == "frontier"
    small = topology(random.Random(1), Setting("s", queries=18, max_share=6), 0.5)
    assert solve(small, "auto").algorithm == "dp"
    sparse = topology(random.Random(1), Setting("s", queries=40, partitions=60, max_share=2), 0.5)
    plan = solve(sparse, "auto", time_limit=5.0)
    assert (plan.algorithm, plan.optimal) == ("ilp", True)
    dense = solve(sukp(random.Random(1), 120, 120, 0.15, 0.85), "auto", time_limit=0.2)
    assert dense.algorithm == "local-search"
    assert "too dense to prove" in dense.why


def test_the_generators_keep_to_their_settings() -> None:
    setting = Setting("s", queries=18, partitions=80, max_share=3, priorities="linear")
    instance = topology(random.Random(5), setting, 0.4)
    users = [sum(p.id in q.partitions for q in instance.queries) for p in instance.partitions]
    assert max(users) <= 3 + 1  # one more only where an empty query was given a partition
    assert instance.capacity == int(0.4 * sum(p.cost for p in instance.partitions))
    cost = {p.id: p.cost for p in instance.partitions}
    by_load = sorted(instance.queries, key=lambda q: sum(cost[name] for name in q.partitions))
    priorities = [q.priority for q in by_load]
    assert priorities == sorted(priorities)
    assert (priorities[0], priorities[-1]) == (1, 10)

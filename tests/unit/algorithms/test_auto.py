"""Which planner `auto` takes for which instance, and that it says so."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from reprise.algorithms import FailedQuery, Instance, PartitionCost
from reprise.algorithms.auto import auto, ilp
from reprise.algorithms.problem import Deadline, Problem, StepClock, compile_problem
from tests.support.examples import examples
from tests.support.planning_cases import brute_force, instances


def deadline(seconds: float = 1.0) -> Deadline:
    return Deadline(StepClock(), seconds)


def value(problem: Problem, queries: tuple[int, ...]) -> int:
    assert problem.cost_of(problem.union(queries)) <= problem.capacity
    return problem.value_of(queries)


@examples(40)
@given(instances())
def test_small_instances_are_settled_and_proven(instance: Instance) -> None:
    problem = compile_problem(instance)
    found = auto(problem, deadline())
    assert value(problem, found.queries) == found.bound == brute_force(instance)


@examples(8)
@given(instances(max_queries=6))
def test_the_programme_alone_proves_them_too(instance: Instance) -> None:
    problem = compile_problem(instance)
    found = ilp(problem, deadline())
    assert value(problem, found.queries) == found.bound == brute_force(instance)


def dense(queries: int = 40, partitions: int = 60, seed: int = 3) -> Problem:
    """Each query needs a good part of all partitions: nothing is reduced, and no bound is tight."""
    rng = random.Random(seed)
    names = [f"p{k}" for k in range(partitions)]
    return compile_problem(
        Instance(
            200,
            tuple(PartitionCost(p, rng.randrange(1, 12)) for p in names),
            tuple(
                FailedQuery(f"q{i}", rng.randrange(1, 11), tuple(rng.sample(names, partitions // 2)))
                for i in range(queries)
            ),
        )
    )


@pytest.mark.long
def test_what_is_too_dense_to_prove_is_searched_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = dense()
    monkeypatch.setattr("reprise.algorithms.auto.DENSE_PAIRS", 0)
    monkeypatch.setattr("reprise.algorithms.auto.PAIRS_A_SECOND", 0)
    found = auto(problem, deadline(0.02))
    assert found.algorithm == "local-search"
    assert "too dense to prove" in found.note
    assert found.bound is not None
    assert value(problem, found.queries) <= found.bound


@pytest.mark.long
def test_with_more_time_the_same_instance_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PAIRS_A_SECOND` says from how much time on."""
    problem = compile_problem(
        Instance(
            9,
            tuple(PartitionCost(f"p{k}", k % 4 + 1) for k in range(30)),
            tuple(FailedQuery(f"q{k}", k % 9 + 1, (f"p{k}", f"p{(k * 7 + 1) % 30}")) for k in range(30)),
        )
    )
    monkeypatch.setattr("reprise.algorithms.auto.by_structure", lambda *_: None)
    monkeypatch.setattr("reprise.algorithms.auto.by_subsets", lambda *_: None)
    monkeypatch.setattr("reprise.algorithms.auto.DENSE_PAIRS", 0)
    monkeypatch.setattr("reprise.algorithms.auto.PAIRS_A_SECOND", 30)
    searched, proven = auto(problem, deadline(0.1)), auto(problem, deadline(10.0))
    assert "too dense to prove" in searched.note and "too dense" not in proven.note
    assert searched.bound is not None and proven.bound is not None
    assert (
        value(problem, searched.queries) <= value(problem, proven.queries) == proven.bound <= searched.bound
    )

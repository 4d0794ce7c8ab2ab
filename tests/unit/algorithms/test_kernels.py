"""Kernels: their tables never drift, and compiled, interpreted and literal versions agree to the last bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import Instance, compiled
from reprise.algorithms.best_density import best_density_literal
from reprise.algorithms.best_density_fast import best_density_fast
from reprise.algorithms.candidate_run import CandidateRun, all_candidates
from reprise.algorithms.generators import Setting, sukp, topology
from reprise.algorithms.kernels import density, swaps
from reprise.algorithms.kernels.cover import Cover, make_cover
from reprise.algorithms.local_search import SearchRun
from reprise.algorithms.problem import Problem, compile_problem
from tests.support.examples import examples
from tests.support.planning_cases import instances

KERNELS = [kernel for module in (density, swaps) for kernel in compiled._PUBLISHED[module]]


@contextmanager
def interpreted() -> Iterator[None]:
    fast = [kernel.compiled for kernel in KERNELS]
    for kernel in KERNELS:
        kernel.compiled = None
    try:
        yield
    finally:
        for kernel, one in zip(KERNELS, fast, strict=True):
            kernel.compiled = one


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    assert compiled.load(), compiled.failure()


def cover_of(problem: Problem) -> Cover:
    rows = [list(problem.members(q)) for q in range(len(problem.masks))]
    return make_cover(problem.priority, problem.cost, rows)


@given(instance=instances(), moves=st.lists(st.integers(0, 7), max_size=25))
@examples(100)
def test_the_price_of_every_move_is_what_the_move_costs(instance: Instance, moves: list[int]) -> None:
    problem = compile_problem(instance)
    cover, count = cover_of(problem), len(problem.masks)
    state = swaps.make_state(cover, 0)
    for query in (move for move in moves if move < count):
        (swaps.remove if state.slot_of[query] >= 0 else swaps.insert)(cover, state, query)
        now = set(np.flatnonzero(state.slot_of >= 0).tolist())
        spent = problem.cost_of(problem.union(now))
        assert (state.now[swaps.PRICE], state.now[swaps.WORTH]) == (spent, problem.value_of(now))
        for j in range(count):
            assert state.add[j] == problem.cost_of(problem.union(now | {j})) - spent
        for slot, out in enumerate(state.slots[: len(now)].tolist()):
            assert state.freed[slot] == spent - problem.cost_of(problem.union(now - {out}))
            for j in set(range(count)) - now:
                swapped = problem.cost_of(problem.union((now - {out}) | {j}))
                assert state.add[j] + state.lost[slot, j] - state.freed[slot] == swapped - spent


@given(instance=instances(max_queries=12, max_partitions=14))
@examples(150)
def test_all_versions_of_best_density_agree(instance: Instance) -> None:
    problem = compile_problem(instance)
    literal = best_density_literal(problem)
    assert best_density_fast(problem) == (literal, True)
    assert all_candidates(problem, wait=True) == literal
    with interpreted():
        run = CandidateRun(problem)
        run.go(lambda: False)
        assert run.best == literal


@pytest.mark.parametrize("share", [2, 12])
def test_large_candidates_agree_with_the_literal_version(share: int) -> None:
    """With 2 queries a partition queries are looked at in small blocks, with 12 all in one."""
    setting = Setting("s", queries=26, partitions=40, max_share=share)
    problem = compile_problem(topology(random.Random(share), setting, 0.5))
    assert all_candidates(problem, wait=True) == best_density_literal(problem)


def test_a_run_in_portions_ends_as_a_run_at_once() -> None:
    problem = compile_problem(sukp(random.Random(3), 90, 60, 0.1, 0.75))
    run, done = CandidateRun(problem), [0.0]
    while not run.complete:
        run.go(lambda: True)
        assert run.progress >= done[-1]
        done.append(run.progress)
    assert done[-1] == 1.0
    assert run.best == all_candidates(problem, wait=True)


def trace(problem: Problem, portions: int, steps: int) -> list[tuple[int, int]]:
    run = SearchRun(problem, ())
    return [(run.value, run.steps) for _ in islice(run.portions(steps), portions)]


@pytest.mark.parametrize("shape", [(12, 10, 0.2, 0.6), (30, 40, 0.1, 0.5), (25, 12, 0.15, 0.8)])
def test_a_compiled_search_takes_the_steps_of_an_interpreted_one(
    shape: tuple[int, int, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprise.algorithms.local_search.STALL", 30)  # so that rounds of both kinds are met
    problem = compile_problem(sukp(random.Random(1), *shape))
    fast = trace(problem, 30, 25)
    with interpreted():
        assert trace(problem, 30, 25) == fast
    assert fast[-1][0] > 0


def test_how_a_search_is_cut_into_portions_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprise.algorithms.local_search.STALL", 50)
    problem = compile_problem(sukp(random.Random(4), 60, 60, 0.1, 0.75))
    coarse, fine = dict(map(reversed, trace(problem, 40, 100))), dict(map(reversed, trace(problem, 4000, 1)))
    assert {step: value for step, value in fine.items() if step in coarse} == coarse

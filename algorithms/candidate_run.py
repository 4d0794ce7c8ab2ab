"""BestDensity in portions: as much of it as there is time for, and more if it turns out to come to an end.

The compiled kernel goes through the candidates one by one and can be asked to go on. Where kernels are not
compiled, the numpy version (`best_density_fast`) does; both give the answer of `best_density_literal`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reprise.algorithms import compiled
from reprise.algorithms.best_density_fast import best_density_fast
from reprise.algorithms.kernels.cover import make_cover
from reprise.algorithms.kernels.density import BEST, FIRST, SECOND, make_candidates
from reprise.algorithms.problem import Deadline, Problem, shares

WORK = 500_000
"""Looks at densities between two looks at the clock: about a millisecond."""
FIRST_SHARE = 0.05
"""Share of the time after which it is judged whether all candidates can be extended."""
WHOLE_SHARE = 0.5
"""Largest share of the time that all candidates together may take; else the first are all there are."""
SMALL_QUERIES = 18
"""Up to here numpy answers in milliseconds, and kernels are not worth loading."""
NUMPY_SHARE = 0.15
"""Share of the time for the numpy version, which cannot go on where it was stopped."""


class CandidateRun:
    """All candidates of Algorithm 3, in the order of the literal version."""

    def __init__(self, problem: Problem) -> None:
        self._cover = make_cover(
            problem.priority, problem.cost, [list(problem.members(q)) for q in range(len(problem.masks))]
        )
        self._shares = np.array(shares(problem)[1], np.float64)
        self._state = make_candidates(self._cover, self._shares)
        self._capacity = problem.capacity
        self.complete = not problem.masks

    def go(self, stop: Callable[[], bool]) -> None:
        """On until all candidates are done or `stop` says so; at least one portion."""
        while not self.complete:
            self.complete = compiled.advance(self._cover, self._shares, self._state, self._capacity, WORK)
            if stop():
                return

    @property
    def progress(self) -> float:
        """Share of the candidates that are done."""
        count, first, second = (
            len(self._cover.worth), int(self._state.now[FIRST]), int(self._state.now[SECOND])
        )  # fmt: skip
        if self.complete:
            return 1.0
        if not self._state.pairs[0]:
            return first / (count * (count + 1) / 2)
        done = count + first * (count - 1) - first * (first - 1) / 2 + second - first - 1
        return done / (count * (count + 1) / 2)

    @property
    def best(self) -> tuple[int, ...]:
        """Queries of the most valuable candidate so far."""
        return tuple(np.flatnonzero(self._state.best).tolist()) if self._state.now[BEST] else ()


def all_candidates(problem: Problem, wait: bool) -> tuple[int, ...]:
    """BestDensity to its end; `wait` for a compiler under way."""
    if not _kernels(problem, wait):
        return best_density_fast(problem)[0]
    run = CandidateRun(problem)
    run.go(lambda: False)
    return run.best


def timed_candidates(problem: Problem, deadline: Deadline) -> tuple[tuple[int, ...], bool]:
    """BestDensity as far as makes sense before a search that has the rest of the time, and whether that was
    all of it."""
    if not _kernels(problem, deadline.virtual):
        until = deadline.part(NUMPY_SHARE)
        return best_density_fast(problem, until.passed)
    limit = deadline.left()
    run = CandidateRun(problem)
    run.go(deadline.part(FIRST_SHARE).passed)
    if not run.complete and limit - deadline.left() <= run.progress * WHOLE_SHARE * limit:
        run.go(deadline.part(WHOLE_SHARE).passed)
    return run.best, run.complete


def _kernels(problem: Problem, wait: bool) -> bool:
    return len(problem.masks) > SMALL_QUERIES and compiled.ready(wait)

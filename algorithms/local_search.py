"""Anytime planning: never worse than the BestDensity start, better with every moment it is given.

Two tabu searches take turns on the best plan (`kernels.swaps`), each with all of its moves priced at all times:

- over *queries*: add, drop or swap one; most priority within the capacity;
- over the *partitions that stay down*: a plan is also the choice of partitions to do without, which must be
  worth enough cost and should hit as little priority as possible. Partitions are sets of the queries they hit,
  so it is the same problem with its sides exchanged. Where a query needs many partitions and few partitions
  stay down, plans that differ by one partition differ by many queries, and the first search would need a chain
  of losing moves.

A round ends when it has found nothing better for a while. The next one starts from a plan that was partly
destroyed and filled up again by density, or whose partitions were partly exchanged. Random numbers are seeded:
what ends a run is the clock alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import numpy.typing as npt

from reprise.algorithms import compiled
from reprise.algorithms.candidate_run import all_candidates, timed_candidates
from reprise.algorithms.kernels import swaps
from reprise.algorithms.kernels.cover import Ints, make_cover
from reprise.algorithms.problem import Deadline, Outcome, Problem
from reprise.algorithms.reduce import reduce_problem

RESTS = (4, 9, 1, 4)
"""Steps for which what was dropped may not return (least, most + 1) and what was added may not leave, times
the round's patience."""
PATIENCE = (1, 1, 3)
"""Short rests are best for 500 queries; longer ones now and then leave local optima of small dense
instances."""
STALL = 2000
"""Steps without anything better after which a round ends."""
NOISE = 30
"""Per cent by which a density may be raised at random while a plan is filled up."""
DESTROY = (0.15, 0.8)
"""Share of the queries that are dropped before a plan is filled up again."""
SHAKE = (0.05, 0.4)
"""Share of the partitions that stay down that is exchanged at random."""
STEPS, WORK = 100, 1_000_000
"""Steps and looks at pairs between two looks at the clock: a millisecond or two at most."""
MAX_CELLS = 30_000_000
"""Pairs of queries and of partitions beyond which the tables would not fit the memory of a small
coordinator."""

Bools = npt.NDArray[np.bool_]


def best_density(problem: Problem, deadline: Deadline) -> Outcome:
    """BestDensity as a planner of the registry; it takes the time it needs."""
    found = all_candidates(problem, wait=deadline.virtual)
    return Outcome(found, note="all single queries and pairs extended by density")


def local_search(problem: Problem, deadline: Deadline) -> Outcome:
    """Search until the deadline."""
    start, complete = timed_candidates(problem, deadline)
    reduced = reduce_problem(problem)
    small = reduced.problem
    if not small.masks:
        return Outcome(
            reduced.taken,
            problem.value_of(reduced.taken),
            "decided without a search: no two queries compete for the capacity",
        )
    if len(small.masks) ** 2 + len(small.cost) ** 2 > MAX_CELLS:
        return Outcome(start, note="too large to search: BestDensity as far as time allowed")
    place = {q: i for i, group in enumerate(reduced.originals) for q in group}
    seed = tuple(sorted({place[q] for q in start if q in place}))
    fast = compiled.ready(wait=deadline.virtual)
    found, steps = search(small, seed, deadline.passed, STEPS if fast or deadline.virtual else 1)
    best = max((reduced.expand(found), start), key=problem.value_of)
    begun = "BestDensity" if complete else "BestDensity cut short"
    how = "" if fast else ", interpreted"
    return Outcome(problem.closure(problem.union(best)), note=f"{steps} steps from {begun}{how}")


def search(
    problem: Problem, start: tuple[int, ...], stop: Callable[[], bool], portion: int = STEPS
) -> tuple[tuple[int, ...], int]:
    """(the best queries met, steps made); `start` must be feasible. `stop` is asked every `portion` steps."""
    run = SearchRun(problem, start)
    for _ in run.portions(portion):
        if stop() or run.value == run.top:
            break
    return run.best, run.steps


class SearchRun:
    """Both searches on one problem. Inside, queries are sorted by descending priority and partitions by
    descending cost, as the kernels want them."""

    def __init__(self, problem: Problem, start: tuple[int, ...]) -> None:
        queries = sorted(range(len(problem.masks)), key=lambda q: (-problem.priority[q], q))
        partitions = sorted(range(len(problem.cost)), key=lambda k: (-problem.cost[k], k))
        place = {k: i for i, k in enumerate(partitions)}
        rows = [sorted(place[k] for k in problem.members(q)) for q in queries]
        self._needs = np.zeros((len(queries), len(partitions)), np.bool_)
        for i, row in enumerate(rows):
            self._needs[i, row] = True
        priority, cost = [problem.priority[q] for q in queries], [problem.cost[k] for k in partitions]
        self._queries = make_cover(priority, cost, rows)
        self._down = make_cover(cost, priority, [np.flatnonzero(col).tolist() for col in self._needs.T])
        self._capacity, self._least_down = problem.capacity, sum(cost) - problem.capacity
        self._original = queries
        self._rng = np.random.default_rng(len(queries))
        self.top = sum(priority)
        self._best = np.isin(np.array(queries), np.array(start, np.int64))
        self.value = problem.value_of(start)
        self.steps = 0

    @property
    def best(self) -> tuple[int, ...]:
        return tuple(sorted(self._original[i] for i in np.flatnonzero(self._best)))

    def portions(self, steps: int) -> Iterator[None]:
        """Search for ever, with a pause for the caller after each portion of work."""
        chosen = swaps.make_state(self._queries, len(self._original))
        down = swaps.make_state(self._down, len(self._original))
        compiled.load_choice(self._queries, chosen, self._best)
        for number in count():
            rests = np.array(RESTS) * PATIENCE[number % len(PATIENCE)]
            yield from self._query_round(chosen, rests, steps)
            self._destroy(chosen)
            yield from self._partition_round(down, rests, steps)

    def _query_round(self, state: swaps.State, rests: Ints, steps: int) -> Iterator[None]:
        compiled.begin(state)
        state.now[swaps.BEST] = state.now[swaps.WORTH]
        state.now[swaps.TOP] = max(self.value, int(state.now[swaps.WORTH]))
        over = False
        while not over:
            before = int(state.now[swaps.STEP])
            over = compiled.most_worth(self._queries, state, self._capacity, rests, STALL, steps, WORK)
            self.steps += int(state.now[swaps.STEP]) - before
            self._record(int(state.now[swaps.BEST]), state.kept)
            yield

    def _partition_round(self, state: swaps.State, rests: Ints, steps: int) -> Iterator[None]:
        compiled.load_choice(self._down, state, self._shaken())
        compiled.begin(state)
        state.now[swaps.BEST] = state.now[swaps.PRICE]
        state.now[swaps.TOP] = min(self.top - self.value, int(state.now[swaps.PRICE]))
        over = False
        while not over:
            before = int(state.now[swaps.STEP])
            over = compiled.least_price(self._down, state, self._least_down, rests, STALL, steps, WORK)
            self.steps += int(state.now[swaps.STEP]) - before
            self._record(self.top - int(state.now[swaps.BEST]), _none(self._needs[:, state.kept], axis=1))
            yield

    def _record(self, value: int, plan: Bools) -> None:
        if value > self.value:
            self.value, self._best = value, plan.copy()

    def _destroy(self, state: swaps.State) -> None:
        """Keep a random part of the best plan, or of the last round's, and fill up."""
        base = self._best if self._rng.random() < 0.5 else state.kept
        kept = base & (self._rng.random(len(base)) >= self._rng.uniform(*DESTROY))
        compiled.load_choice(self._queries, state, kept)
        compiled.fill(self._queries, state, self._capacity, NOISE)

    def _shaken(self) -> Bools:
        """The partitions that the best plan leaves down, some exchanged at random."""
        down = _none(self._needs[self._best], axis=0)
        down &= self._rng.random(len(down)) >= self._rng.uniform(*SHAKE)
        worth = int(self._down.worth[down].sum())
        for k in self._rng.permutation(np.flatnonzero(~down)):
            if worth >= self._least_down:
                break
            down[k] = True
            worth += int(self._down.worth[k])
        return down


def _none(table: Bools, axis: int) -> Bools:
    hit: Bools = table.any(axis=axis, keepdims=True).ravel()
    return ~hit

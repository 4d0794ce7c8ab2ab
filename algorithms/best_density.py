"""BestDensity (Su and Zhou, Algorithm 3), line by line: the reference that the fast version must agree with.

Corrections and departures:
- Definition 3 sums over the partitions of Q_i (printed: Q_j); lines 14-18 open a new candidate for each pair.
- Cost and density are conditional on what the candidate already restores (lines 24-26, second comment).
- Lines 9-10 start one plan from the single *densest* query. That breaks Theorem 5.1: with capacity 100 and
  the queries (priority 1, cost 1) and (priority 10, cost 100), d = 1, no pair fits and the plan is worth 1
  instead of 10. Every single query is a candidate here, as in Arulselvan (2014), whose proof the theorem
  follows.
- Line 25 lets the last of equal densities win; here the first in the order of ids does.
- A query that became complete on the way costs nothing and is added at once (density infinite).
"""

from __future__ import annotations

from collections.abc import Iterator

from reprise.algorithms.problem import Problem, bits, shares


def best_density_literal(problem: Problem) -> tuple[int, ...]:
    """The queries of the best candidate plan; the first candidate wins ties. O(M^4) and more: for tests and
    small M."""
    _, share = shares(problem)
    best: tuple[int, ...] = ()
    best_value = 0
    for start in _candidates(problem):
        plan = _extend(problem, share, start)
        value = problem.value_of(plan)
        if value > best_value:  # line 32
            best, best_value = plan, value
    return best


def _candidates(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Lines 9-19, with all singles: each start that fits the capacity."""
    count = len(problem.masks)
    singles = [(m,) for m in range(count)]
    pairs = [(m, n) for m in range(count) for n in range(m + 1, count)]
    for start in singles + pairs:
        if problem.cost_of(problem.union(start)) <= problem.capacity:
            yield start


def _extend(problem: Problem, share: tuple[int, ...], start: tuple[int, ...]) -> tuple[int, ...]:
    """Lines 21-31: add the densest query that fits until none does."""
    chosen = set(start)
    covered = problem.union(start)
    room = problem.capacity - problem.cost_of(covered)
    while True:
        index, best = -1, -1.0
        for query, mask in enumerate(problem.masks):  # lines 24-26
            if query in chosen or problem.cost_of(mask & ~covered) > room:
                continue
            weight = sum(share[k] for k in bits(mask & ~covered))
            density = problem.priority[query] / weight if weight else float("inf")
            if density > best:
                index, best = query, density
        if index < 0:
            return tuple(sorted(chosen))
        room -= problem.cost_of(problem.masks[index] & ~covered)
        covered |= problem.masks[index]
        chosen.add(index)

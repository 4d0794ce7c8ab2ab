"""Anytime planning: never worse than BestDensity, better with every moment it is given."""

from __future__ import annotations

from algorithms.best_density import best_density_literal
from algorithms.problem import Deadline, Outcome, Problem


def best_density(problem: Problem, deadline: Deadline) -> Outcome:
    """BestDensity as a planner of the registry."""
    return Outcome(best_density_literal(problem))


def local_search(problem: Problem, deadline: Deadline) -> Outcome:
    """BestDensity, then swaps that raise the value until none does or the time is over."""
    chosen = set(best_density_literal(problem))
    improved = True
    while improved and not deadline.passed():
        improved = _improve(problem, chosen)
    return Outcome(tuple(sorted(chosen)))


def _improve(problem: Problem, chosen: set[int]) -> bool:
    for out in [None, *sorted(chosen)]:
        rest = problem.union(q for q in chosen if q != out)
        room = problem.capacity - problem.cost_of(rest)
        gain = 0 if out is None else problem.priority[out]
        for query, mask in enumerate(problem.masks):
            if query in chosen or problem.priority[query] <= gain or problem.cost_of(mask & ~rest) > room:
                continue
            if out is not None:
                chosen.discard(out)
            chosen.add(query)
            return True
    return False

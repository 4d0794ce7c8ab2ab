"""Exact answers from the structure of an instance: the frontiers of its parts, joined.

Two kinds of parts have a frontier in polynomial or small time:

- laminar parts, where of any two partitions the queries of one contain, or avoid, those of the other. Chains
  and out-trees are (each query is a path from the root). They form a forest: a partition's queries can only
  be had if its parent's is paid. O(M V) in tree order, V the summed priorities, so polynomial for priorities
  of 1..10.
- parts of few queries, by the subset tables of the dynamic programme.
"""

from __future__ import annotations

import numpy as np

from reprise.algorithms.dp import subset_tables
from reprise.algorithms.frontier import NOTHING, Frontier, Step, join, paid, pareto
from reprise.algorithms.problem import Problem, bits
from reprise.algorithms.reduce import components, restrict

LATTICE_QUERIES = 14
"""Largest part whose subsets are all listed: 16,384 of them, about a millisecond."""


def frontier_of(problem: Problem) -> Frontier | None:
    """The frontier of the whole instance, or None where a part is of neither kind or frontiers grow too
    long."""
    whole: Frontier | None = NOTHING
    parts = components(problem)
    for part in parts:
        small = problem if len(parts) == 1 else restrict(problem, part)
        forest = laminar_forest(small)
        if forest is not None:
            own = _forest_frontier(small, forest)
        elif len(part) <= LATTICE_QUERIES:
            own = _lattice_frontier(small)
        else:
            return None
        if own is None or whole is None:
            return None
        whole = join(whole, own if small is problem else _renamed(own, part), problem.capacity)
    return whole


def laminar_forest(problem: Problem) -> list[int] | None:
    """Parent of each partition (-1: none), or None when two partitions' queries overlap without containment.

    Expects folded partitions: no two with the same queries."""
    parent = [-1] * len(problem.sharers)
    deepest = [-1] * len(problem.masks)
    for k in sorted(range(len(parent)), key=lambda k: len(problem.sharers[k]), reverse=True):
        above = {deepest[q] for q in problem.sharers[k]}
        if len(above) > 1:
            return None  # its queries sit in different branches, or partly outside one
        (parent[k],) = above
        for q in problem.sharers[k]:
            deepest[q] = k
    return parent


def _forest_frontier(problem: Problem, parent: list[int]) -> Frontier | None:
    size = [len(queries) for queries in problem.sharers]
    children: list[list[int]] = [[] for _ in range(len(parent) + 1)]  # the last place is that of parent -1
    for k, above in enumerate(parent):
        children[above].append(k)
    own: list[list[int]] = [[] for _ in parent]
    for query, mask in enumerate(problem.masks):
        own[min(bits(mask), key=size.__getitem__)].append(query)
    done: dict[int, Frontier] = {}
    for k in [*sorted(range(len(parent)), key=size.__getitem__), -1]:
        below = NOTHING
        for child in children[k]:
            joined = join(below, done.pop(child), problem.capacity)
            if joined is None:
                return None
            below = joined
        if k >= 0:
            below = paid(below, problem.cost[k], own[k], problem.value_of(own[k]), problem.capacity)
        done[k] = below
    return done[-1]


def _lattice_frontier(problem: Problem) -> Frontier:
    costs, values = subset_tables(problem)
    order = np.lexsort((costs, values))
    _, first = np.unique(values[order], return_index=True)
    cheapest = order[first]  # of each value the cheapest subset
    kept_values, kept_costs = pareto(values[cheapest], costs[cheapest], problem.capacity)
    subset_of = cheapest[np.searchsorted(values[cheapest], kept_values)]
    return Frontier(kept_values, kept_costs, lambda i: (list(bits(int(subset_of[i]))), []))


def _renamed(frontier: Frontier, names: tuple[int, ...]) -> Frontier:
    def step(index: int) -> Step:
        return [names[q] for q in frontier.queries(index)], []

    return Frontier(frontier.values, frontier.costs, step, (frontier,))

"""Exact answers for all capacities at once: the cheapest way to each value (a Pareto frontier), and how they
combine.

Parts of an instance that share no partition only compete for capacity, so the frontier of the whole is the
join of theirs. Two kinds of parts have one in polynomial or small time:

- laminar parts, where of any two partitions the queries of one contain, or avoid, those of the other. Chains
  and out-trees are (each query is a path from the root). They form a forest: a partition's queries can only
  be had if its parent's is paid. O(M V) in tree order, V the summed priorities, so polynomial for priorities
  of 1..10.
- parts of few queries, by the subset tables of the dynamic programme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from algorithms.dp import subset_tables
from algorithms.problem import Problem, bits
from algorithms.reduce import components, restrict

LATTICE_QUERIES = 14
"""Largest part whose subsets are all listed: 16,384 of them, about a millisecond."""

MAX_JOIN = 30_000_000
"""Largest product of frontier lengths to join: about 0.1 s. Beyond it the integer programme is the better
choice."""

Ints = npt.NDArray[np.int64]
Step = tuple[list[int], list[tuple["Frontier", int]]]


@dataclass(frozen=True, slots=True)
class Frontier:
    """`costs[i]` is the least cost of a value of at least `values[i]`; both ascend strictly and start at 0.
    `step(i)` gives queries of entry i and the entries of other frontiers that it is made of."""

    values: Ints
    costs: Ints
    step: Callable[[int], Step]

    def best(self, capacity: int) -> int:
        """Index of the most valuable entry within `capacity`."""
        return int(np.searchsorted(self.costs, capacity, side="right")) - 1

    def queries(self, index: int) -> list[int]:
        """The queries of an entry; a work list, because a chain of partitions may be deeper than Python's
        stack."""
        found: list[int] = []
        work: list[tuple[Frontier, int]] = [(self, index)]
        while work:
            frontier, at = work.pop()
            own, rest = frontier.step(at)
            found += own
            work += rest
        return sorted(found)


def _nothing(_: int) -> Step:
    return [], []


NOTHING = Frontier(np.zeros(1, np.int64), np.zeros(1, np.int64), _nothing)


def frontier_of(problem: Problem) -> Frontier | None:
    """The frontier of the whole instance, or None where a part is of neither kind or frontiers grow too
    long."""
    whole: Frontier | None = NOTHING
    for part in components(problem):
        small = restrict(problem, part)
        forest = laminar_forest(small)
        if forest is not None:
            own = _forest_frontier(small, forest)
        elif len(part) <= LATTICE_QUERIES:
            own = _lattice_frontier(small)
        else:
            return None
        if own is None or whole is None:
            return None
        whole = join(whole, _renamed(own, part), problem.capacity)
    return whole


def laminar_forest(problem: Problem) -> list[int] | None:
    """Parent of each partition (-1: none), or None when two partitions' queries overlap without containment.

    Expects folded partitions: no two with the same queries."""
    sets = [sum(1 << q for q in queries) for queries in problem.sharers]
    order = sorted(range(len(sets)), key=lambda k: len(problem.sharers[k]), reverse=True)
    parent = [-1] * len(sets)
    deepest = [-1] * len(problem.masks)
    for k in order:
        above = {deepest[q] for q in problem.sharers[k]}
        if len(above) > 1:
            return None  # its queries sit in different branches, or partly outside one
        (parent[k],) = above
        for q in problem.sharers[k]:
            deepest[q] = k
    return parent


def join(first: Frontier, second: Frontier, capacity: int) -> Frontier | None:
    """All sums of an entry of one and an entry of the other, pruned to `capacity`; None when that is too much
    work."""
    small, large = sorted((first, second), key=lambda frontier: len(frontier.values))
    if len(small.values) * len(large.values) > MAX_JOIN:
        return None
    top = int(small.values[-1] + large.values[-1])
    if top > MAX_JOIN:
        return None
    none = capacity + 1
    costs = np.full(top + 1, none, np.int64)
    part = np.zeros(top + 1, np.int32)
    for i, (value, cost) in enumerate(zip(small.values.tolist(), small.costs.tolist(), strict=True)):
        at = large.values + value
        better = large.costs + cost < costs[at]
        costs[at[better]] = large.costs[better] + cost
        part[at[better]] = i
    values, costs = _pareto(np.arange(top + 1), costs, capacity)

    def step(index: int) -> Step:
        i = int(part[values[index]])
        rest = int(np.searchsorted(large.values, values[index] - small.values[i]))
        return [], [(small, i), (large, rest)]

    return Frontier(values, costs, step)


def _pareto(values: Ints, costs: Ints, capacity: int) -> tuple[Ints, Ints]:
    """Entries within capacity that no entry of at least their value undercuts. `values` ascend."""
    least_above = np.minimum.accumulate(costs[::-1])[::-1]
    keep = (costs <= capacity) & (costs == least_above)
    keep[:-1] &= costs[:-1] < least_above[1:]
    return values[keep], costs[keep]


def _forest_frontier(problem: Problem, parent: list[int]) -> Frontier | None:
    children: dict[int, list[int]] = {}
    for k, above in enumerate(parent):
        children.setdefault(above, []).append(k)
    size = [len(queries) for queries in problem.sharers]
    deepest = [min(bits(mask), key=lambda k: size[k]) for mask in problem.masks]
    done: dict[int, Frontier] = {}
    for k in [*sorted(range(len(parent)), key=lambda k: size[k]), -1]:
        below = NOTHING
        for child in children.get(k, []):
            joined = join(below, done.pop(child), problem.capacity)
            if joined is None:
                return None
            below = joined
        if k >= 0:
            own = [q for q, at in enumerate(deepest) if at == k]
            below = _paid(below, problem.cost[k], own, problem.value_of(own), problem.capacity)
        done[k] = below
    return done[-1]


def _paid(below: Frontier, cost: int, own: list[int], worth: int, capacity: int) -> Frontier:
    """Pay a partition: its own queries come with it, and its children's frontier opens. Or pay nothing."""
    values = np.concatenate(([0], below.values + worth))
    costs = np.concatenate(([0], below.costs + cost))
    start = 1 if values[1] > 0 else 2  # paying for nothing is not on the frontier
    kept = np.concatenate(([0], np.arange(start, len(values))))
    kept = kept[costs[kept] <= capacity]
    return Frontier(
        values[kept], costs[kept], lambda i: (own, [(below, int(kept[i]) - 1)]) if i else ([], [])
    )


def _lattice_frontier(problem: Problem) -> Frontier:
    costs, values = subset_tables(problem)
    order = np.lexsort((costs, values))
    _, first = np.unique(values[order], return_index=True)
    cheapest = order[first]  # of each value the cheapest subset
    kept_values, kept_costs = _pareto(values[cheapest], costs[cheapest], problem.capacity)
    subset_of = cheapest[np.searchsorted(values[cheapest], kept_values)]
    return Frontier(kept_values, kept_costs, lambda i: (list(bits(int(subset_of[i]))), []))


def _renamed(frontier: Frontier, names: tuple[int, ...]) -> Frontier:
    return Frontier(frontier.values, frontier.costs, lambda i: ([names[q] for q in frontier.queries(i)], []))

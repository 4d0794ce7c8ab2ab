"""Exact planning by dynamic programming: Algorithm 4 (Su and Zhou, appendix B), as printed in idea and as fast
as numpy.

`dp_literal` follows the printed lines: candidate plans grow in order of the capacity they use. `dp` answers
the same question over the lattice of query subsets: cost of every subset by one subset-sum (zeta) transform
over the partitions grouped by who shares them, O(M 2^M) additions in numpy, for at most MAX_QUERIES queries.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from reprise.algorithms.errors import TooLarge
from reprise.algorithms.problem import Deadline, Outcome, Problem, bits

MAX_QUERIES = 20
"""2**20 subsets are 8 MiB an array and well under a second; each query more doubles both."""


def dp(problem: Problem, deadline: Deadline) -> Outcome:
    """The optimum, of the cheapest subset that reaches it; ties go to the lowest subset number."""
    count = len(problem.masks)
    if count > MAX_QUERIES:
        raise TooLarge(f"dp takes at most {MAX_QUERIES} queries, not {count}; use ilp or auto")
    cost, value = subset_tables(problem)
    value = np.where(cost <= problem.capacity, value, -1)
    best = value.max()
    candidates = np.flatnonzero(value == best)
    subset = int(candidates[np.argmin(cost[candidates])])
    return Outcome(tuple(bits(subset)), int(best), f"all {2**count} sets of queries compared")


def subset_tables(problem: Problem) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(cost, value) of every subset of queries, indexed by its bit mask; shape (2**M,)."""
    count = len(problem.masks)
    full = (1 << count) - 1
    # untouched[s]: cost of the partitions whose sharers all lie in s; a subset t costs what is not untouched
    # by ~t
    untouched = np.zeros(1 << count, dtype=np.int64)
    for k, price in enumerate(problem.cost):
        untouched[sum(1 << query for query in problem.sharers[k])] += price
    value = np.zeros(1 << count, dtype=np.int64)
    for query in range(count):
        halves = untouched.reshape(-1, 2, 1 << query)
        halves[:, 1, :] += halves[:, 0, :]
        value.reshape(-1, 2, 1 << query)[:, 1, :] += problem.priority[query]
    subsets = np.arange(full + 1)
    return sum(problem.cost) - untouched[full ^ subsets], value


def dp_literal(problem: Problem) -> tuple[int, ...]:
    """Algorithm 4 with its corrections: line 8 takes the union, a candidate that several orders reach is kept
    once (SC is a set), and `usage` jumps to the next cost that occurs instead of counting single units (lines
    10-11)."""
    found: dict[int, int] = {0: 0}  # union of partitions -> cost; this is SC
    heap = [(0, 0)]
    while heap:  # lines 10-24: candidates in order of the capacity they use
        usage, union = heapq.heappop(heap)
        for mask in problem.masks:  # lines 16-18: expand by each query that is not complete in CP_i
            grown = union | mask
            if grown not in found:
                price = usage + problem.cost_of(grown & ~union)
                if price <= problem.capacity:
                    found[grown] = price
                    heapq.heappush(heap, (price, grown))
    best = max(found, key=lambda union: (problem.value_of(problem.closure(union)), -found[union], -union))
    return problem.closure(best)  # line 23

"""Upper bounds on the value of any plan, each a proof that needs no solver.

Split the cost of each partition among the queries that share it, in any way. A plan pays at least the parts
of its queries, so the sum of the parts of the chosen is at most R, and the fractional knapsack over
(priority, parts) bounds every plan. Equal parts are the weights of Definition 3; better parts come from a
subgradient method, whose limit is the bound of the linear relaxation.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from reprise.algorithms.problem import Problem

ROUNDS = 80
"""Steps of the subgradient method: about 0.1 ms each for 100 queries, 2 ms for 500 x 500 at 10 % density."""
MAX_ENTRIES = 300_000
"""Query-partition pairs beyond which the first, equal split is all that is tried."""
SAFETY = 1e-9
"""Relative rounding error allowed for in sums of floats; bounds are raised by it before they are rounded
down."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def split_bound(problem: Problem, rounds: int = ROUNDS) -> int:
    """The least bound over `rounds` ways to split the costs."""
    fitting = [q for q, mask in enumerate(problem.masks) if problem.cost_of(mask) <= problem.capacity]
    pairs = [(i, k) for i, q in enumerate(fitting) for k in problem.members(q)]
    if not pairs:
        return problem.value_of(fitting)
    query, partition = np.array(pairs, np.int64).T
    priority = np.array([problem.priority[q] for q in fitting], np.float64)
    cost = np.array(problem.cost, np.float64)
    users = np.bincount(partition, minlength=len(cost))
    parts = cost[partition] / users[partition]
    average = np.zeros(len(fitting))
    best = float("inf")
    for step in range(rounds if len(pairs) <= MAX_ENTRIES else 1):
        weights = np.bincount(query, parts, minlength=len(fitting)).astype(np.float64)
        bound, taken = _fractional(priority, weights, float(problem.capacity))
        best = min(best, bound)
        # queries that the knapsack takes can bear more of what they share, the others less
        average = taken if step == 0 else 0.7 * average + 0.3 * taken
        mean = np.bincount(partition, average[query], minlength=len(cost)) / np.maximum(users, 1)
        move = cost[partition] / users[partition] * (average[query] - mean[partition])
        parts = np.maximum(0.0, parts + move * 2.0 / (1 + step / 8))
        total = np.bincount(partition, parts, minlength=len(cost))
        parts *= cost[partition] / np.where(total[partition] > 0, total[partition], 1.0)
    return math.floor(best * (1 + SAFETY) + SAFETY)


def _fractional(priority: Floats, weights: Floats, capacity: float) -> tuple[float, Floats]:
    """Value and amounts taken of the fractional knapsack."""
    order = np.argsort(weights / priority, kind="stable")
    filled = np.cumsum(weights[order])
    whole = int(np.searchsorted(filled, capacity, side="right"))
    taken = np.zeros(len(priority))
    taken[order[:whole]] = 1.0
    if whole < len(order):
        before = filled[whole - 1] if whole else 0.0
        taken[order[whole]] = max(0.0, capacity - before) / weights[order[whole]]
    return float(priority @ taken), taken

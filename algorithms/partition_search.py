"""Local search over restored partitions instead of chosen queries.

In dense instances a query shares partitions with most others, and good plans differ by few *partitions* but
many queries, so a search that swaps queries needs several losing moves where swapping one partition is a
single step. Here a state is a set of restored partitions that fits the capacity. Most single partitions
complete nothing, so moves are judged by a potential that credits almost complete queries: a query that misses
r partitions counts priority * a**r. Of a swap both halves and what queries with both partitions make of it
are priced exactly, for all pairs at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from algorithms.problem import Problem

REST_DROPPED = (4, 10)
"""Steps for which a dropped partition may not return; an added one rests REST_ADDED."""
REST_ADDED = (2, 6)
STALL = 400
"""Steps without a better plan after which a round ends."""
CREDIT = (0.25, 0.4)
"""The potential's a, round after round: small follows the value closely, large looks further ahead."""
FAR = 4
"""Queries that miss more partitions than this add too little potential to be priced in swaps."""
SHAKE = (0.05, 0.4)
"""Share of the restored partitions that are exchanged at random where a round starts."""

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class PartitionSearch:
    """Rounds of the search on one problem."""

    def __init__(self, problem: Problem) -> None:
        self._needs = np.zeros((len(problem.masks), len(problem.cost)), np.float64)
        for query in range(len(problem.masks)):
            self._needs[query, list(problem.members(query))] = 1.0
        self._size = self._needs.sum(axis=1)
        self._priority = np.array(problem.priority, np.float64)
        self._cost = np.array(problem.cost, np.float64)
        self._capacity = float(problem.capacity)

    def round(
        self, chosen: Bools, number: int, rng: np.random.Generator, stop: Callable[[], bool]
    ) -> tuple[Bools, int]:
        """(the queries of the best plan met, steps), from the shaken plan of `chosen` queries."""
        restored = self._shaken(np.asarray(self._needs[chosen].sum(axis=0) > 0), rng)
        credit = CREDIT[number % len(CREDIT)]
        rests = np.zeros(len(self._cost), np.int64)
        best, best_value, stalled, step = np.zeros_like(chosen), -1.0, 0, 0
        while stalled <= STALL and not stop():
            step += 1
            missing = self._size - self._needs @ restored
            complete = missing == 0
            value = float(self._priority[complete].sum())
            stalled += 1
            if value > best_value:
                best, best_value, stalled = complete, value, 0
            weight = self._priority * credit**missing
            if not self._move(restored, rests, step, (weight, missing, credit), rng):
                break
        return best, step

    def _shaken(self, restored: Bools, rng: np.random.Generator) -> Bools:
        restored = restored & (rng.random(len(restored)) >= rng.uniform(*SHAKE))
        room = self._capacity - self._cost[restored].sum()
        for k in rng.permutation(np.flatnonzero(~restored)):
            if self._cost[k] <= room:
                restored[k] = True
                room -= self._cost[k]
        return restored

    def _move(
        self,
        restored: Bools,
        rests: npt.NDArray[np.int64],
        step: int,
        potential: tuple[Floats, Floats, float],
        rng: np.random.Generator,
    ) -> bool:
        """Add the best partition that fits, else make the best swap, even a losing one; False if there is
        none."""
        weight, missing, credit = potential
        room = self._capacity - self._cost[restored].sum()
        out, awake = np.flatnonzero(~restored), rests <= step
        if not len(out):
            return False
        each = weight @ self._needs
        gain = (1 / credit - 1) * each[out]
        adds = np.where((self._cost[out] <= room) & awake[out], gain, -1.0)
        add = int(adds.argmax())
        if adds[add] >= 0:
            restored[out[add]] = True
            rests[out[add]] = step + rng.integers(*REST_ADDED)
            return True
        near = missing <= FAR
        needs = self._needs[near]
        # a query with both partitions is left as it was: take back what it was credited with on both sides
        both = (needs[:, out] * weight[near, None]).T @ needs
        change = gain[:, None] - (1 - credit) * each - (1 / credit + credit - 2) * both
        allowed = self._cost[out][:, None] - self._cost <= room
        change[~(allowed & (restored & awake) & awake[out][:, None])] = -np.inf
        swap = int(change.argmax())
        if change.flat[swap] == -np.inf:
            return False
        row, drop = divmod(swap, len(restored))
        restored[drop], restored[out[row]] = False, True
        rests[drop] = step + rng.integers(*REST_DROPPED)
        rests[out[row]] = step + rng.integers(*REST_ADDED)
        return True

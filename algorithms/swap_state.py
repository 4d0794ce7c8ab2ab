"""The state of a local search over sets of queries, with the cost of every add, drop and swap always at hand.

`add[j]` is what query j would add, `freed[s]` what dropping the query in slot s would free, and `lost[s, j]`
what of that query j would need itself, so swapping slot s for j changes the cost by add[j] + lost[s, j] -
freed[s]. A move touches only the partitions whose number of users becomes or leaves 0 or 1; all entries are
exact integers in float64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from algorithms.problem import Problem

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class SwapState:
    """A feasible or infeasible set of queries; the caller keeps it within `capacity`."""

    def __init__(self, problem: Problem) -> None:
        count, partitions = len(problem.masks), len(problem.cost)
        self.count = count
        self.capacity = float(problem.capacity)
        self.priority = np.array(problem.priority, np.float64)
        self.cost = np.array(problem.cost, np.float64)
        self.members = [np.array(list(problem.members(q)), np.int64) for q in range(count)]
        self.needs = np.zeros((partitions, count), np.float64)
        for query, members in enumerate(self.members):
            self.needs[members, query] = self.cost[members]
        self.alone = self.needs.sum(axis=0)
        self.clear()

    def clear(self) -> None:
        """Back to the empty set."""
        self.users = np.zeros(len(self.cost), np.int64)
        self._user_sum = np.zeros(len(self.cost), np.int64)  # the one user's number where there is one
        self._slot_of = np.full(self.count, -1, np.int64)
        self._slots = np.zeros(self.count, np.int64)
        self._lost = np.zeros((min(self.count, 64), self.count), np.float64)
        self._freed = np.zeros(self.count, np.float64)
        self.size = 0
        self.add = self.alone.copy()
        self.chosen = np.zeros(self.count, np.bool_)
        self.spent = 0.0
        self.value = 0.0

    @property
    def slots(self) -> Ints:
        """The chosen queries, in slot order."""
        return self._slots[: self.size]

    @property
    def freed(self) -> Floats:
        return self._freed[: self.size]

    @property
    def lost(self) -> Floats:
        return self._lost[: self.size]

    def insert(self, query: int) -> None:
        members = self.members[query]
        users = self.users[members]
        fresh, owned = members[users == 0], members[users == 1]
        slot = self.size
        if slot == len(self._lost):
            self._lost = np.concatenate([self._lost, np.zeros_like(self._lost)])
        if len(owned):  # they are no longer their owners' alone
            self._shift(owned, -1.0)
        gain = self.needs[fresh].sum(axis=0)
        price = float(self.cost[fresh].sum())
        self.add -= gain
        self._lost[slot] = gain
        self._freed[slot] = price
        self._slots[slot] = query
        self._slot_of[query] = slot
        self.size = slot + 1
        self.users[members] += 1
        self._user_sum[members] += query
        self.chosen[query] = True
        self.spent += price
        self.value += self.priority[query]

    def remove(self, query: int) -> None:
        members = self.members[query]
        self.users[members] -= 1
        self._user_sum[members] -= query
        slot, last = int(self._slot_of[query]), self.size - 1
        self.add += self._lost[slot]
        self.spent -= float(self._freed[slot])
        if slot != last:
            self._lost[slot] = self._lost[last]
            self._freed[slot] = self._freed[last]
            self._slots[slot] = self._slots[last]
            self._slot_of[self._slots[slot]] = slot
        self._slot_of[query] = -1
        self.size = last
        left = members[self.users[members] == 1]
        if len(left):
            self._shift(left, 1.0)
        self.chosen[query] = False
        self.value -= self.priority[query]

    def _shift(self, partitions: Ints, sign: float) -> None:
        """Partitions with one user become (+1) or cease to be (-1) what that user alone keeps alive."""
        owners = self._slot_of[self._user_sum[partitions]]
        by_slot = (np.arange(self.size)[:, None] == owners) * sign
        self._lost[: self.size] += by_slot @ self.needs[partitions]
        self._freed[: self.size] += by_slot @ self.cost[partitions]

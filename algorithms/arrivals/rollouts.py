"""Chains of growing sets of restored partitions, for planning over a sequence of arrivals.

What is restored stays where it is, so a chain is feasible if at each step what is new fits into the room that
is left: in sum, and node by node where there are nodes. `Field` is what stays the same along chains; `Restored`
is one link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reprise.algorithms.fit import fit_nodes
from reprise.algorithms.problem import Problem, bits

Best = Callable[[Problem], tuple[int, ...]]
"""A planner for the sum problem: the query indices to restore."""

Capacity = tuple[int, tuple[int, ...]]
"""What there is at a moment, used or not: in sum, and for each node so far (empty: nodes do not matter)."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The partitions at work, as a mask, and on which node each is."""

    covered: int = 0
    placement: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Field:
    """The problem, its planner, the seconds that each partition takes to be restored, and the end of time."""

    problem: Problem
    best: Best
    seconds: tuple[float, ...]
    horizon: float

    def step(self, at: Restored, capacity: Capacity, goal: int | None = None) -> Restored:
        """The best that can be added to `at`; with `goal` only queries inside it."""
        problem, (total, nodes) = self.problem, capacity
        room = list(nodes)
        for k, node in at.placement.items():
            room[node] -= problem.cost[k]
        free = total - problem.cost_of(at.covered)
        rest, names = self._rest(at.covered, min(free, sum(room)) if nodes else free, goal)
        fitted = fit_nodes(rest, self.best(rest), tuple(room))
        added = problem.union(names[i] for i in fitted.queries) & ~at.covered
        return Restored(at.covered | added, {**at.placement, **fitted.placement})

    def _rest(self, covered: int, capacity: int, goal: int | None) -> tuple[Problem, list[int]]:
        """The problem that is left where `covered` is paid, and the number of each of its queries."""
        problem = self.problem
        inside = ~0 if goal is None else goal
        left = [q for q, mask in enumerate(problem.masks) if mask & ~covered and not mask & ~inside]
        place = {q: i for i, q in enumerate(left)}
        sharers = tuple(
            () if covered >> k & 1 else tuple(place[q] for q in users if q in place)
            for k, users in enumerate(problem.sharers)
        )
        rest = replace(
            problem,
            capacity=capacity,
            query_ids=tuple(problem.query_ids[q] for q in left),
            priority=tuple(problem.priority[q] for q in left),
            masks=tuple(problem.masks[q] & ~covered for q in left),
            sharers=sharers,
        )
        return rest, left

    def follow(self, at: Restored, capacities: Sequence[Capacity], goal: int | None = None) -> list[Restored]:
        """Add at each capacity the best that can be added."""
        chain = []
        for capacity in capacities:
            at = self.step(at, capacity, goal)
            chain.append(at)
        return chain

    def rollouts(self, at: Restored, capacities: Sequence[Capacity]) -> list[tuple[str, list[Restored]]]:
        """(name, chain): myopic, then heading for the optimum of each later stage: until that stage only
        queries inside it are restored, and the chain goes on myopically."""
        if not capacities:
            return []
        found = [("myopic", self.follow(at, capacities))]
        for target in range(1, len(capacities)):
            goal = self.step(at, capacities[target]).covered
            chain = self.follow(at, capacities[: target + 1], goal)
            chain[-1] = self.step(chain[-1], capacities[target])
            chain += self.follow(chain[-1], capacities[target + 1 :])
            found.append((f"towards stage {target}", chain))
        return found

    def area(self, chain: Sequence[Restored], times: Sequence[float], already: int = 0) -> float:
        """Priority x seconds until the horizon. A query counts from when the last of its partitions is
        restored: the time of its link and the seconds that it takes; `already` partitions were before."""
        since: dict[int, float] = dict.fromkeys(bits(already), times[0])
        for link, time in zip(chain, times, strict=True):
            for k in bits(link.covered):
                since.setdefault(k, time + self.seconds[k])
        total, end = 0.0, self.horizon
        for q in self.problem.closure(chain[-1].covered):
            start = max((since[k] for k in self.problem.members(q)), default=times[0])
            total += self.problem.priority[q] * max(0.0, end - start)
        return total

"""Make an instance smaller without changing its optimum, and split it into parts that share nothing.

- queries dearer than the capacity leave, and partitions without cost; queries that then need nothing are
  taken
- partitions that exactly the same queries need are folded into one; private partitions are a case of it
- queries with the same partitions become one that is worth their sum
- with room for everything, everything is taken
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reprise.algorithms.problem import Problem, bits, make_problem


@dataclass(frozen=True, slots=True)
class Reduced:
    """`problem` is what is left to decide; query i of it stands for `originals[i]`; `taken` are in every best
    plan."""

    problem: Problem
    originals: tuple[tuple[int, ...], ...]
    taken: tuple[int, ...]

    def expand(self, queries: tuple[int, ...]) -> tuple[int, ...]:
        """Queries of the original problem for queries of the reduced one."""
        return tuple(sorted([*self.taken, *(q for query in queries for q in self.originals[query])]))


def reduce_problem(problem: Problem) -> Reduced:
    """All reductions, once; each leaves nothing for the ones before it."""
    costly = sum(1 << k for k, cost in enumerate(problem.cost) if cost)
    by_mask: dict[int, list[int]] = {}
    for query, mask in enumerate(problem.masks):
        by_mask.setdefault(mask & costly, []).append(query)
    taken = by_mask.pop(0, [])
    by_mask = {
        mask: queries for mask, queries in by_mask.items() if problem.cost_of(mask) <= problem.capacity
    }
    if problem.cost_of(_union(by_mask)) <= problem.capacity:
        taken += [q for queries in by_mask.values() for q in queries]
        by_mask = {}
    groups = _shared_alike(by_mask)
    masks = [0] * len(by_mask)
    for group, together in enumerate(groups):
        for user in together:
            masks[user] |= 1 << group
    small = Problem(
        capacity=problem.capacity,
        query_ids=tuple(problem.query_ids[queries[0]] for queries in by_mask.values()),
        priority=tuple(problem.value_of(queries) for queries in by_mask.values()),
        masks=tuple(masks),
        partition_ids=tuple(problem.partition_ids[members[0]] for members in groups.values()),
        cost=tuple([sum([problem.cost[k] for k in members]) for members in groups.values()]),
        sharers=tuple(groups),
    )
    return Reduced(small, tuple(map(tuple, by_mask.values())), tuple(sorted(taken)))


def _shared_alike(masks: Iterable[int]) -> dict[tuple[int, ...], list[int]]:
    """Partitions by the masks, given by their places, that they are in; both in order."""
    sharers: dict[int, list[int]] = {}
    for i, mask in enumerate(masks):
        for k in bits(mask):
            sharers.setdefault(k, []).append(i)
    groups: dict[tuple[int, ...], list[int]] = {}
    for k, users in sorted(sharers.items()):
        groups.setdefault(tuple(users), []).append(k)
    return groups


def components(problem: Problem) -> list[tuple[int, ...]]:
    """Queries grouped so that no partition is shared across groups; groups in order of their first query."""
    found: list[tuple[int, list[int]]] = []
    for query, mask in enumerate(problem.masks):
        joined, members, apart = mask, [query], []
        # groups are disjoint, so joining one cannot make the mask touch another that it did not touch
        for other, queries in found:
            if other & joined:
                joined |= other
                members = queries + members
            else:
                apart.append((other, queries))
        found = [*apart, (joined, members)]
    return sorted(tuple(sorted(members)) for _, members in found)


def restrict(problem: Problem, queries: tuple[int, ...]) -> Problem:
    """The problem of `queries` alone, in their order, with the partitions that they need."""
    used = {k: i for i, k in enumerate(bits(problem.union(queries)))}
    return make_problem(
        capacity=problem.capacity,
        query_ids=tuple(problem.query_ids[q] for q in queries),
        priority=tuple(problem.priority[q] for q in queries),
        masks=tuple(sum(1 << used[k] for k in problem.members(q)) for q in queries),
        partition_ids=tuple(problem.partition_ids[k] for k in used),
        cost=tuple(problem.cost[k] for k in used),
    )


def _union(masks: dict[int, list[int]]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union

"""Makes of a set of queries that fits in sum one that fits node by node.

The sum plan is packed as it is where possible. Else two repairs compete: leave out one query, or rebuild
greedily with only what packs; both are then filled up with whatever else finds room. What was given up is
reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from reprise.algorithms.packing import Placement, most_free, pack
from reprise.algorithms.problem import Problem, bits

MAX_ROOM = 1_000_000
"""Room of a node up to which sums of costs are enumerated."""

Packed = tuple[tuple[int, ...], Placement]
"""Queries and where each of their partitions goes."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """`given_up` are queries that would fit in sum beside `queries` and whose partitions found no node. `tight` is the
    problem `within_reach`, where something had to be repaired."""

    queries: tuple[int, ...]
    placement: Placement = field(default_factory=dict)
    given_up: frozenset[int] = frozenset()
    tight: Problem | None = None


def fit_nodes(problem: Problem, chosen: tuple[int, ...], free: tuple[int, ...]) -> Fitted:
    """The best of the repairs of `chosen` on nodes with `free` capacity; no nodes: `chosen` itself."""
    if not free:
        return Fitted(chosen)
    needed = problem.union(chosen)
    placement = _pack(problem, needed, free, search=False)
    if placement is not None:
        return Fitted(chosen, placement)
    tight = within_reach(problem, free)  # more than that never packs, so it need not be tried
    placement = _pack(tight, needed, free)
    if placement is not None:
        return Fitted(chosen, placement)
    best, where = _repaired(tight, chosen, free)
    return Fitted(best, where, given_up(problem, best), tight)


def within_reach(problem: Problem, free: tuple[int, ...]) -> Problem:
    """The same with no more capacity than its partitions can fill: of each node only the greatest sum of costs that does
    not exceed its room.  Sums are the bits of one integer, so this takes microseconds where HiGHS takes tens of
    milliseconds, and it often proves as much."""
    most = max(free, default=0)
    if most > MAX_ROOM:
        return problem
    sums, up_to_most = 1, (1 << most + 1) - 1
    for cost in problem.cost:
        if cost <= most:
            sums |= (sums << cost) & up_to_most
    reachable = sum((sums & ((1 << room + 1) - 1)).bit_length() - 1 for room in free)
    return replace(problem, capacity=min(problem.capacity, reachable))


def _repaired(problem: Problem, chosen: tuple[int, ...], free: tuple[int, ...]) -> Packed:
    """The more valuable of the two repairs."""
    everyone = _by_density(problem)
    own = set(chosen)
    starts = [_fill(problem, [q for q in everyone if q in own], ((), {}), free)]
    starts += _without_one(problem, chosen, free)
    filled = [_fill(problem, everyone, start, free) for start in starts]
    return max(filled, key=lambda entry: (problem.value_of(entry[0]), tuple(-q for q in entry[0])))


def _without_one(problem: Problem, chosen: tuple[int, ...], free: tuple[int, ...]) -> list[Packed]:
    """All of `chosen` but the first, by priority, without which the rest packs; none where there is no such query."""
    in_vain: set[tuple[int, ...]] = set()
    for query in sorted(chosen, key=lambda q: (problem.priority[q], q)):
        rest = tuple(q for q in chosen if q != query)
        needed = problem.union(rest)
        costs = tuple(sorted(problem.costs_in(needed)))
        if costs in in_vain:
            continue
        placement = _pack(problem, needed, free, search=False)
        if placement is not None:
            return [(rest, placement)]
        in_vain.add(costs)
    return []


def _fill(problem: Problem, order: list[int], start: Packed, free: tuple[int, ...]) -> Packed:
    """Add queries in `order` to the packed `start` as long as everything packs. A query is first put beside
    what lies; only if that fails is all packed anew. Whether it packs is decided by costs alone, so queries that lack
    the same costs as one that failed are passed over until something was added."""
    kept, placement = set(start[0]), dict(start[1])
    covered, room = problem.union(kept), _room(problem, placement, free)
    left = problem.capacity - problem.cost_of(covered)
    in_vain: set[tuple[int, ...]] = set()
    for query in order:
        if query in kept:
            continue
        fresh = problem.masks[query] & ~covered
        if not fresh:
            kept.add(query)
            continue
        costs = problem.costs_in(fresh)
        price = sum(costs)
        if price > left or costs in in_vain:
            continue
        trial = list(room)
        beside = most_free(list(zip(bits(fresh), costs, strict=True)), trial)
        if beside is not None:
            placement |= beside
        else:
            anew = _pack(problem, covered | fresh, free, search=False)
            if anew is None:
                in_vain.add(costs)
                continue
            placement, trial = anew, _room(problem, anew, free)
        kept.add(query)
        room, covered, left = trial, covered | fresh, left - price
        in_vain.clear()
    return tuple(sorted(kept)), placement


def _room(problem: Problem, placement: Placement, free: tuple[int, ...]) -> list[int]:
    room = list(free)
    for k, node in placement.items():
        room[node] -= problem.cost[k]
    return room


def _by_density(problem: Problem) -> list[int]:
    """All queries, those with most priority for their cost first."""
    price = [cost / worth for cost, worth in zip(problem.costs_alone(), problem.priority, strict=True)]
    return sorted(range(len(price)), key=price.__getitem__)


def _pack(problem: Problem, mask: int, free: tuple[int, ...], search: bool = True) -> Placement | None:
    costs = problem.costs_in(mask)
    if sum(costs) > problem.capacity:
        return None
    return pack(list(zip(bits(mask), costs, strict=True)), free, search)


def given_up(problem: Problem, kept: tuple[int, ...]) -> frozenset[int]:
    covered = problem.union(kept)
    room = problem.capacity - problem.cost_of(covered)
    others = set(range(len(problem.masks))).difference(kept)
    return frozenset(q for q in others if problem.cost_of(problem.masks[q] & ~covered) <= room)

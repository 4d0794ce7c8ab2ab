"""From a set of queries that fits in sum to one that fits node by node.

The sum plan is packed as it is where possible. Else two repairs compete: leave out one query, or rebuild
greedily with only what packs; both are then filled up with whatever else finds room. What was given up is
reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from algorithms.packing import Placement, most_free, pack
from algorithms.problem import Problem, bits


@dataclass(frozen=True, slots=True)
class Fitted:
    """`given_up` are queries that would fit in sum beside `queries` and whose partitions found no node."""

    queries: tuple[int, ...]
    placement: Placement = field(default_factory=dict)
    given_up: frozenset[int] = frozenset()


def fit_nodes(problem: Problem, chosen: tuple[int, ...], free: tuple[int, ...]) -> Fitted:
    """The best of the repairs of `chosen` on nodes with `free` capacity; no nodes: `chosen` itself."""
    if not free:
        return Fitted(chosen)
    placement = _pack(problem, problem.union(chosen), free)
    if placement is not None:
        return Fitted(chosen, placement)
    everyone = _by_density(problem, range(len(problem.masks)))
    starts = [_fill(problem, _by_density(problem, chosen), ((), {}), free)]
    for query in sorted(chosen, key=lambda q: (problem.priority[q], q)):
        rest = tuple(q for q in chosen if q != query)
        placement = _pack(problem, problem.union(rest), free, search=False)
        if placement is not None:
            starts.append((rest, placement))
            break
    filled = [_fill(problem, everyone, start, free) for start in starts]
    best, where = max(filled, key=lambda entry: (problem.value_of(entry[0]), tuple(-q for q in entry[0])))
    return Fitted(best, where, given_up(problem, best))


def _fill(
    problem: Problem, order: list[int], start: tuple[tuple[int, ...], Placement], free: tuple[int, ...]
) -> tuple[tuple[int, ...], Placement]:
    """Add queries in `order` to the packed `start` as long as everything packs. A query is first put beside
    what lies; only if that fails is all packed anew."""
    kept, placement = set(start[0]), dict(start[1])
    covered, room = problem.union(kept), _room(problem, placement, free)
    for query in order:
        fresh = problem.masks[query] & ~covered
        if query in kept or problem.cost_of(covered | fresh) > problem.capacity:
            continue
        trial = list(room)
        beside = most_free([(k, problem.cost[k]) for k in bits(fresh)], trial)
        if beside is not None:
            placement |= beside
        else:
            anew = _pack(problem, covered | fresh, free, search=False)
            if anew is None:
                continue
            placement, trial = anew, _room(problem, anew, free)
        room, covered = trial, covered | fresh
        kept.add(query)
    return tuple(sorted(kept)), placement


def _room(problem: Problem, placement: Placement, free: tuple[int, ...]) -> list[int]:
    room = list(free)
    for k, node in placement.items():
        room[node] -= problem.cost[k]
    return room


def _by_density(problem: Problem, queries: range | tuple[int, ...]) -> list[int]:
    return sorted(queries, key=lambda q: (problem.cost_of(problem.masks[q]) / problem.priority[q], q))


def _pack(problem: Problem, mask: int, free: tuple[int, ...], search: bool = True) -> Placement | None:
    if problem.cost_of(mask) > problem.capacity:
        return None
    return pack([(k, problem.cost[k]) for k in bits(mask)], free, search)


def given_up(problem: Problem, kept: tuple[int, ...]) -> frozenset[int]:
    covered = problem.union(kept)
    room = problem.capacity - problem.cost_of(covered)
    return frozenset(
        q
        for q, mask in enumerate(problem.masks)
        if q not in set(kept) and problem.cost_of(mask & ~covered) <= room
    )

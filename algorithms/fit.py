"""From a set of queries that fits in sum to one that fits node by node.

The sum plan is packed as it is where possible. Else two repairs compete: leave out one query, or rebuild
greedily with only what packs; both are then filled up with whatever else finds room. What was given up is
reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from algorithms.packing import Placement, pack
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
    starts = [_rebuild(problem, _by_density(problem, chosen), (), free)]
    for query in sorted(chosen, key=lambda q: (problem.priority[q], q)):
        rest = tuple(q for q in chosen if q != query)
        if _pack(problem, problem.union(rest), free) is not None:
            starts.append(rest)
            break
    everyone = _by_density(problem, range(len(problem.masks)))
    filled = [_rebuild(problem, everyone, start, free) for start in starts]
    best = max(filled, key=lambda queries: (problem.value_of(queries), tuple(-q for q in queries)))
    best_placement = _pack(problem, problem.union(best), free)
    assert best_placement is not None  # each step of _rebuild was packed
    return Fitted(best, best_placement, _given_up(problem, best))


def _rebuild(
    problem: Problem, order: list[int], start: tuple[int, ...], free: tuple[int, ...]
) -> tuple[int, ...]:
    """Add queries in `order` to `start`, each only if everything then packs."""
    covered, kept = problem.union(start), set(start)
    for query in order:
        grown = covered | problem.masks[query]
        if query not in kept and (grown == covered or _pack(problem, grown, free) is not None):
            covered = grown
            kept.add(query)
    return tuple(sorted(kept))


def _by_density(problem: Problem, queries: range | tuple[int, ...]) -> list[int]:
    return sorted(queries, key=lambda q: (problem.cost_of(problem.masks[q]) / problem.priority[q], q))


def _pack(problem: Problem, mask: int, free: tuple[int, ...]) -> Placement | None:
    if problem.cost_of(mask) > problem.capacity:
        return None
    return pack([(k, problem.cost[k]) for k in bits(mask)], free)


def _given_up(problem: Problem, kept: tuple[int, ...]) -> frozenset[int]:
    covered = problem.union(kept)
    room = problem.capacity - problem.cost_of(covered)
    return frozenset(
        q
        for q, mask in enumerate(problem.masks)
        if q not in set(kept) and problem.cost_of(mask & ~covered) <= room
    )

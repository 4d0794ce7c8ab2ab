"""Why each query is in a plan or not, for the command line, the status page and records.

Everything here is computed from the plan and the instance alone, in integers, so an explanation can be given
again for a recorded plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reprise.algorithms.dp import subset_tables
from reprise.algorithms.model import Choice, Exclusion
from reprise.algorithms.problem import Problem

EXACT_ENTRY_QUERIES = 14
"""Up to this many queries `enters_at` is exact: all subsets are compared for each one left out."""

NAMED = 5
"""Rivals that a reason names; `competes_with` has all of them."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A plan: the mask of what it restores costs `spent`, and is `whole` where that is just what is chosen."""

    chosen: tuple[int, ...]
    restored: int
    spent: int
    whole: bool


def choices(problem: Problem, chosen: tuple[int, ...]) -> tuple[Choice, ...]:
    """The chosen queries in the order to restore them: most priority for the capacity that each adds comes
    first."""
    covered, found = 0, []
    alone = problem.costs_alone()
    prices = list(alone)
    rates = {q: alone[q] / problem.priority[q] for q in sorted(chosen)}
    while rates:
        query = min(rates, key=rates.__getitem__)
        fresh = problem.masks[query] & ~covered
        found.append(
            Choice(
                query=problem.query_ids[query],
                priority=problem.priority[query],
                cost=prices[query],
                cost_alone=alone[query],
                restores=problem.names_in(fresh),
            )
        )
        covered |= fresh
        del rates[query]
        for other in rates if fresh else ():
            if problem.masks[other] & fresh:
                prices[other] = problem.cost_of(problem.masks[other] & ~covered)
                rates[other] = prices[other] / problem.priority[other]
    return tuple(found)


def exclusions(
    problem: Problem, chosen: tuple[int, ...], restored: int, unpacked: frozenset[int] = frozenset()
) -> tuple[Exclusion, ...]:
    """One entry for each query that is not chosen. `restored` is the mask of partitions that the plan
    restores, `unpacked` the queries that were given up because no node had room for their pieces."""
    left_out = sorted(set(range(len(problem.masks))).difference(chosen))
    entry = _exact_entry(problem, left_out) if len(problem.masks) <= EXACT_ENTRY_QUERIES else {}
    made = _Made(chosen, restored, problem.cost_of(restored), restored == problem.union(chosen))
    return tuple(
        [
            _exclusion(problem, made, query, unpacked=query in unpacked, entry=entry.get(query))
            for query in left_out
        ]
    )


def _exclusion(problem: Problem, made: _Made, query: int, *, unpacked: bool, entry: int | None) -> Exclusion:
    missing, alone = problem.masks[query] & ~made.restored, problem.cost_of(problem.masks[query])
    price = problem.cost_of(missing)
    free = problem.capacity - made.spent
    lacking = max(0, price - free)
    rivals = _rivals(problem, made.chosen, query, lacking)
    names = tuple(problem.query_ids[rival] for rival in rivals)
    if alone > problem.capacity:
        code = "too-large"
        reason = f"needs {alone} alone, more than the capacity of {problem.capacity}"
    elif unpacked:
        code = "packing"
        reason = f"needs {price} more and {free} is free in sum, but not on nodes where its partitions fit"
    elif not made.whole:
        code = "not-completed"
        reason = f"the planner restores partition by partition and left {price} of this query undone"
    elif not lacking:
        code = "not-found"
        reason = f"needs {price} more and {free} is free: the planner did not find it"
    else:
        code = "outbid"
        reason = f"needs {price} more and {free} is free: {lacking} is missing; competes with "
        reason += ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    return Exclusion(
        query=problem.query_ids[query],
        reason=reason,
        missing=problem.names_in(missing),
        missing_capacity=lacking,
        competes_with=names,
        enters_at=made.spent + price if entry is None else entry,
        entry_exact=entry is not None,
        code=code,
    )


def _rivals(problem: Problem, chosen: tuple[int, ...], query: int, lacking: int) -> tuple[int, ...]:
    """Chosen queries whose withdrawal makes room: one that suffices, cheapest in priority, else the least
    dense ones until they suffice. A withdrawn query frees only what neither this query nor another chosen one
    needs."""
    if not lacking:
        return ()
    once = _needed_once(problem, chosen)
    single = [
        q for q in chosen if problem.cost_of(problem.masks[q] & once & ~problem.masks[query]) >= lacking
    ]
    if single:
        return (min(single, key=lambda q: (problem.priority[q], q)),)
    away: set[int] = set()
    by_density = sorted(
        chosen, key=lambda q: (problem.priority[q] / max(1, problem.cost_of(problem.masks[q])), q)
    )
    for rival in by_density:
        away.add(rival)
        if _freed(problem, chosen, away, query) >= lacking:
            break
    return tuple(sorted(away))


def _needed_once(problem: Problem, chosen: tuple[int, ...]) -> int:
    """Partitions that exactly one chosen query needs: what its withdrawal would free."""
    some = several = 0
    for q in chosen:
        several |= some & problem.masks[q]
        some |= problem.masks[q]
    return some & ~several


def _freed(problem: Problem, chosen: tuple[int, ...], away: set[int], query: int) -> int:
    kept = problem.union(q for q in chosen if q not in away) | problem.masks[query]
    return problem.cost_of(problem.union(away) & ~kept)


def _exact_entry(problem: Problem, left_out: list[int]) -> dict[int, int]:
    """Find for each query the least capacity at which some best plan contains it, by comparing all subsets.
    Capacities at which the optimum changes are subset costs, so only these need a look."""
    cost, value = subset_tables(problem)
    order = np.argsort(cost, kind="stable")
    steps, last = np.unique(cost[order], return_index=True)
    ends = np.append(last[1:], len(order)) - 1
    best = np.maximum.accumulate(value[order])[ends]
    found = {}
    for query in left_out:
        mine = np.where(order >> query & 1, value[order], -1)
        with_query = np.maximum.accumulate(mine)[ends]
        reached = np.flatnonzero((with_query == best) & (steps > problem.capacity))
        inside = np.flatnonzero((with_query == best) & (steps <= problem.capacity))
        first = reached[0] if len(reached) else inside[-1]
        found[query] = int(steps[first])
    return found

"""Anytime planning: never worse than the BestDensity start, better with every moment it is given.

Tabu search over adds, drops and swaps of queries, all priced at every step (`swap_state`): the move that
gives most priority is taken even if it loses, ties go to the one that leaves more room, and a query that just
moved rests for a few steps. When nothing better turns up, either the plan is partly destroyed and rebuilt, or
single partitions are moved for a while (`partition_search`), in turns: the first is strong where queries are
many, the second where they share much. The generator of random numbers is seeded, so what ends a run is the
clock alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from algorithms.best_density_fast import best_density_fast
from algorithms.partition_search import PartitionSearch
from algorithms.problem import Deadline, Outcome, Problem
from algorithms.reduce import reduce_problem
from algorithms.swap_state import SwapState

REST_DROPPED = (4, 9)
"""Steps for which a dropped query may not return: drawn from this range, times the round's patience."""
REST_ADDED = (1, 4)
"""Steps for which an added query may not leave, likewise."""
PATIENCE = (1, 1, 3)
"""Factors on the rests, round after round. Short rests are best for 500 queries; a long one now and then gets
small dense instances out of local optima that short ones never left."""
ROUNDS = (("partitions", "best"), ("rebuild", "best"), ("rebuild", "last"))
"""What a stalled search does next, in turns: move partitions of the best plan, or destroy and rebuild that
plan or the last one. Turns that start afresh did worse in the same time."""
NOISE = 0.3
"""How far a query's density may be raised at random while a plan is filled up."""
STALL = 300
"""Steps without a better plan after which the plan is partly destroyed and rebuilt."""
DESTROY = (0.15, 0.8)
"""Share of the queries that a restart drops."""
START_SHARE = 0.15
"""Share of the time that BestDensity may take before the search starts from what it has."""
MAX_CELLS = 30_000_000
"""Queries times partitions beyond which the dense tables would not fit the memory of a small coordinator."""


def best_density(problem: Problem, deadline: Deadline) -> Outcome:
    """BestDensity as a planner of the registry; it takes the time it needs."""
    return Outcome(best_density_fast(problem)[0], note="all single queries and pairs extended by density")


def local_search(problem: Problem, deadline: Deadline) -> Outcome:
    """Search until the deadline."""
    start, complete = timed_start(problem, deadline)
    reduced = reduce_problem(problem)
    small = reduced.problem
    if not small.masks:
        return Outcome(reduced.taken, problem.value_of(reduced.taken), "reductions alone decide it")
    if len(small.masks) * len(small.cost) > MAX_CELLS:
        return Outcome(start, note="too large to search: BestDensity as far as time allowed")
    place = {q: i for i, group in enumerate(reduced.originals) for q in group}
    seed = tuple(sorted({place[q] for q in start if q in place}))
    found, steps = search(small, seed, deadline.passed)
    best = max((reduced.expand(found), start), key=problem.value_of)
    begun = "BestDensity" if complete else "BestDensity cut short"
    return Outcome(problem.closure(problem.union(best)), note=f"{steps} steps from {begun}")


def timed_start(problem: Problem, deadline: Deadline) -> tuple[tuple[int, ...], bool]:
    """BestDensity within its share of the time, and whether that was enough for all candidates."""
    until = deadline.left() * (1 - START_SHARE)
    return best_density_fast(problem, lambda: deadline.left() < until)


def search(problem: Problem, start: tuple[int, ...], stop: Callable[[], bool]) -> tuple[tuple[int, ...], int]:
    """(the best queries met, steps made); `start` must be feasible."""
    state, partitions = SwapState(problem), PartitionSearch(problem)
    for query in start:
        state.insert(query)
    rng = np.random.default_rng(len(problem.masks))
    rests = np.zeros(state.count, np.int64)
    best, best_value = state.chosen.copy(), state.value
    local, local_value = best, best_value
    top = float(state.priority.sum())
    stalled = steps = rounds = 0
    patience = 1
    while not stop() and best_value < top:
        steps += 1
        rest = steps + patience * np.array([rng.integers(*REST_ADDED), rng.integers(*REST_DROPPED)])
        moved = _step(state, rests, steps, best_value, rest)
        stalled += 1
        if state.value > local_value:
            local, local_value, stalled = state.chosen.copy(), state.value, 0
            if local_value > best_value:
                best, best_value = local, local_value
        if stalled > STALL or not moved:
            rounds += 1
            kind, source = ROUNDS[rounds % len(ROUNDS)]
            base = best if source == "best" else local
            if kind == "partitions":
                base, made = partitions.round(base, rounds, rng, stop)
                steps += made
                _load(state, base)
            else:
                _restart(state, base, rng)
            patience = PATIENCE[rounds % len(PATIENCE)]
            rests[:] = 0
            local, local_value, stalled = state.chosen.copy(), state.value, 0
            if local_value > best_value:
                best, best_value = local, local_value
    return tuple(np.flatnonzero(best).tolist()), steps


def _step(
    state: SwapState,
    rests: npt.NDArray[np.int64],
    step: int,
    best_value: float,
    until: npt.NDArray[np.int64],
) -> bool:
    """Make the best move that is allowed; False when there is none. What is added then rests until step
    until[0], what is dropped until step until[1]."""
    room = state.capacity - state.spent
    resting = rests > step
    tie = 1.0 / (1.0 + 2.0 * float(state.alone.sum()))  # never outweighs one unit of priority
    slots = state.slots
    blocked = (state.add > room) | state.chosen | resting
    adds = np.where(blocked, -np.inf, state.priority - tie * state.add)
    add = int(adds.argmax())
    if adds[add] > -np.inf:  # an add that fits beats every swap for it
        state.insert(add)
        rests[add] = until[0]
        return True
    if not len(slots):
        return False
    change = state.lost + state.add
    change -= state.freed[:, None]
    gain = state.priority - state.priority[slots][:, None]
    blocked = (change > room) | state.chosen
    # a move to a plan better than any before is allowed whatever rests
    blocked |= (resting | resting[slots][:, None]) & (gain <= best_value - state.value)
    swaps = gain - tie * change
    swaps[blocked] = -np.inf
    swap = int(swaps.argmax())
    slot, query = divmod(swap, state.count)
    drops = np.where(resting[slots], -np.inf, tie * state.freed - state.priority[slots])
    drop = int(drops.argmax())
    if swaps.flat[swap] >= drops[drop]:
        if swaps.flat[swap] == -np.inf:
            return False
        out = int(slots[slot])
        state.remove(out)
        state.insert(query)
        rests[query] = until[0]
    else:
        out = int(slots[drop])
        state.remove(out)
    rests[out] = until[1]
    return True


def _load(state: SwapState, chosen: npt.NDArray[np.bool_]) -> None:
    state.clear()
    for query in np.flatnonzero(chosen):
        state.insert(int(query))


def _restart(state: SwapState, base: npt.NDArray[np.bool_], rng: np.random.Generator) -> None:
    """Keep a random part of `base` and fill up greedily by noisy density."""
    members = np.flatnonzero(base)
    kept = members[rng.random(len(members)) >= rng.uniform(*DESTROY)]
    kept_mask = np.zeros_like(base)
    kept_mask[kept] = True
    _load(state, kept_mask)
    sharers = np.maximum(1, (state.needs > 0).sum(axis=1))
    split = state.needs / sharers[:, None]
    while True:
        fits = (state.add <= state.capacity - state.spent) & ~state.chosen
        if not fits.any():
            return
        weight = split[state.users == 0].sum(axis=0) + 1e-9
        score = np.where(fits, state.priority / weight * (1.0 + NOISE * rng.random(state.count)), -1.0)
        state.insert(int(score.argmax()))

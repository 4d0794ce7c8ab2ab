"""BestDensity with incremental densities: the answer of `best_density_literal`, many candidates at a time.

Thousands of candidate plans advance in lockstep as rows of numpy arrays. A row keeps, for every query, its
residual cost and its residual split cost (the denominator of Definition 3); adding a query subtracts only
what its newly covered partitions contribute. Rows that add the same query are updated by one small matrix
product. All numbers are integers below 2**53 held in float64, so sums are exact and ties fall as in the
literal version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reprise.algorithms.problem import Problem, shares

CHUNK_BYTES = 20_000_000
"""Bytes that the rows of one chunk may take: larger ones share more matrix products, smaller ones stay in
cache."""
TIMED_CHUNK_BYTES = 2_000_000
"""The same where a time limit is watched: tens of milliseconds a chunk, so that the limit is kept."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tables:
    """Dense tables of a problem: `uses[q, k]` whether query q needs partition k; `parts[k]` is the row of
    costs (first M columns) and of split costs (last M columns) that partition k contributes to each query."""

    uses: npt.NDArray[np.bool_]
    parts: Floats
    cost: Floats
    priority: Ints

    @staticmethod
    def of(problem: Problem) -> Tables:
        uses = np.zeros((len(problem.masks), len(problem.cost)), np.bool_)
        for k, queries in enumerate(problem.sharers):
            uses[list(queries), k] = True
        cost = np.array(problem.cost, np.float64)
        split = np.array(shares(problem)[1], np.float64)
        parts = np.concatenate([uses.T * cost[:, None], uses.T * split[:, None]], axis=1)
        return Tables(uses, parts, cost, np.array(problem.priority, np.int64))


def best_density_fast(
    problem: Problem, stop: Callable[[], bool] | None = None
) -> tuple[tuple[int, ...], bool]:
    """(queries of the best candidate, whether all candidates were extended). `stop` is asked between
    chunks."""
    if not problem.masks:
        return (), True
    tables = Tables.of(problem)
    starts = _starts(problem, tables)
    size = TIMED_CHUNK_BYTES if stop else CHUNK_BYTES
    chunk = max(64, size // (tables.parts.shape[1] * 8))
    best: tuple[int, ...] = ()
    best_value = 0
    for at in range(0, len(starts), chunk):
        if at and stop is not None and stop():
            return best, False
        chosen, values = _extend(tables, starts[at : at + chunk], problem.capacity)
        winner = int(values.argmax())
        if values[winner] > best_value:  # the first of equals stays, as in the literal version
            best_value = int(values[winner])
            best = tuple(np.flatnonzero(chosen[winner]).tolist())
    return best, True


def _starts(problem: Problem, tables: Tables) -> Ints:
    """Lines 9-19: singles, written as (m, m), then pairs in order, each within the capacity."""
    count = len(problem.masks)
    weighted = tables.uses * tables.cost
    overlap = weighted @ tables.uses.T.astype(np.float64)
    alone = np.diag(overlap)
    first, second = np.triu_indices(count, 1)
    fits = alone[first] + alone[second] - overlap[first, second] <= problem.capacity
    singles = np.flatnonzero(alone <= problem.capacity)
    pairs = np.stack([first[fits], second[fits]], axis=1)
    return np.concatenate([np.stack([singles, singles], axis=1), pairs])


def _extend(tables: Tables, starts: Ints, capacity: int) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Lines 21-31 for all rows of `starts`: the chosen queries of each and their value."""
    count = len(tables.priority)
    chosen = np.zeros((len(starts), count), np.bool_)
    chosen[np.arange(len(starts)), starts[:, 0]] = chosen[np.arange(len(starts)), starts[:, 1]] = True
    covered = tables.uses[starts[:, 0]] | tables.uses[starts[:, 1]]
    residual = tables.parts.sum(axis=0) - covered.astype(np.float64) @ tables.parts
    room = capacity - covered @ tables.cost
    residual[:, :count][chosen] = np.inf  # never picked again
    rows = np.arange(len(starts))
    names = np.random.default_rng(0).integers(0, 2**62, count)
    state = chosen @ names  # equal for equal sets
    priority = tables.priority.astype(np.float64)
    while len(rows):
        with np.errstate(divide="ignore", invalid="ignore"):
            density = priority / residual[:, count:]
        density[residual[:, :count] > room[:, None]] = -1.0
        picks = density.argmax(axis=1)
        alive = density[np.arange(len(rows)), picks] >= 0
        state = state + names[picks]
        keep = _distinct(state, alive)
        if len(keep) < len(rows):
            rows, picks, covered, state = rows[keep], picks[keep], covered[keep], state[keep]
            residual, room = residual[keep], room[keep]
        here = np.arange(len(rows))
        room = room - residual[here, picks]
        residual[here, picks] = np.inf
        chosen[rows, picks] = True
        _cover(tables, covered, residual, picks)
    return chosen, chosen @ tables.priority


def _distinct(state: Ints, alive: npt.NDArray[np.bool_]) -> Ints:
    """Rows that go on: of rows that hold the same queries all end alike, so the first goes on for the others,
    which stay behind with less than it reaches. (Sets are told apart by sums of random 62-bit names.)"""
    here = np.flatnonzero(alive)
    first = np.unique(state[here], return_index=True)[1]
    return here[np.sort(first)]


def _cover(tables: Tables, covered: npt.NDArray[np.bool_], residual: Floats, picks: Ints) -> None:
    """Restore the partitions of `picks[row]` in each row and take them off the residuals, in place."""
    order = np.argsort(picks, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(picks[order])) + 1):
        if not len(group):
            return
        members = np.flatnonzero(tables.uses[picks[group[0]]])
        fresh = ~covered[np.ix_(group, members)]
        some = fresh.any(axis=0)
        if some.any():
            residual[group] -= fresh[:, some].astype(np.float64) @ tables.parts[members[some]]
            covered[np.ix_(group, members[some])] = True

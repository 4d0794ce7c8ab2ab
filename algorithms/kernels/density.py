"""BestDensity's candidates (Su and Zhou, Algorithm 3, lines 9-31), one after the other.

A candidate keeps for every query its residual cost and its residual share (the denominator of Definition 3), side
by side; restoring a partition takes its part off the queries that share it and touches no other. Three facts save
most of the work and change no answer:

- what a query lacks shrinks by no more than the room does, so a query that does not fit now never will, and
  is not looked at again;
- a density only ever grows, until its query is added or does not fit. So the densest of each small block of queries
  is kept up to date by looking at what has changed, and a block is looked through only when its densest is gone;
- a candidate that comes to hold the same queries as an earlier one ends as that one did, and is given up. Sets
  are told apart by 62-bit names combined with exclusive or.

Places are unsigned where it matters: signed ones are asked each time whether they count from the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reprise.algorithms.kernels.cover import Cover, Ints, make_cover

FIRST, SECOND, HELD, BEST, SHIFT = range(5)
"""Places in `Candidates.now`: the next candidate (a single where both are equal), the query that row 0 holds, the
value of the best so far, the bits of a block."""

COST, SHARE = 0, 1
"""Places in a query's entry of `Candidates.left`."""

Floats = npt.NDArray[np.float64]

SMALL_BLOCK, ONE_BLOCK = 3, 40
"""Queries whose numbers agree but for so many bits are a block. Where a query that is restored changes most of
the others, one block holds them all, and is looked through after each step."""

MAX_SEEN = 1 << 20
"""Sets remembered, 8 MiB. A newer one takes the place of an older one with the same remainder."""

LOOKS_A_STEP = 100
"""What a step is reckoned as."""

NOTHING = 1e-300
"""Below every density; not 0, whose product with infinity is no number."""

ALMOST = 1.0 - 2.0**-40
"""What a product may fall short of by rounding."""


class Candidates(NamedTuple):
    """Scratch and results. Of tables with two rows, row 0 holds what the first query of a pair restores and
    row 1 what the candidate does that is being extended. `left`, per query: what it still costs, and its share of
    that (infinite: it was added or can never be). Per block of queries: the greatest density (NOTHING: none is
    left) and the first query that has it."""

    now: Ints
    pairs: npt.NDArray[np.bool_]
    worth: Floats
    left: Floats
    covered: npt.NDArray[np.bool_]
    top: Floats
    top_query: Ints
    names: Ints
    seen: Ints
    chosen: Ints
    best: npt.NDArray[np.bool_]
    alone: Floats


def make_candidates(cover: Cover, shares: Floats) -> Candidates:
    """`shares` are the integers c_k / f_k of Definition 3."""
    queries, partitions = len(cover.worth), len(cover.price)
    changed = len(cover.row) ** 2 / max(1, queries * partitions)  # by an average query
    shift = ONE_BLOCK if changed * 8 > queries else SMALL_BLOCK
    blocks = (queries >> shift) + 1
    return Candidates(
        now=np.array([0, 0, -1, 0, shift], np.int64),
        pairs=np.zeros(1, np.bool_),
        worth=cover.worth.astype(np.float64),
        left=np.zeros((2, queries, 2)),
        covered=np.zeros((2, partitions), np.bool_),
        top=np.zeros((2, blocks)),
        top_query=np.zeros((2, blocks), np.int64),
        names=np.random.default_rng(0).integers(1, 2**62, queries).astype(np.int64),
        seen=np.zeros(min(MAX_SEEN, 1 << (8 * queries * queries).bit_length()), np.int64),
        chosen=np.zeros(queries, np.int64),
        best=np.zeros(queries, np.bool_),
        alone=np.stack([cover.alone(), cover._replace(price=shares.astype(np.int64)).alone()], 1).astype(
            np.float64
        ),
    )


def restore(
    cover: Cover,
    shares: Floats,
    worth: Floats,
    left: Floats,
    covered: npt.NDArray[np.bool_],
    top: Floats,
    top_query: Ints,
    shift: int,
    query: int,
) -> float:
    """Restore what `query` lacks and take it off those that share it; its price."""
    paid = 0.0
    left[query, SHARE] = np.inf
    for at in range(cover.row_at[query], cover.row_at[query + 1]):
        k = cover.row[at]
        if covered[k]:
            continue
        covered[k] = True
        price, part = float(cover.price[k]), shares[k]
        paid += price
        for to in range(np.uint64(cover.column_at[k]), np.uint64(cover.column_at[k + 1])):
            other = np.uint64(cover.column[to])
            left[other, COST] -= price
            left[other, SHARE] -= part
            if shift == ONE_BLOCK:
                continue
            density = worth[other] / left[other, SHARE] if left[other, SHARE] > 0.0 else np.inf
            block = other >> np.uint64(shift)
            if density >= top[block] and (density > top[block] or other < top_query[block]):
                top[block], top_query[block] = density, other
    return paid


def look(
    worth: Floats, left: Floats, top: Floats, top_query: Ints, shift: int, block: int, room: float
) -> None:
    """Look through a block for its densest query that fits, the first of equals.

    The quotient decides, rounded as Python rounds it; a product tells first whether it is worth taking."""
    best, best_query = NOTHING, -1
    begin = np.uint64(block) << np.uint64(shift)
    end = min(begin + (np.uint64(1) << np.uint64(shift)), np.uint64(len(worth)))
    for query in range(begin, end):
        if worth[query] >= best * left[query, SHARE] * ALMOST:
            if left[query, COST] > room:
                left[query, SHARE] = np.inf
                continue
            density = worth[query] / left[query, SHARE] if left[query, SHARE] > 0.0 else np.inf
            if density > best:
                best, best_query = density, query
                if best == np.inf:
                    break
    top[block], top_query[block] = best, best_query


def densest(worth: Floats, left: Floats, top: Floats, top_query: Ints, shift: int, room: float) -> int:
    """Lines 24-26: the densest query that fits, the first of equals, or -1."""
    while True:
        block, most = 0, top[0]
        for at in range(1, len(top)):
            if top[at] > most:
                block, most = at, top[at]
        query = top_query[block]
        if most <= NOTHING:
            return -1
        if left[query, COST] <= room:
            return query  # type: ignore[no-any-return]
        look(worth, left, top, top_query, shift, block, room)


def known(seen: Ints, name: int) -> bool:
    """Whether the set of this name was seen before; it is from now on."""
    at = np.uint64(name) & np.uint64(len(seen) - 1)
    if seen[at] == name:
        return True
    seen[at] = name
    return False


def extend(cover: Cover, shares: Floats, them: Candidates, first: int, second: int, room: float) -> int:
    """Lines 20-31 for a pair, or a single where both are equal, from what row 1 holds of `first` and `room` beside
    that; looks made. Records the candidate if it is the best. Tables are taken out once: each time costs more than
    a look."""
    worth, left, covered, shift = them.worth, them.left[1], them.covered[1], them.now[SHIFT]
    top, top_query, chosen, names, seen = them.top[1], them.top_query[1], them.chosen, them.names, them.seen
    chosen[0] = first
    size, name, value = 1, names[first], worth[first]
    query = second if second != first else -1
    looks = 0
    while True:
        if query >= 0:
            room -= restore(cover, shares, worth, left, covered, top, top_query, shift, query)
            look(worth, left, top, top_query, shift, query >> shift, room)
            chosen[size] = query
            size, name, value = size + 1, name ^ names[query], value + worth[query]
        if known(seen, name):
            return looks
        looks += LOOKS_A_STEP
        query = densest(worth, left, top, top_query, shift, room)
        if query < 0:
            break
    if value > them.now[BEST]:  # line 32; the first of equals stays
        them.now[BEST] = value
        them.best[:] = False
        for at in range(size):
            them.best[chosen[at]] = True
    return looks


def advance(cover: Cover, shares: Floats, them: Candidates, capacity: int, work: int) -> bool:
    """Extend candidates until about `work` looks are made; True when all are done."""
    queries = len(cover.worth)
    while work > 0:
        first, second = them.now[FIRST], them.now[SECOND]
        if first == queries:
            return True
        room = capacity - them.alone[first, COST]
        if room >= 0:
            if them.now[HELD] != first:
                hold(cover, shares, them, first, room)
                work -= queries
            if first == second or them.left[0, second, COST] <= room:
                them.left[1] = them.left[0]
                them.covered[1] = them.covered[0]
                them.top[1] = them.top[0]
                them.top_query[1] = them.top_query[0]
                work -= queries + extend(cover, shares, them, first, second, room)
        work -= 1
        following(them, queries)
    return False


def hold(cover: Cover, shares: Floats, them: Candidates, first: int, room: float) -> None:
    """Let row 0 be what `first` alone restores, with `room` beside it."""
    left, top, top_query, shift = them.left[0], them.top[0], them.top_query[0], them.now[SHIFT]
    left[:] = them.alone
    them.covered[0] = False
    restore(cover, shares, them.worth, left, them.covered[0], top, top_query, shift, first)
    for block in range(len(top)):
        look(them.worth, left, top, top_query, shift, block, room)
    them.now[HELD] = first


def following(them: Candidates, queries: int) -> None:
    """Lines 9-19: all singles, written (m, m), then the pairs m < n in order; FIRST = queries at the end."""
    first, second = them.now[FIRST], them.now[SECOND]
    if not them.pairs[0]:
        first, second = first + 1, second + 1
        if first == queries:
            them.pairs[0] = True
            first, second = 0, 1
    elif second + 1 < queries:
        second += 1
    else:
        first, second = first + 1, first + 2
    them.now[FIRST] = first if second < queries else queries
    them.now[SECOND] = second


def rehearse(kernels: Mapping[str, Callable[..., object]]) -> None:
    """Call the kernels that Python calls, once, with all types as they will be."""
    cover = make_cover([2, 1], [1, 1], [[0], [0, 1]])
    shares = cover.price.astype(np.float64)
    kernels["advance"](cover, shares, make_candidates(cover, shares), 5, 1000)


COMPILED = ("restore", "look", "known", "densest", "extend", "hold", "following", "advance")
"""In the order in which they need each other."""

INLINED = ("restore", "look", "known", "densest")
"""Called a hundred times a candidate, where handing over the tables would cost as much as what they do."""

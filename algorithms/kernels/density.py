"""BestDensity's candidates (seed 003, Algorithm 3, lines 9-31), one after the other.

A candidate keeps for every query its residual cost and its residual share (the denominator of Definition 3);
restoring a partition takes its part off the queries that share it and touches no other. Three facts save
most of the work and change no answer:

- what a query lacks shrinks by no more than the room does, so a query that does not fit now never will, and
  is not looked at again;
- the densest of each small block of queries is remembered, and only blocks in which something has changed are
  looked through again;
- a candidate that comes to hold the same queries as an earlier one ends as that one did, and is given up. Sets
  are told apart by 62-bit names combined with exclusive or.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from algorithms.kernels.cover import Cover, Ints, make_cover

FIRST, SECOND, HELD, BEST, SHIFT = range(5)
"""Places in `Candidates.now`: the next candidate (a single where both are equal), the query that row 0 holds, the
value of the best so far, the bits of a block."""

Floats = npt.NDArray[np.float64]

SMALL_BLOCK, ONE_BLOCK = 3, 40
"""Queries whose numbers agree but for so many bits are a block. Where a query that is restored changes most of
the others, one block holds them all."""

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
    row 1 what the candidate does that is being extended. Per query: what it still costs, and its share of that
    (infinite: it was added or can never be). Per block of queries: the greatest density, the first query that
    has it, and whether that is out of date."""

    now: Ints
    pairs: npt.NDArray[np.bool_]
    worth: Floats
    cost: Ints
    share: Floats
    covered: npt.NDArray[np.bool_]
    names: Ints
    seen: Ints
    top: Floats
    top_query: Ints
    dirty: npt.NDArray[np.bool_]
    chosen: Ints
    best: npt.NDArray[np.bool_]
    cost_alone: Ints
    share_alone: Floats


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
        cost=np.zeros((2, queries), np.int64),
        share=np.zeros((2, queries)),
        covered=np.zeros((2, partitions), np.bool_),
        names=np.random.default_rng(0).integers(1, 2**62, queries).astype(np.int64),
        seen=np.zeros(min(MAX_SEEN, 1 << (8 * queries * queries).bit_length()), np.int64),
        top=np.zeros(blocks),
        top_query=np.zeros(blocks, np.int64),
        dirty=np.ones(blocks, np.bool_),
        chosen=np.zeros(queries, np.int64),
        best=np.zeros(queries, np.bool_),
        cost_alone=cover.alone(),
        share_alone=cover._replace(price=shares.astype(np.int64)).alone().astype(np.float64),
    )


def restore(cover: Cover, shares: Floats, them: Candidates, row: int, query: int) -> int:
    """Restore what `query` lacks and take it off those that share it; its price."""
    paid = np.int64(0)
    cost, share, covered = them.cost[row], them.share[row], them.covered[row]
    dirty, shift = them.dirty, them.now[SHIFT]
    share[query] = np.inf
    for at in range(cover.row_at[query], cover.row_at[query + 1]):
        k = cover.row[at]
        if covered[k]:
            continue
        covered[k] = True
        price, part = cover.price[k], shares[k]
        paid += price
        for to in range(cover.column_at[k], cover.column_at[k + 1]):
            other = cover.column[to]
            cost[other] -= price
            share[other] -= part
            dirty[other >> shift] = True
    dirty[query >> shift] = True
    return paid  # type: ignore[return-value]


def known(them: Candidates, name: int) -> bool:
    """Whether the set of this name was seen before; it is from now on."""
    at = name % len(them.seen)
    if them.seen[at] == name:
        return True
    them.seen[at] = name
    return False


def densest(them: Candidates, room: int) -> int:
    """Lines 24-26: the densest query that fits, the first of equals, or -1.

    The quotient decides, rounded as Python rounds it; a product tells first whether it is worth taking. All in
    one function, because handing the tables to another one costs more than what it would do."""
    worth, cost, share = them.worth, them.cost[1], them.share[1]
    top, top_query, dirty, shift = them.top, them.top_query, them.dirty, them.now[SHIFT]
    while True:
        block, most = -1, NOTHING
        for at in range(len(top)):
            if dirty[at]:
                dirty[at] = False
                best = NOTHING
                for query in range(at << shift, min((at + 1) << shift, len(worth))):
                    if worth[query] >= best * share[query] * ALMOST:
                        if cost[query] > room:
                            share[query] = np.inf
                            continue
                        density = worth[query] / share[query] if share[query] > 0.0 else np.inf
                        if density > best:
                            best, top_query[at] = density, query
                            if best == np.inf:
                                break
                top[at] = best
            if top[at] > most:
                block, most = at, top[at]
        if block < 0:
            return -1
        query = top_query[block]
        if cost[query] <= room:
            return query  # type: ignore[no-any-return]
        share[query] = np.inf
        dirty[block] = True


def extend(cover: Cover, shares: Floats, them: Candidates, first: int, second: int, room: int) -> int:
    """Lines 20-31 from what row 1 holds; looks made. Records the candidate if it is the best."""
    size, name, value = 1, them.names[first], cover.worth[first]
    them.chosen[0] = first
    if second != first:
        size, name, value = 2, name ^ them.names[second], value + cover.worth[second]
        them.chosen[1] = second
    looks = 0
    while not known(them, name):
        looks += LOOKS_A_STEP
        query = densest(them, room)
        if query < 0:
            break
        room -= restore(cover, shares, them, 1, query)
        them.chosen[size] = query
        size, name, value = size + 1, name ^ them.names[query], value + cover.worth[query]
    else:
        return looks
    if value > them.now[BEST]:  # line 32; the first of equals stays
        them.now[BEST] = value
        them.best[:] = False
        for at in range(size):
            them.best[them.chosen[at]] = True
    return looks


def advance(cover: Cover, shares: Floats, them: Candidates, capacity: int, work: int) -> bool:
    """Extend candidates until about `work` looks are made; True when all are done."""
    queries = len(cover.worth)
    while work > 0:
        first, second = them.now[FIRST], them.now[SECOND]
        if first == queries:
            return True
        room = capacity - them.cost_alone[first]
        if room >= 0:
            if them.now[HELD] != first:
                hold(cover, shares, them, first)
                work -= queries
            if them.cost[0, second] <= room:
                them.cost[1, :] = them.cost[0]
                them.share[1, :] = them.share[0]
                them.covered[1, :] = them.covered[0]
                them.dirty[:] = True
                room -= restore(cover, shares, them, 1, second)
                work -= queries + extend(cover, shares, them, first, second, room)
        work -= 1
        following(them, queries)
    return False


def hold(cover: Cover, shares: Floats, them: Candidates, first: int) -> None:
    """Let row 0 be what `first` alone restores."""
    them.cost[0, :] = them.cost_alone
    them.share[0, :] = them.share_alone
    them.covered[0, :] = False
    restore(cover, shares, them, 0, first)
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


COMPILED = ("restore", "known", "densest", "extend", "hold", "following", "advance")
"""In the order in which they need each other."""

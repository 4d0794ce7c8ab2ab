"""The cheapest way to each value (a Pareto frontier), and how the frontiers of two parts combine.

A frontier answers for all capacities at once. Parts of an instance that share no partition only compete for
capacity, so the frontier of the whole is the join of theirs.

Most frontiers that a coordinator meets have a few dozen entries, where lists are several times quicker than arrays:
what is short stays a list. The long ones of hundreds of queries are arrays; a join takes and gives either.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAX_JOIN = 30_000_000
"""Largest product of frontier lengths to join: about 0.1 s. Beyond it the integer programme is the better
choice."""

SHORT = 30
"""Length of the longer frontier up to which sorting all sums as tuples is quicker than a few calls of numpy for each entry
of the shorter."""

Ints = npt.NDArray[np.int64]
Row = list[int] | Ints
"""Integers that ascend strictly."""
Step = tuple[list[int], list[tuple["Frontier", int]]]


@dataclass(frozen=True, slots=True)
class Frontier:
    """`costs[i]` is the least cost of a value of at least `values[i]`; both ascend strictly and start at 0.
    `step(i)` gives queries of entry i and the entries of other frontiers that it is made of."""

    values: Row
    costs: Row
    step: Callable[[int], Step]
    parts: tuple[Frontier, ...] = ()
    """What it is made of; of a join the shorter first."""
    swapped: bool = False
    """Whether that is the second of the two that were joined."""

    def best(self, capacity: int) -> int:
        """Index of the most valuable entry within `capacity`."""
        return bisect_right(self.costs, capacity) - 1

    def holds(self, capacity: int) -> bool:
        """Whether, up to less capacity, it is entry by entry what joins with no more than that would have given. It
        is where in each join the same one is the shorter, as that decides between equal sums."""
        work = [self]
        while work:
            frontier = work.pop()
            work += frontier.parts
            if len(frontier.parts) == 2:
                small, large = (bisect_right(part.costs, capacity) for part in frontier.parts)
                if small + frontier.swapped > large:
                    return False
        return True

    def queries(self, index: int) -> list[int]:
        """The queries of an entry; a work list, because a chain of partitions may be deeper than Python's
        stack."""
        found: list[int] = []
        work: list[tuple[Frontier, int]] = [(self, index)]
        while work:
            frontier, at = work.pop()
            own, rest = frontier.step(at)
            found += own
            work += rest
        return sorted(found)


def _nothing(_: int) -> Step:
    return [], []


NOTHING = Frontier([0], [0], _nothing)


def join(first: Frontier, second: Frontier, capacity: int) -> Frontier | None:
    """All sums of an entry of one and an entry of the other, pruned to `capacity`, to which both are pruned; None when
    that is too much work. Of equal sums the one with least of the shorter frontier stands."""
    swapped = len(first.values) > len(second.values)
    small, large = (second, first) if swapped else (first, second)
    top = int(small.values[-1]) + int(large.values[-1])
    if max(top, len(small.values) * len(large.values)) > MAX_JOIN:
        return None
    if len(small.values) == 1:
        return large
    sums = short_sums if len(large.values) <= SHORT else long_sums
    values, costs, part = sums(small, large, capacity)

    def step(index: int) -> Step:
        i = int(part[index])
        return [], [(small, i), (large, bisect_left(large.values, values[index] - small.values[i]))]

    return Frontier(values, costs, step, (small, large), swapped)


def short_sums(small: Frontier, large: Frontier, capacity: int) -> tuple[Row, Row, Row]:
    """Values, costs and the entries of `small` of the joined frontier, by sorting all sums."""
    more = list(zip(_plain(large.values), _plain(large.costs), strict=True))
    sums = sorted(
        [
            (-value - added, cost + price, i)
            for i, (value, cost) in enumerate(zip(_plain(small.values), _plain(small.costs), strict=True))
            for added, price in more
        ]
    )
    values, costs, part = [], [], []
    least = capacity + 1
    for negative, cost, i in sums:  # most value first, then least cost
        if cost < least:
            least = cost
            values.append(-negative)
            costs.append(cost)
            part.append(i)
    return values[::-1], costs[::-1], part[::-1]


def long_sums(small: Frontier, large: Frontier, capacity: int) -> tuple[Row, Row, Row]:
    """The same over a table of all values."""
    values, added = np.asarray(large.values), np.asarray(large.costs)
    top = int(small.values[-1] + values[-1])
    costs = np.full(top + 1, capacity + 1, np.int64)
    part = np.zeros(top + 1, np.int32)
    for i, (value, cost) in enumerate(zip(_plain(small.values), _plain(small.costs), strict=True)):
        at = values + value
        better = added + cost < costs[at]
        costs[at[better]] = added[better] + cost
        part[at[better]] = i
    kept, least = pareto(np.arange(top + 1), costs, capacity)
    return kept, least, part[kept].astype(np.int64)


def pareto(values: Ints, costs: Ints, capacity: int) -> tuple[Ints, Ints]:
    """Entries within capacity that no entry of at least their value undercuts. `values` ascend."""
    least_above = np.minimum.accumulate(costs[::-1])[::-1]
    keep = (costs <= capacity) & (costs == least_above)
    keep[:-1] &= costs[:-1] < least_above[1:]
    return values[keep], costs[keep]


def paid(below: Frontier, cost: int, own: list[int], worth: int, capacity: int) -> Frontier:
    """Pay a partition: its own queries, `worth` together, come with it and the frontier `below` opens. Or pay
    nothing."""
    start = 0 if worth else 1  # paying for nothing is not on the frontier
    end = bisect_right(below.costs, capacity - cost)
    return Frontier(
        _after_nothing(below.values[start:end], worth),
        _after_nothing(below.costs[start:end], cost),
        lambda i: (own, [(below, start + i - 1)]) if i else ([], []),
        (below,),
    )


def _after_nothing(row: Row, more: int) -> Row:
    if isinstance(row, list):
        return [0, *[number + more for number in row]]
    return np.concatenate(([0], row + more))


def _plain(row: Row) -> list[int]:
    return row if isinstance(row, list) else row.tolist()

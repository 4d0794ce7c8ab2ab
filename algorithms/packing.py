"""Plans that fit node by node: partitions are indivisible, so room in sum is not yet room.

Su and Zhou put each partition on the node with most free capacity (end of their section 5). That spreads
load well and strands room: two nodes with 5 free take 3, 3 but then no 4. So the rule of Su and Zhou goes first, and
where it fails best-fit and an exact search with a step limit try; a set of partitions is called unpackable
only by the last.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Sequence

import numpy as np

from reprise.algorithms import compiled
from reprise.algorithms.kernels import bins

SEARCH_STEPS = 20_000
"""Placements tried by the exact search before it gives up: far below a millisecond compiled, about 20 ms
interpreted. More packs rarely better and always later."""

Placement = dict[int, int]


def pack(costs: Sequence[tuple[int, int]], free: Sequence[int], search: bool = True) -> Placement | None:
    """A node index for each (partition, cost), or None when no way was found. `free` is indexed by node;
    without `search` only the two greedy rules are tried."""
    if sum([cost for _, cost in costs]) > sum(free):
        return None
    order = sorted(costs, key=lambda entry: (-entry[1], entry[0]))
    if order and order[0][1] > max(free, default=0):
        return None
    placement = most_free(order, list(free)) or _best_fit(order, free)
    if placement is None and search:
        placement = _search(order, list(free))
    return placement


def most_free(order: Sequence[tuple[int, int]], free: list[int]) -> Placement | None:
    """Su and Zhou's rule, in the order given; what is placed is taken off `free`."""
    placement: Placement = {}
    heap = [(-room, node) for node, room in enumerate(free)]
    heapq.heapify(heap)
    for partition, cost in order:
        if not heap or -heap[0][0] < cost:
            return None
        room, node = heap[0]
        heapq.heapreplace(heap, (room + cost, node))
        free[node] -= cost
        placement[partition] = node
    return placement


def _best_fit(order: Sequence[tuple[int, int]], free: Sequence[int]) -> Placement | None:
    """Onto the node that it fills best."""
    placement: Placement = {}
    rooms = sorted((room, node) for node, room in enumerate(free))
    for partition, cost in order:
        at = bisect.bisect_left(rooms, (cost, -1))
        if at == len(rooms):
            return None
        room, node = rooms.pop(at)
        bisect.insort(rooms, (room - cost, node))
        placement[partition] = node
    return placement


def _search(order: list[tuple[int, int]], free: list[int]) -> Placement | None:
    """Complete unless SEARCH_STEPS run out."""
    if not order:
        return {}
    cost = [entry[1] for entry in order]
    kernel: Callable[..., bool] | None = compiled.place.compiled
    chosen: Sequence[int]
    if kernel is None:
        chosen = [0] * len(cost)
        found = bins.place(cost, free, chosen, [0] * len(cost), SEARCH_STEPS)
    else:
        wide = np.array(cost, np.int64)
        scratch = np.zeros_like(wide)
        found = kernel(wide, np.array(free, np.int64), scratch, np.zeros_like(wide), SEARCH_STEPS)
        chosen = scratch.tolist()
    return {partition: node for (partition, _), node in zip(order, chosen, strict=True)} if found else None

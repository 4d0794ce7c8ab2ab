"""Placements without a planner: of everything, spread evenly, or of as much as there is room for.

Worst fit in topological order: each partition goes to the node with most free capacity, the partitions of one
operator one after the other, so that neither an operator nor a query sits on one node. No planner is needed
where everything fits, or where it makes no difference what is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def spread(
    partitions: Iterable[str], costs: Mapping[str, int], free: Mapping[str, int]
) -> dict[str, str] | None:
    """A node for each partition, or None where this way one finds no room. Of nodes with equal room the one
    with fewest partitions comes first, then the first of `free`."""
    room = dict(free)
    rank = {node: k for k, node in enumerate(free)}
    count = dict.fromkeys(free, 0)
    placed: dict[str, str] = {}
    for partition in partitions:
        node = max(room, key=lambda n: (room[n], -count[n], -rank[n]), default=None)
        if node is None or room[node] < costs[partition]:
            return None
        room[node] -= costs[partition]
        count[node] += 1
        placed[partition] = node
    return placed


def fill(partitions: Iterable[str], costs: Mapping[str, int], free: Mapping[str, int]) -> dict[str, str]:
    """A node for as many partitions as find room in this order, each on the one with most of it."""
    room = dict(free)
    placed: dict[str, str] = {}
    for partition in partitions:
        one = spread([partition], costs, room)
        if one:
            placed |= one
            room[one[partition]] -= costs[partition]
    return placed

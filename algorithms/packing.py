"""Plans that fit node by node: partitions are indivisible, so room in sum is not yet room.

The paper puts each partition on the node with most free capacity (seed 003, end of section 5). That spreads
load well and strands room: two nodes with 5 free take 3, 3 but then no 4. So the paper's rule goes first, and
where it fails best-fit and an exact search with a step limit try; a set of partitions is called unpackable
only by the last.
"""

from __future__ import annotations

from collections.abc import Sequence

SEARCH_STEPS = 20_000
"""Placements tried by the exact search before it gives up: about 20 ms. More packs rarely better and always
later."""

Placement = dict[int, int]


def pack(costs: Sequence[tuple[int, int]], free: Sequence[int]) -> Placement | None:
    """A node index for each (partition, cost), or None when no way was found. `free` is indexed by node."""
    if sum(cost for _, cost in costs) > sum(free):
        return None
    order = sorted(costs, key=lambda entry: (-entry[1], entry[0]))
    if order and order[0][1] > max(free, default=0):
        return None
    for most_free in (True, False):
        placement = _greedy(order, list(free), most_free)
        if placement is not None:
            return placement
    return _search(order, list(free))


def _greedy(order: list[tuple[int, int]], free: list[int], most_free: bool) -> Placement | None:
    """Largest first, onto the node with most free capacity (the paper's rule) or the tightest that fits (best
    fit)."""
    placement: Placement = {}
    for partition, cost in order:
        fitting = [n for n, room in enumerate(free) if room >= cost]
        if not fitting:
            return None
        node = (
            max(fitting, key=lambda n: (free[n], -n))
            if most_free
            else min(fitting, key=lambda n: (free[n], n))
        )
        placement[partition] = node
        free[node] -= cost
    return placement


def _search(order: list[tuple[int, int]], free: list[int]) -> Placement | None:
    """Depth first, tightest node first; equal rooms are tried once. Complete unless SEARCH_STEPS run out."""
    placement: list[int] = []
    options = [_options(order[0][1], free)] if order else []
    steps = 0
    while options:
        depth = len(placement)
        if depth == len(order):
            return {partition: node for (partition, _), node in zip(order, placement, strict=True)}
        steps += 1
        if steps > SEARCH_STEPS:
            return None
        if options[depth]:
            node = options[depth].pop()
            placement.append(node)
            free[node] -= order[depth][1]
            options.append(_options(order[depth + 1][1], free) if depth + 1 < len(order) else [])
        else:
            options.pop()
            if placement:
                free[placement[-1]] += order[len(placement) - 1][1]
                placement.pop()
    return None if order else {}


def _options(cost: int, free: list[int]) -> list[int]:
    """Nodes with room, last to try first; of nodes with equal room only the first."""
    by_room = {room: node for node, room in sorted(enumerate(free), reverse=True) if room >= cost}
    return [by_room[room] for room in sorted(by_room, reverse=True)]

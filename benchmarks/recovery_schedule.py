"""The faults of one benchmark run: which nodes are lost, and when new ones arrive.

Every strategy of a seed gets the same schedule.  Arrivals are those of Su and Zhou, section 7.1: each new node is asked
for at once and takes two to six minutes, evenly drawn (its fig. 7), here `speedup` times as fast.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

ACQUIRE_S = (120.0, 360.0)
"""Least and greatest time to get a node: Su and Zhou, fig. 7."""
OUTPUTS = tuple(f"o{i}" for i in range(15))
"""Operators O0..O14 of Topology 2 in topological order."""
ALL = ("source", "parser", *OUTPUTS)
"""The first partitions get a node each (`reprise.scheduler.placement`), so a name here stands for a node that works:
nodes named by number could be standby nodes in the best case."""
ORDERS = ("nodes", "topological", "reverse")
"""Which nodes are lost: all but those of source, parser, ... (fig. 12), of O0, O1, ... or O14, O13, ... (fig. 15)."""


def arrivals(seed: int, count: int, speedup: float) -> list[float]:
    """Seconds from the loss until each of `count` nodes is asked for, rising; a function of the seed alone."""
    draw = random.Random(f"arrivals/{seed}")
    return sorted(round(draw.uniform(*ACQUIRE_S) / speedup, 2) for _ in range(count))


def lost(order: str, nodes: int, kill: int) -> list[str]:
    """Targets of the kill: the nodes that host certain operators.  ValueError for an unknown order."""
    match order:
        case "nodes":
            return [f"@{name}" for name in ALL[nodes - kill : nodes]]
        case "topological":
            return [f"@{name}" for name in OUTPUTS[:kill]]
        case "reverse":
            return [f"@{name}" for name in OUTPUTS[::-1][:kill]]
    raise ValueError(f"order {order!r} is none of {', '.join(ORDERS)}")


def schedule(targets: Sequence[str], gaps: Sequence[float], delay_s: float = 3.0) -> list[dict[str, Any]]:
    """As a fault file: the loss `delay_s` after the first global checkpoint, then one node after the other."""
    burst = {"on": "checkpoint", "delay": delay_s, "kill": list(targets), "name": "burst"}
    return [burst, *({"after": "burst", "delay": gap, "add": 1} for gap in gaps)]

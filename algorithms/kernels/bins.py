"""The exact search for a packing: depth first, tightest node first, equal rooms tried once.

No list of options is kept for a depth: the room there is the same whenever the search comes back to it, so the next option
is the smallest room above the one that was tried last.  Works on lists as well, which are what is quick without a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence

import numpy as np


def place(
    cost: Sequence[int], free: MutableSequence[int], chosen: MutableSequence[int],
    tried: MutableSequence[int], steps: int,
) -> bool:  # fmt: skip
    """Whether a node was found for each cost within `steps` placements and withdrawals; then `chosen` has them.

    `cost`, at least one, descending; `free` room by node, which is changed.  `chosen` and `tried` are scratch, as long as
    `cost`.  False: there is no packing, or the steps ran out."""
    depth = 0
    tried[0] = -1
    for _ in range(steps):
        best, node = -1, -1
        for k in range(len(free)):
            room = free[k]
            if room >= cost[depth] and room > tried[depth] and (node < 0 or room < best):
                best, node = room, k
        if node >= 0:
            tried[depth], chosen[depth] = best, node
            free[node] -= cost[depth]
            depth += 1
            if depth == len(cost):
                return True
            tried[depth] = -1
        elif depth == 0:
            return False
        else:
            depth -= 1
            free[chosen[depth]] += cost[depth]
    return False


def rehearse(kernels: Mapping[str, Callable[..., object]]) -> None:
    """Call the kernel that Python calls, once, with all types as they will be."""
    two = np.array([2, 1])
    kernels["place"](two, np.array([3]), np.zeros_like(two), np.zeros_like(two), 9)


COMPILED = ("place",)

INLINED = ()

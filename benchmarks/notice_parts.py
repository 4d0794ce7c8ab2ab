"""The stateful operators of Topology 2 with states of a given size, for `benchmarks.notice --state-mb`.

Problem: their states are so small that any notice is long enough to move all of them.  These give the same rows; what is
stored, sent and read with each state is larger by so many MiB that nothing makes smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.contract import Operator, Place, Tables
from reprise.operators import Latest, SlidingWindow

BALLAST = "ballast"
"""The table of what makes a state larger."""


class _Heavy(Operator):
    """What both share.  `megabytes`: MiB of random bytes, the same ones in each state."""

    def __init__(self, *, megabytes: int, **parameters: Any) -> None:
        super().__init__(**parameters)
        dice = np.random.default_rng(1)
        self._ballast = pa.table({"bytes": [dice.bytes(2**20) for _ in range(megabytes)]})

    def freeze(self, state: Any) -> Callable[[], Tables]:
        encode, ballast = super().freeze(state), self._ballast
        return lambda: {**encode(), BALLAST: ballast}

    def restore(self, place: Place, tables: Tables) -> Any:
        self._ballast = tables[BALLAST]
        return super().restore(place, {name: table for name, table in tables.items() if name != BALLAST})


class HeavyWindow(_Heavy, SlidingWindow):
    """A SlidingWindow whose state weighs that much more."""


class HeavyLatest(_Heavy, Latest):
    """A Latest whose state weighs that much more."""


HEAVY: dict[type[Operator], type[Operator]] = {SlidingWindow: HeavyWindow, Latest: HeavyLatest}
"""What takes the place of a class of the library."""

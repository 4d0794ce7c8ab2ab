"""The interpreter, set for a process of dozens of threads that keeps hundreds of megabytes and must answer within a second.

Figures: docs/kubernetes.md, `make bench-operator`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import time
from collections.abc import Callable

TURN_S = 0.003
"""Longest turn of a thread while others wait.  A request to ZooKeeper is two changes of threads, which long turns delay;
short ones cost more changes."""
M_ARENA_MAX = -8
"""Of glibc's mallopt."""
ARENAS = 2
ASIDE_S = 20.0
"""What was made in that time and is still there will stay for long."""
ALL_S = 1800.0


def set_up() -> None:
    """Once, before there are threads.

    Few heaps: what dozens of threads parse and drop leaves holes in every heap that it came from.  Where the C library knows
    no such thing, memory is a matter of that library.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
    sys.setswitchinterval(TURN_S)


class Garbage:
    """Keeps full collections short: with the records of a thousand topologies each stops all threads for half a second,
    every few seconds.  What has survived for a while is set aside and not looked at again for half an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._aside = self._all = clock()

    def tidy(self) -> None:
        """Call it now and then while nothing is urgent."""
        now = self._clock()
        if now - self._aside < ASIDE_S:
            return
        self._aside = now
        if now - self._all >= ALL_S:
            self._all = now
            gc.unfreeze()
        gc.collect()
        gc.freeze()

"""No more than so many writes a second: a bucket of tokens that all threads share.

Writes are coalesced by their nature: a step writes what is true when its turn comes, not what was true when it queued.
So a thread that waits here holds no old data; it is its caller's duty to look after the wait, not before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class WriteBudget:
    """`rate` tokens a second, at most a second's worth saved up."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._lock = threading.Lock()
        self._tokens, self._at = rate, clock()
        self.taken = 0

    def take(self) -> None:
        """Wait for a token and take it; first come, first served."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._rate, self._tokens + (now - self._at) * self._rate)
            self._at = now
            self._tokens -= 1
            self.taken += 1
            wait = -self._tokens / self._rate
        if wait > 0:
            self._sleep(wait)

"""What a store has given in the last transfers of states: bytes a second of one, and of all together.

A node measures how long each of its states took to be read and decoded (`Usage.load_s`), and how much of it the store gave:
what was on the node's own disk is no transfer.  Of short ones the greatest part is waiting for an answer, so those say no
more than how fast they were at least; and where all are short, nothing needs to be known.

Invariants: whatever was measured, each answer is within bounds in which a driver works; and no reading counts for longer
than the next `KEPT` transfers, whether these are short or not.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

KEPT = 32
LEAST_S = 0.5
"""A transfer that took less tells no rate, but that it was at least as fast as one that takes so long."""
SLOW = 4.0
"""One that is slower than the middle one by more than this factor has hung, and tells nothing of all together."""
LEAST_BYTES, MOST_BYTES = 1 << 20, 1 << 30
"""Of what is given in a part of a second."""
PATIENCE_S = 30.0
"""Nothing that is fetched is given up, as a store hangs, before this time."""
MOST_PATIENCE_S = 600.0
"""And everything at this time."""
SLOWEST = 16 << 20
"""Bytes a second of one transfer, as long as none was measured."""
MARGIN = 2.0
"""A transfer may take so many times as long as those before it."""


@dataclass(frozen=True, slots=True)
class _Transfer:
    size: int
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def rate(self) -> float:
        """Bytes a second; of a short one, what it had at least."""
        return self.size / max(self.seconds, LEAST_S)


@dataclass(slots=True)
class Capacity:
    """The last transfers of one driver.  Times are of a monotonic clock, seconds; sizes are bytes."""

    _last: deque[_Transfer] = field(default_factory=lambda: deque(maxlen=KEPT))

    def measured(self, size: int, seconds: float, now: float) -> None:
        """A state was there after so many seconds, of which the store gave `size` bytes."""
        if size > 0:
            self._last.append(_Transfer(size, now - seconds, now))

    @property
    def _telling(self) -> list[_Transfer]:
        """Those that tell a rate: the ones that took a while, and short ones that were faster than the middle of these."""
        long = [one for one in self._last if one.seconds >= LEAST_S]
        if not long:
            return []
        rate = median(one.rate for one in long)
        return long + [one for one in self._last if one.seconds < LEAST_S and one.rate > rate]

    @property
    def of_one(self) -> float | None:
        """Bytes a second of one transfer beside those that went with it, of the middle one; None: not measured."""
        found = self._telling
        return median(one.rate for one in found) if found else None

    @property
    def of_all(self) -> float | None:
        """Bytes a second of all together, over the time in which there were any; None: not measured."""
        rate = self.of_one
        if rate is None:
            return None
        found = [one for one in self._telling if one.rate * SLOW >= rate]
        busy, until = 0.0, float("-inf")
        for one in sorted(found, key=lambda t: t.began):
            ended = one.began + max(one.seconds, LEAST_S)
            busy += max(0.0, ended - max(one.began, until))
            until = max(until, ended)
        return sum(one.size for one in found) / busy

    def bytes_in(self, seconds: float, assumed: int) -> int:
        """What the store gives in a part of a second; `assumed`, as long as nothing was measured."""
        rate = self.of_all
        return assumed if rate is None else int(min(max(rate * seconds, LEAST_BYTES), MOST_BYTES))

    def patience(self, size: int) -> float:
        """Seconds that so many bytes may take, of one state or of several that a node reads one after the other; what takes
        longer hangs."""
        rate = self.of_one
        seconds = size / SLOWEST if rate is None else MARGIN * size / rate
        return min(max(PATIENCE_S, seconds), MOST_PATIENCE_S)

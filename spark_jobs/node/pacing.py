"""When the sources of a node begin batches that were released before they were due.

Orders give the due time in seconds from their making, as the clocks of two machines differ.  An order is under way for an
unknown time, so the estimate is the earliest due time of all orders.  Only the moment of reading depends on it: a host that
begins early or late gives the same rows.  docs/decisions/0085-rounds-without-jobs.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from reprise.spark_jobs.node.command import Due

DRIFT = 1e-3
"""Seconds per second by which the estimate may grow: clocks of two machines drift apart less than that."""


@dataclass(slots=True)
class Pacing:
    """The estimate of one host.  Times are seconds of a clock that only grows."""

    _interval_s: float = 0.0
    """0: batches are begun as soon as they are released."""
    _zero: float = math.inf
    """When batch 0 would have been due."""
    _told: float = 0.0
    """When the last orders came."""
    _epoch: int = 0

    def told(self, due: Due | None, epoch: int, now: float) -> None:
        """Take in orders of a driver; `due` None: batches begin when they are released."""
        interval_s = due.interval_s if due is not None else 0.0
        if (epoch, interval_s) != (self._epoch, self._interval_s):
            self._epoch, self._interval_s, self._zero = epoch, interval_s, math.inf
        if due is not None:
            late = self._zero + DRIFT * (now - self._told)
            self._zero = min(late, now + due.in_s - due.batch * due.interval_s)
        self._told = now

    def due_in(self, batch: int, now: float) -> float:
        """Seconds until a batch is due; none or less: it is."""
        return self._zero + batch * self._interval_s - now if self._interval_s else 0.0

"""When the sources of a node begin batches that were released before they were due.

The driver tells each host with its orders when a batch is due, in seconds from then, and not by the clock of a machine:
those of two machines differ.  Orders take a while to come, so the earliest moment that any of them gives is the best guess.

Nothing rests on it but when rows are read: a host that begins too early or too late gives the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from reprise.spark_jobs.node.command import Due

DRIFT = 1e-3
"""Seconds per second by which a guess is let go: clocks of two machines drift apart less than that."""


@dataclass(slots=True)
class Pacing:
    """The guess of one host.  Times are seconds of a clock that only grows."""

    _interval_s: float = 0.0
    """0: batches are begun as soon as they are released."""
    _zero: float = math.inf
    """When batch 0 would have been due."""
    _told: float = 0.0
    """When orders came last."""
    _epoch: int = 0

    def told(self, due: Due | None, epoch: int, now: float) -> None:
        """Orders of a driver have come; None: it does not say when batches are due."""
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

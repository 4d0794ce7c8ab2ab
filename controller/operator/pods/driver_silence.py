"""How long a driver has been silent, by what one operator has seen itself.

A driver reports at least every 2 s, also while a job hangs, from a thread of its own.  A process that is stopped, or whose
machine is gone, does not, whatever Kubernetes says of its pod.  The time inside of a report is of another machine's clock,
so it is not believed: a report is new when ZooKeeper has given it another transaction number.

Invariants.  Only time between two looks that both had an answer of ZooKeeper counts: while it is away, everybody is silent.
A gap between two looks counts for at most a part of the limit, as an operator that was stopped itself has not seen what it
missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_LOOKS = 4
"""Silence is seen by at least so many looks."""


@dataclass(slots=True)
class DriverSilence:
    """How long the drivers of one topology are silent; `limit_s` is the silence after which one is given up."""

    limit_s: float
    clock: Callable[[], float] = time.monotonic
    silent_s: float = 0.0
    """For how long the report has not been replaced while ZooKeeper answered."""
    reported: bool = False
    """Whether the present driver has replaced a report since it was seen first."""
    _uid: str = ""
    _report: int | None = None
    _looked: float | None = None

    def follow(self, uid: str) -> None:
        """The pod with this uid is the driver now; what another one has left unsaid does not count against it."""
        if uid != self._uid:
            self._uid, self.silent_s, self.reported = uid, 0.0, False

    def heard(self, report: int | None) -> None:
        """A look at the report: the number of the transaction that wrote it, 0 where there is none; None where ZooKeeper
        did not answer."""
        now = self.clock()
        if report is None:
            self._report = self._looked = None
            self.silent_s = 0.0
            return
        if report != self._report or self._looked is None:
            self.reported = self.reported or (self._report is not None and bool(report))
            self.silent_s = 0.0
        else:
            self.silent_s += min(now - self._looked, self.limit_s / _LOOKS)
        self._report, self._looked = report, now

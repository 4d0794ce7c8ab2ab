"""Whether the loop of a driver that reports goes on, by what one observer has seen itself.

A driver reports from a thread of its own, so that a job that hangs does not look like a driver that is gone.  A loop that
hangs for good, in a library's lock or in a store's client that waits without an end, therefore looks well.  So each report
says how many turns the loop has begun, and within how long it must begin another: a job is cancelled after a minute, however
long its work takes, and a step of user code that never returns ends its job sooner than that.

Invariants.  Only time between two new reports of one driver counts: a silent driver is another matter, and while
ZooKeeper is away everybody is silent.  A gap between two counts for at most a part of the limit, as an observer that was
stopped itself has not seen what it missed.  A driver that does not say within how long (an earlier version) is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprise.scheduler.model import Progress

_REPORTS = 8
"""A loop that stands is seen by at least so many reports."""


@dataclass(slots=True)
class LoopWatch:
    """Watches the loops of one topology's drivers, one after another."""

    stood_s: float = 0.0
    """For how long reports have come and the loop has begun no other turn."""
    limit_s: float = 0.0
    """Within how long it must, as it says itself; 0: it does not say."""
    _turn: tuple[str, int] | None = None
    """The driver and its newest turn."""
    _uid: str = ""
    _report: int = 0
    _heard: float = 0.0

    def follow(self, uid: str) -> None:
        """The process with this name is the driver now; a report that another one has left does not count against it."""
        if uid != self._uid:
            self._uid, self._turn, self.stood_s, self.limit_s = uid, None, 0.0, 0.0

    def heard(self, now: float, progress: Progress | None, report: int = 0) -> None:
        """A look at the report that a transaction of this number wrote, at `now` by a clock that only grows.
        `progress` None: no report can be read, so nothing is known of the time before."""
        if progress is not None and report == self._report:
            return
        since = self._heard
        self._report, self._heard = report, now
        turn = None if progress is None else (progress.driver, progress.turns)
        if progress is None or turn != self._turn:
            self._turn, self.stood_s = turn, 0.0
            self.limit_s = progress.turn_limit_s if progress else 0.0
        elif self.limit_s > 0:
            self.stood_s += min(now - since, self.limit_s / _REPORTS)

    @property
    def hung(self) -> bool:
        """Whether it is not to be expected to go on by itself."""
        return 0 < self.limit_s < self.stood_s

    def describe(self) -> str:
        """Say it in words, with the seconds."""
        stood = f"it reports, and its loop has begun no turn for {self.stood_s:.0f} s"
        return f"{stood}; one takes {self.limit_s:.0f} s at most"

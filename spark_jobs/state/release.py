"""When batches become due: the clock of the stream.

Batch 1 is due when the topology stood for the first time, and each further batch one interval after the one before; which
interval holds from which batch on is kept beside the ledger (`Anchor`).  `clock.json` is created once, when the clock
starts; each driver that finds it started writes down at its beginning what holds for it, under the name of its epoch
(`clock/<epoch>.json`), and the newest epoch counts.  So one that was frozen there changes nothing beside its successor.

A driver that restarts, or a cluster that was down,
finds the batches that came due meanwhile, as a live stream would.  With an interval of 0 batches are due as soon as the
topology can take them (throughput measurements).

Clocks of machines differ and are set.  So a driver asks its machine's clock once, when it begins, and measures from there
with a clock that nobody sets.  One that begins on a machine whose clock is behind the stream's goes on from its checkpoint
at the stream's pace, and says so, instead of waiting for the difference.

What is due is not released at once where much is due: `pace` lets the stream go on as fast as its clock, and catch up as
fast as the slowest partition applies what there is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from math import floor
from typing import NamedTuple

from reprise.spark_jobs.state.driver_records import DriverRecords
from reprise.spark_jobs.storage.files import Files

CLOCK = "clock.json"
CLOCKS = "clock"
"""Folder of what drivers have begun with."""
SET_S = 5.0
"""A machine's clock that is off by so much since the last time that it was said has been set."""


class Anchor(NamedTuple):
    """Batches are `interval` seconds apart from `batch` on, which is due at `time` (unix seconds)."""

    batch: int
    time: float
    interval: float


class Release:
    """The clock of one stream.  `interval_s`: seconds between batches; `ahead`: batches in flight where it is 0.  `wall`,
    `elapsed`: the machine's clock, unix seconds, and one that only grows.  `epoch`: of the driver."""

    def __init__(
        self,
        location: str,
        interval_s: float,
        ahead: int = 32,
        wall: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
        *,
        epoch: int,
    ) -> None:
        self.interval_s = interval_s
        self.ahead = ahead
        self._wall, self._elapsed = wall, elapsed
        self._files, self._epoch = Files(location), epoch
        self._written = DriverRecords(self._files, CLOCKS)
        self.anchors = self._read()
        self._from = self._began = wall()
        self._since, self._off = elapsed(), 0.0
        self._pace, self._paced = 0.0, 0.0
        self._first = 1
        """The batch that is due when the clock starts."""

    def _read(self) -> list[Anchor]:
        """The anchors of the newest driver that wrote them down; a file of an earlier version may hold the beginning
        alone."""

        def parsed(data: bytes) -> list[Anchor]:
            found = json.loads(data)
            if "anchors" not in found:
                return [Anchor(1, float(found["started"]), self.interval_s)]
            return [Anchor(int(b), float(t), float(i)) for b, t, i in found["anchors"]]

        return self._written.newest(parsed, CLOCK) or []

    @property
    def started(self) -> float | None:
        """When the first batch was due, unix seconds: batch 1, or the one behind the savepoint where it goes on from one."""
        return self.anchors[0].time if self.anchors else None

    def begin(self, newest: int, window: int) -> list[str]:
        """A driver begins after the checkpoint `newest`, and batches after it follow `interval_s`; returns what a person
        should know.  StoreError: what holds now cannot be written down; nothing has begun."""
        self._first = newest + 1
        self._adopt(newest)
        wall = self._wall()
        self._from = self._began = wall
        self._since, self._off = self._elapsed(), 0.0
        if not self.anchors or self.interval_s <= 0:
            return []
        if (behind := self.at(newest) - wall) > 0:
            self._from = self.at(newest)
            return [
                f"this machine's clock is {behind:.0f} s behind the stream's: batches go on after checkpoint {newest} "
                "at their pace, and their times lie ahead of the clock"
            ]
        missed = self.due(wall, newest) - newest
        if missed > window:
            return [
                f"{missed} batches came due after checkpoint {newest}: they are released {window} at a time"
            ]
        return []

    def _adopt(self, newest: int) -> None:
        """Write down what holds for this driver, changed or not: else what an earlier one writes late would count."""
        if not self.anchors:
            return
        last, anchors = self.anchors[-1], self.anchors
        if last.interval != self.interval_s:
            begins = self.at(newest + 1) if last.interval > 0 else self._wall()
            kept = [anchor for anchor in anchors if anchor.batch <= newest]
            anchors = [*kept, Anchor(newest + 1, begins, self.interval_s)]
        self._written.write(self._epoch, _encoded(anchors))
        self.anchors = anchors
        self._written.forget_before(self._epoch)

    def start(self, now: float) -> None:
        """Let the first batch be due now (unix seconds), unless the clock was started before, by whomever.  StoreError: it
        cannot be written; the clock stands still until it is."""
        if not self.anchors:
            self._files.create(CLOCK, _encoded([Anchor(self._first, now, self.interval_s)]))
            self.anchors = self._read()

    def now(self) -> float:
        """The stream's time, unix seconds: never set, forward or back, while a driver lives."""
        return self._from + self._elapsed() - self._since

    def was_set(self) -> str:
        """What to say when the machine's clock has been set since the driver began, or since it was said; else empty."""
        off = self._wall() - (self._began + self._elapsed() - self._since)
        if abs(off - self._off) < SET_S:
            return ""
        moved, self._off = off - self._off, off
        return f"this machine's clock was set by {moved:+.0f} s: batches stay at the stream's pace"

    def due(self, now: float, slowest: int) -> int:
        """The last batch that is due; `slowest` is the least position."""
        if not self.anchors:
            return 0
        if self.interval_s <= 0:
            return slowest + self.ahead
        last = self.anchors[-1]
        return max(0, last.batch - 1, last.batch + floor((now - last.time) / last.interval))

    def begun(self, horizon: int) -> int:
        """The last of the batches up to `horizon` that may have begun by now: none does before it is due.  From any
        thread."""
        if not self.anchors or self.interval_s <= 0:
            return horizon
        return min(horizon, self.due(self.now(), horizon))

    def owed(self, horizon: int, final: int | None) -> int:
        """The last batch that should be released by now: as the clock says, however long nobody released any, but none after
        `final`, with which the stream ends.  From any thread."""
        if self.interval_s <= 0:
            return horizon
        due = self.due(self.now(), horizon)
        return max(horizon, due if final is None else min(due, final))

    def pace(self, now: float, slowest: int, window: int) -> int:
        """The last batch that may be released, due or not: `window` ahead of the slowest, and beyond that no faster than the
        clock goes, so that who has caught up is not held back by who has not."""
        if self.interval_s > 0:
            grown = min((now - self._paced) / self.interval_s, float(window)) if self._paced else 0.0
            self._pace = self._pace + max(0.0, grown)
        self._pace, self._paced = max(self._pace, float(slowest + window)), now
        return int(self._pace)

    def at(self, batch: int) -> float:
        """When `batch` is due, unix seconds; 0.0 before the start."""
        if not self.anchors:
            return 0.0
        anchor = next((a for a in reversed(self.anchors) if a.batch <= batch), self.anchors[0])
        return anchor.time + (batch - anchor.batch) * anchor.interval


def _encoded(anchors: list[Anchor]) -> bytes:
    return json.dumps({"started": anchors[0].time, "anchors": anchors}).encode()

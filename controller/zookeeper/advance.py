"""Whether outputs advance: what a look alone cannot say, and a row of looks can.

A query all of whose partitions are at work may still show nothing: its jobs fail again and again, or a step waits for ever.
What tells is a partition with batches before it that are due and whose position does not move.  Whether they were released
is no matter: where a source or the ledger does not answer, or the driver's loop hangs, none is, and nothing is shown.  In a
pause nothing is due and a stream that has ended owes nothing, so neither is behind; and a partition that moves is slow at
most, however far behind.  What is due is known from the driver's newest report, so a driver that is dead or frozen owes
nothing by it: while no report comes, a batch is due at each partition.

Invariant: nothing is said before it was watched for long enough; that it does not move is then known since when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprise.scheduler.model import Progress

STILL_S = 15.0
"""An output that is several batches behind and has not moved for so long does not advance: a job takes seconds."""
FEW = 3
"""Batches.  Behind by no more than these a query may just be busy with long ones, so it has `BUSY_S`."""
SILENT_S = 10.0
"""A driver reports every two seconds at least.  One that has not for so long shows nothing, as far as anybody knows."""
BUSY_S = 60.0


@dataclass(slots=True)
class Watch:
    """The memory of one observer: since when which partition stands at which position."""

    since: float | None = None
    silent_since: float | None = None
    """When the newest report was seen first, where no other has come for `SILENT_S`."""
    _report: tuple[str, float] | None = None
    _heard: float = 0.0
    _looked: float = 0.0
    _silent_s: float = 0.0
    _stands: dict[str, tuple[float, int]] = field(default_factory=dict)

    def note(self, now: float, progress: Progress | None, paused: bool) -> Mapping[str, float]:
        """Partitions that have a batch before them that is due, and since when they have stood still; as of this look."""
        if self.since is None:
            self.since = now
        if progress is None or paused or progress.done:
            self._stands, self._report, self.silent_since = {}, None, None
            return {}
        self._listen(now, progress)
        stands = {}
        for partition, position in progress.positions.items():
            if position < progress.newest or self.silent_since is not None:
                known = self._stands.get(partition)
                stands[partition] = known if known is not None and known[1] == position else (now, position)
        self._stands = stands
        return {partition: at for partition, (at, _) in stands.items()}

    def _listen(self, now: float, progress: Progress) -> None:
        """Take note of whether this is another report.  The time between two looks counts for a third of `SILENT_S` at most:
        an observer that was stopped, or had no answer, has not seen what it missed."""
        report = progress.driver, progress.time
        if report != self._report:
            self._report, self._heard, self._silent_s = report, now, 0.0
        else:
            self._silent_s += min(now - self._looked, SILENT_S / 3)
        self._looked = now
        self.silent_since = self._heard if self._silent_s >= SILENT_S else None


def stalled(still_since: float | None, lag: int, now: float) -> bool:
    """Whether an output that is `lag` batches behind and stands still since then (None: moves, or owes nothing) does not
    advance."""
    return still_since is not None and now - still_since >= (STILL_S if lag > FEW else BUSY_S)

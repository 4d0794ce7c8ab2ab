"""Windows of processing time that a replay repeats: a batch counts as processed when it is due.

Problem: a window of processing time depends on the machine's clock, so a replay after a failure would give other
rows.  The time at which a batch is due is fixed in advance: batch b comes b - 1 intervals after the first.
Invariant: all rows of a batch are in one window, which follows from the number of the batch alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.parameters import duration_us


@dataclass(frozen=True, slots=True)
class BatchWindows:
    """Tumbling windows of `size` over the times at which batches are due, in microseconds after the
    stream's begin."""

    size: int
    interval: int
    """Time from one batch to the next."""
    first: int
    """Length of the first window, which may be shorter than the others."""

    def first_batch(self, batch: int) -> int:
        """The first batch (from 1) in the window in which a batch is due."""
        start, _ = self.of(batch)
        return -(-start // self.interval) + 1

    def of(self, batch: int) -> tuple[int, int]:
        """Begin and end of the window in which a batch (from 1) is due."""
        due = (batch - 1) * self.interval
        if due < self.first:
            return 0, self.first
        start = self.first + (due - self.first) // self.size * self.size
        return start, start + self.size


def stored_window(window: tuple[int, int] | None) -> dict[str, pa.Array]:
    """The window that a state is of, as columns of one row."""
    start, end = window or (None, None)
    return {"start": pa.array([start], pa.int64()), "end": pa.array([end], pa.int64())}


def parse_windows(size: str | None, interval: str | None, first: str | None) -> BatchWindows | None:
    """Windows from the parameters of an operator; None without a `size`.  SpecError for an `interval` or a `first`
    that does not go with it."""
    if size is None:
        for name, value in (("interval", interval), ("first", first)):
            if value is not None:
                raise SpecError(name, "needs a `size`: without it there are no windows")
        return None
    if interval is None:
        raise SpecError(
            "interval",
            "say how far apart batches are (batch.interval): windows are of the time at which they are due",
        )
    length = duration_us(size, "size")
    begin = length if first is None else duration_us(first, "first")
    if begin > length:
        raise SpecError("first", f"{first!r} is longer than the size {size!r}")
    return BatchWindows(length, duration_us(interval, "interval"), begin)

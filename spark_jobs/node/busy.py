"""What a partition host is doing at this moment, readable while it does it.

User code that never returns holds the host's one lock, so nobody who waits for that lock can say what it is stuck in.  The
host therefore notes its work before each call into user code or a store, and whoever asks reads the note without the lock.
Invariant: the note is one immutable value that is replaced whole, so a reader sees one piece of work and never half of two.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum


class Activity(StrEnum):
    """What a host does to a partition."""

    INSTALL = "installing"
    STEP = "applying a batch"
    FREEZE = "freezing its state"
    OUTPUT = "waiting for its sink"


@dataclass(frozen=True, slots=True)
class Work:
    """One call: `batch` is the batch that is applied, or the position of the state; `since` is monotonic seconds."""

    activity: Activity
    operator: str
    partition: str
    batch: int
    since: float

    def describe(self, now: float) -> str:
        """Say it in words: operator, partition, batch, for how long."""
        return (
            f"in operator {self.operator}, partition {self.partition}, batch {self.batch} "
            f"for {now - self.since:.0f} s ({self.activity})"
        )


class Note:
    """The note of one host: written by the thread that works, read by any."""

    def __init__(self) -> None:
        self._work: Work | None = None

    def begin(self, activity: Activity, partition: str, batch: int) -> None:
        """The next call begins; it replaces what was noted before."""
        operator = partition.rpartition(".")[0]
        self._work = Work(activity, operator, partition, batch, time.monotonic())

    def clear(self) -> None:
        """No partition is worked on."""
        self._work = None

    def describe(self) -> str | None:
        """What is being done now, and for how long; None between two requests."""
        work = self._work
        return None if work is None else work.describe(time.monotonic())

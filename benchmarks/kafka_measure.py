"""Figures from what the reader at the end of the pipe saw, and the memory of the executors meanwhile.

Only the steady part counts: behind the first quarter of the rows and before the last tenth.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from benchmarks.kafka_topics import Seen
from benchmarks.overhead_measure import HEAD, TAIL, Latency

EXECUTOR = "CoarseGrainedExecutorBackend"
"""In the command line of every Spark executor."""


def rate(seen: Seen, rows: int) -> float | None:
    """Rows a second over the steady part: the slope through all looks there; None when they are too few."""
    inside = [(at, n) for at, n in seen.looks if HEAD * rows <= n <= (1 - TAIL) * rows]
    if len(inside) < 3 or inside[-1][0] <= inside[0][0]:
        return None
    at = np.array([t for t, _ in inside]) - inside[0][0]
    return float(np.polyfit(at, np.array([n for _, n in inside], dtype=float), 1)[0])


def whole_rate(seen: Seen, rows: int) -> float | None:
    """Rows a second from the first row that came out to the last, for those that hand out everything in a few pieces."""
    if len(seen.looks) < 2 or seen.rows < rows or seen.looks[-1][0] <= seen.looks[0][0]:
        return None
    return (seen.rows - seen.looks[0][1]) / (seen.looks[-1][0] - seen.looks[0][0])


def latency(seen: Seen) -> Latency | None:
    """From the moment a row was made until a reader of committed messages has it, in seconds."""
    delays = [delay for _, delay in sorted(seen.delays)]
    steady = delays[int(HEAD * len(delays)) : int((1 - TAIL) * len(delays))]
    if not steady:
        return None
    third = max(1, len(steady) // 3)
    start, end = float(np.median(steady[:third])), float(np.median(steady[-third:]))
    return Latency(float(np.median(steady)), float(np.quantile(steady, 0.95)), end < 2 * start + 0.5)


@dataclass(frozen=True, slots=True)
class Memory:
    """The greatest resident memory of any one executor, MiB: its JVM, and what runs below it (Python worker, host)."""

    jvm: float
    below: float


class MemoryWatch(threading.Thread):
    """Looks at the executors below this process twice a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        self._found = [(0.0, 0.0)]

    def run(self) -> None:
        """In its thread."""
        while not self._over.wait(0.5):
            self._found += executors()

    def stop(self) -> Memory:
        """The greatest of each since the start."""
        self._over.set()
        self.join()
        return Memory(max(jvm for jvm, _ in self._found), max(below for _, below in self._found))


def executors() -> list[tuple[float, float]]:
    """(JVM, processes below it) of each executor that is running now, MiB."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(EXECUTOR in word for word in process.cmdline()):
                below = [_resident(child) for child in process.children(recursive=True)]
                found.append((_resident(process), sum(below)))
        except psutil.NoSuchProcess:
            continue
    return found


def _resident(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


def best(values: Sequence[float | None]) -> float | None:
    """The median of those that are there."""
    there = [v for v in values if v is not None]
    return float(np.median(there)) if there else None

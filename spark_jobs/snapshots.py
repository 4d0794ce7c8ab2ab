"""Checkpoint writing off the critical path: a frozen state is encoded and stored by one background thread.

`freeze` runs on the processing thread and must be quick; what it returns is immutable, so processing goes on at once
(design, section 3).  The queue is bounded by the punctuations that are under way, which the driver limits.  A store that
refuses (a full disk) is asked again for as long as the punctuation is open: a checkpoint is late then, and not lost.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict

from spark_jobs.checkpoints import CheckpointStore
from spark_jobs.command import Ack
from spark_jobs.contract import Tables
from spark_jobs.errors import DataPlaneError

Encode = Callable[[], Tables]

RETRY_S = 1.0
"""Between two attempts to store a snapshot."""


class SnapshotWriter:
    """One thread that stores snapshots in the order they were taken; `incarnation` goes into the file names."""

    def __init__(self, store: CheckpointStore, incarnation: str) -> None:
        self._store = store
        self._incarnation = incarnation
        self._jobs: queue.SimpleQueue[tuple[str, int, Encode] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._acks: list[Ack] = []
        self._problems: list[str] = []
        self._open: Collection[int] = ()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="snapshots", daemon=True)
        self._thread.start()

    def submit(self, partition: str, position: int, encode: Encode | None) -> None:
        """Store a snapshot later; one without state is acknowledged at once."""
        if encode is None:
            with self._lock:
                self._acks.append(Ack(partition, position, None))
        else:
            self._jobs.put((partition, position, encode))

    def keep(self, punctuations: Collection[int]) -> None:
        """The punctuations that are open: a snapshot of another is worth no second attempt."""
        self._open = punctuations

    def collect(self) -> tuple[list[Ack], list[str]]:
        """What was stored, and what went wrong, since the last call."""
        with self._lock:
            acks, problems = self._acks, self._problems
            self._acks, self._problems = [], []
        return acks, problems

    def close(self) -> None:
        """Try once what is queued, then end the thread."""
        self._closing.set()
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            partition, position, encode = job
            try:
                file = self._store.write_state(position, partition, self._incarnation, encode())
            except (DataPlaneError, OSError, ValueError, ArithmeticError) as error:
                with self._lock:
                    self._problems.append(f"{partition}: checkpoint {position} not stored: {error}")
                if not self._closing.wait(RETRY_S) and position in self._open:
                    self._jobs.put(job)
            else:
                with self._lock:
                    self._acks.append(Ack(partition, position, asdict(file)))

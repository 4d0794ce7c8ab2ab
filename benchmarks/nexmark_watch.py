"""How old results are when a reader of committed messages has them.

The age of a result is the time from its column `time` on: when its event was due, or when its window ended.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

EACH = 16
"""Of so many results at a time one is looked at, where not all are kept."""
SETTINGS = {
    "group.id": "bench", "enable.auto.commit": False, "isolation.level": "read_committed",
    "fetch.wait.max.ms": 5, "fetch.queue.backoff.ms": 5,
}  # fmt: skip


class Watcher(threading.Thread):
    """Reads logs of a topic until it is stopped.  A context manager."""

    def __init__(self, brokers: str, topic: str, logs: Sequence[int], *, whole: bool) -> None:
        """`whole`: from the beginning, and all results are kept; otherwise from now on, and only ages are."""
        super().__init__(daemon=True)
        self.rows: list[bytes] = []
        self._seen: list[tuple[float, float]] = []
        self._whole, self._over = whole, threading.Event()
        self._consumer = Consumer({"bootstrap.servers": brokers, **SETTINGS})
        begin = OFFSET_BEGINNING if whole else OFFSET_END
        self._consumer.assign([TopicPartition(topic, log, begin) for log in logs])

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._consumer.close()

    def run(self) -> None:
        """In its thread."""
        while not self._over.is_set():
            found = [*self._consumer.consume(1, 0.02), *self._consumer.consume(10_000, 0)]
            now = time.time()
            values = [m.value() or b"" for m in found if m.error() is None]
            if self._whole:
                self.rows += values
            self._seen += [
                (now, json.loads(row)["time"] / 1e6) for row in values[:: 1 if self._whole else EACH]
            ]

    def forget(self) -> None:
        """The ages so far."""
        self._seen = []

    def ages(self, first: float, end: float) -> np.ndarray:
        """Seconds, of the results that were there between these moments, unix seconds."""
        seen = np.array(self._seen, dtype=float).reshape(-1, 2)
        inside = seen[(seen[:, 0] >= first) & (seen[:, 0] < end)]
        ages: np.ndarray = inside[:, 0] - inside[:, 1]
        return ages

"""Files that appear when they are due, for a peer that takes whatever lies in its folder.

A folder that is full from the start says nothing about latency when the peer may take many files a trigger.  So the files
are linked into a folder of their own: those that fill the state at once, and, once these are done, one an interval.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.overhead_data import Data


class Feed:
    """A context manager; `due`: batch -> unix seconds at which its file was there."""

    def __init__(self, data: Data, folder: Path, interval_s: float, seen: Callable[[], int]) -> None:
        """`seen`: tuples that the peer has done so far."""
        self.folder, self.due = folder, dict[int, float]()
        self._data, self._interval, self._seen = data, interval_s, seen
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Feed:
        self.folder.mkdir(parents=True)
        for number in range(1, self._data.fill + 1):
            self._link(number)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while self._seen() < self._data.fill * self._data.rows:
            if self._end.wait(0.2):
                return
        start = time.monotonic()
        for step, number in enumerate(range(self._data.fill + 1, self._data.total + 1), 1):
            if self._end.wait(max(0.0, start + step * self._interval - time.monotonic())):
                return
            self._link(number)

    def _link(self, number: int) -> None:
        path = Path(self._data.paths[number - 1])
        os.link(path, self.folder / path.name)
        self.due[number] = time.time()

"""Hosts get what partitions begin with, and store their states, on threads of their own; tests of something else let these
finish first."""

from __future__ import annotations

import time
from queue import Queue
from typing import Any

from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.restoring import Restorer, _Preparation, _Stage
from tools.testbed.waiting import HANGS_S


def let_all_come(host: Host) -> None:
    """Wait until everything that the host has asked for is there, or has failed; nothing is installed by that."""
    restorer: Restorer = host._restorer
    with restorer._changed:
        came = restorer._changed.wait_for(
            lambda: not any(_awaited(o, restorer) for o in _all(restorer)), HANGS_S
        )
    assert came, f"not within {HANGS_S} s: {list(restorer._wanted)}"


class WatchedQueue(Queue[Any]):
    """A queue with one consumer, which is `idle` when it waits and nothing is queued.  The consumer takes nothing while the
    queue is `held`: nobody may wait for the consumer then."""

    def __init__(self, held: bool = False) -> None:
        super().__init__()
        self._held, self._waits = held, False

    def hold(self, held: bool) -> None:
        with self.mutex:
            self._held = held
            self.not_empty.notify()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        with self.mutex:
            self._waits = True
        return super().get(block, timeout)

    def _get(self) -> Any:
        self._waits = False
        return super()._get()

    def _qsize(self) -> int:
        return 0 if self._held else super()._qsize()

    @property
    def idle(self) -> bool:
        with self.mutex:
            return self._waits and not self.queue


def let_all_be_stored(host: Host) -> None:
    """Wait until the host has stored every snapshot that it was to store, or one has failed."""
    writer: Any = getattr(host, "_writer", None)
    jobs = getattr(writer, "_jobs", None)
    if not isinstance(jobs, WatchedQueue):  # the host has no topology yet, or was made elsewhere
        return
    ends = time.monotonic() + HANGS_S
    while not jobs.idle and not writer._problems:
        assert time.monotonic() < ends, f"not within {HANGS_S} s: {jobs.queue}"
        time.sleep(0.0005)


def _all(restorer: Restorer) -> list[_Preparation]:
    return list(restorer._wanted.values())


def _awaited(one: _Preparation, restorer: Restorer) -> bool:
    """Standbys that wait for their turn get it when something is installed, and others when the driver grants it."""
    waits = one.standby or not restorer._is_granted(one)
    return one.stage is not _Stage.DONE and not (waits and one.stage is _Stage.QUEUED)

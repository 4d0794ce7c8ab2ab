"""What a process has of its machine besides connections: clocks, threads that wait for each other, room on its own disk.

Problem: code that asks `time` and begins a `threading.Thread` by itself runs in real time alone, and never twice the same.
Who is given a `Platform` runs as well in a simulated world, where time passes when
everybody waits, and one seed says who runs when.

The law of this module: it imports nothing of the project, so that every process may use it, the agent's, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from queue import Queue, SimpleQueue
from typing import Any, Protocol


class Running(Protocol):
    """What was begun beside its maker."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most so many seconds."""


def _begin(run: Callable[[], object], name: str) -> Running:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _after(seconds: float, call: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def write_new(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file that is not there yet.  OSError: the disk is full, or the name is taken; part of it may be there."""
    with path.open("xb") as written:
        for piece in pieces:
            written.write(piece)


@dataclass(frozen=True, slots=True)
class Platform:
    """The clocks and threads of one process; what is not given is the operating system's."""

    elapsed: Callable[[], float] = time.monotonic
    """Seconds that only grow."""
    wall: Callable[[], float] = time.time
    """Unix seconds, which may be set."""
    cpu: Callable[[], float] = time.thread_time
    """Seconds of CPU that the calling thread has used."""
    sleep: Callable[[float], None] = time.sleep
    begin: Callable[[Callable[[], object], str], Running] = _begin
    """Run something beside the caller; its name is for people."""
    after: Callable[[float, Callable[[], object]], None] = _after
    """Call something so many seconds from now, beside the caller."""
    event: Callable[[], threading.Event] = threading.Event
    lock: Callable[[], Any] = threading.RLock
    """A lock that its holder may take again, and hold while waiting for something else."""
    condition: Callable[[], Any] = threading.Condition
    """A lock whose holder may wait until another one has changed what it guards."""
    queue: Callable[[], Queue[Any]] = Queue
    signals: Callable[[], SimpleQueue[Any]] = SimpleQueue
    """A queue that handlers of signals may put into."""
    write: Callable[[Path, Iterable[bytes | memoryview]], None] = write_new
    """Write a file to the node's own disk (`write_new`)."""


PLATFORM = Platform()
"""That of the operating system."""

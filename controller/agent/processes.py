"""All processes of an operating system session: list, freeze, thaw, kill.

Why sessions: pyspark's daemon puts itself in a process group of its own, so a group is not a node; a session
is left only by setsid, which nothing on a node calls. Invariants: a signal goes only to a process whose start
time is the one seen when it was found, so a recycled process id is never hit; a kill returns when nothing but
zombies is left.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reprise.controller.errors import EmbeddedError

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process; (pid, started) names it for good, the pid alone does not."""

    pid: int
    parent: int
    session: int
    state: str
    started: int
    """Start time in clock ticks since boot."""


def parse_stat(text: str) -> Process:
    """One /proc/PID/stat line. The command may hold blanks and parentheses: fields count from the last
    `)`."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Process(
        pid=int(head.split(" ", 1)[0]),
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
    )


def inspect(pid: int) -> Process | None:
    """The process as it is now, None if there is none."""
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace"))
    except (OSError, IndexError, ValueError):
        return None


def living() -> Iterator[Process]:
    """Every process that is not a zombie."""
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are enough, and this runs in a loop
        if entry.isdigit():
            process = inspect(int(entry))
            if process is not None and process.state not in "ZX":
                yield process


@dataclass(frozen=True, slots=True)
class Session:
    """A session, named by its leader. It outlives the leader while any member lives."""

    leader: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Session":
        """The session that the living process `pid` leads."""
        process = inspect(pid)
        if process is None or process.session != pid:
            raise EmbeddedError(f"process {pid} leads no session")
        return cls(pid, process.started)

    def lead(self) -> Process | None:
        """The leader while it lives."""
        process = inspect(self.leader)
        return process if process and process.started == self.started and process.state not in "ZX" else None


def members(sessions: Iterable[Session]) -> list[Process]:
    """All living members. A session id whose leader has another start time is a recycled one and has none
    here."""
    by_id = {session.leader: session for session in sessions}
    found = [process for process in living() if process.session in by_id]
    strangers = {p.pid for p in found if p.pid in by_id and p.started != by_id[p.pid].started}
    return [
        process
        for process in found
        if process.session not in strangers and process.started >= by_id[process.session].started
    ]


def carrying(mark: bytes) -> list[Process]:
    """All living processes with `mark` (NAME=value) in their start environment."""
    found = []
    for process in living():
        with contextlib.suppress(OSError):
            if mark in (_PROC / str(process.pid) / "environ").read_bytes().split(b"\0"):
                found.append(process)
    return found


def send(process: Process, number: signal.Signals) -> None:
    """Signal exactly this process; one that has gone meanwhile is no error."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(process.pid)
        try:
            now = inspect(process.pid)
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def freeze(find: Callable[[], list[Process]], *, timeout_s: float = 2.0) -> None:
    """SIGSTOP until a look finds nobody running: a member that was forked while we looked is caught by the
    next look.

    A process in uninterruptible I/O stops when its I/O ends; after `timeout_s` that is left to the kernel.
    """
    deadline = time.monotonic() + timeout_s
    while running := [p for p in find() if p.state not in "Tt"]:
        for process in running:
            send(process, signal.SIGSTOP)
        if time.monotonic() > deadline:
            return


def thaw(find: Callable[[], list[Process]]) -> None:
    """SIGCONT to all."""
    for process in find():
        send(process, signal.SIGCONT)


def kill(find: Callable[[], list[Process]], *, timeout_s: float = 10.0) -> None:
    """SIGKILL until nobody is left, all frozen first so that no member sees another die.

    Raises EmbeddedError when somebody lives on after `timeout_s` (uninterruptible I/O).
    """
    freeze(find)
    deadline = time.monotonic() + timeout_s
    while left := find():
        for process in left:
            send(process, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise EmbeddedError(f"processes survive SIGKILL: {sorted(p.pid for p in left)}")
        time.sleep(0.01)

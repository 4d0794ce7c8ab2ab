"""A handler of threads for kazoo, cheap in system calls and locks.

A request through kazoo's own costs ten system calls, each of which hands the interpreter to another thread; a process
that asks ten things at a time, as an operator with a thousand topologies does, is bound by that.  With the sockets of
`zk_sockets` and the results of `zk_results` ten requests cost one call to wake the loop and few to send, wait and read.
Only the documented interface of handlers is used.

Invariant: the loop waits only when nothing is left to do, that is after everything gathered was given to the kernel,
or as much as it takes; and it does not gather more than `GATHER_BYTES` without looking for answers.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import fileobj_to_fd

from reprise.controller.zookeeper.results import Result, TaskQueue
from reprise.controller.zookeeper.sockets import (
    GATHER_BYTES,
    ROOM_BYTES,
    Connection,
    Waker,
    WakeReceiver,
    wake_up_pair,
)

Ready = tuple[list[Any], list[Any], list[Any]]
_Events = dict[int, int]
"""Of poll, by file number."""
_OURS = (Connection, WakeReceiver)


class PollHandler(SequentialThreadingHandler):
    """Like its base class, but for any number of open files."""

    queue_impl = TaskQueue

    def async_result(self) -> Result:
        return Result(self)

    def create_connection(self, *args: Any, **kwargs: Any) -> Connection:
        return Connection(super().create_connection(*args, **kwargs))

    def create_socket_pair(self) -> tuple[WakeReceiver, Waker]:
        return wake_up_pair()

    def select(
        self,
        rlist: Sequence[Any],
        wlist: Sequence[Any],
        _xlist: Sequence[Any] = (),
        timeout: float | None = None,
    ) -> Ready:
        """Those that can be read, and those that can be written, within `timeout` seconds (None: for ever).  What is
        ready in a buffer is told without asking about the rest.  Raises TypeError for a socket that was closed, as the
        base class does, and OSError for a connection that failed."""
        if (ready := _at_once(rlist, wlist)) is not None:
            return ready
        end = None if timeout is None else time.monotonic() + timeout
        _flush(rlist, wlist)
        if wlist and (ready := _ready(rlist, wlist, {}))[1]:
            return ready
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            found = _look(rlist, wlist, left)
            _flush(rlist, wlist)
            ready = _ready(rlist, wlist, found)
            if any(ready) or left == 0.0:
                return ready


def _at_once(rlist: Sequence[Any], wlist: Sequence[Any]) -> Ready | None:
    """What needs no question to the kernel; None if one must be asked."""
    if wlist:
        roomy = [file for file in wlist if isinstance(file, Connection) and file.gathered <= ROOM_BYTES]
        return ([], roomy, []) if roomy else None
    readable: list[Any] = []
    woken = full = False
    for file in rlist:
        if isinstance(file, Connection):
            full = full or file.gathered > GATHER_BYTES
        elif isinstance(file, WakeReceiver):
            woken = woken or file.at_hand
        else:
            continue
        if file.at_hand:
            readable.append(file)
    if not readable or (woken and full):
        return None
    if not woken:  # else more requests follow, which may go out together
        _flush(rlist, wlist)
    return readable, [], []


def _flush(rlist: Sequence[Any], wlist: Sequence[Any]) -> None:
    for file in (*rlist, *wlist):
        if isinstance(file, Connection) and file.gathered:
            file.flush()


def _ready(rlist: Sequence[Any], wlist: Sequence[Any], found: _Events) -> Ready:
    """After `found`, the answer of poll.  An error or a hang-up is for him to find who reads or writes."""
    readable, writable = [], []
    for file in rlist:
        if file.at_hand if isinstance(file, _OURS) else found.get(file.fileno(), 0) & ~select.POLLOUT:
            readable.append(file)
    for file in wlist:
        ours = isinstance(file, Connection)
        if file.gathered <= ROOM_BYTES if ours else found.get(file.fileno(), 0) & ~select.POLLIN:
            writable.append(file)
    return readable, writable, []


def _look(rlist: Sequence[Any], wlist: Sequence[Any], seconds: float | None) -> _Events:
    """Ask the kernel, within `seconds` or until somebody wakes, and read what has come."""
    poll = select.poll()
    wanted: _Events = {}
    for file in rlist:
        wanted[fileobj_to_fd(file)] = select.POLLIN | (file.needs if isinstance(file, Connection) else 0)
    for file in wlist:
        number = fileobj_to_fd(file)
        event = file.needs if isinstance(file, Connection) else select.POLLOUT
        wanted[number] = wanted.get(number, 0) | event
    for number, events in wanted.items():
        poll.register(number, events)
    found = _sleep(poll, [file for file in rlist if isinstance(file, WakeReceiver)], seconds)
    for file in rlist:
        if isinstance(file, _OURS) and file.fileno() in found:
            file.fill()
    return found


def _sleep(poll: select.poll, receivers: Sequence[WakeReceiver], seconds: float | None) -> _Events:
    try:
        if all(receiver.arm() for receiver in receivers):
            return dict(poll.poll(None if seconds is None else seconds * 1000.0))
        return dict(poll.poll(0))
    finally:
        for receiver in receivers:
            receiver.disarm()

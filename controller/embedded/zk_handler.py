"""kazoo's handler of threads with a cheaper wait for sockets.

kazoo waits before every read and write, four or five times a request, and makes, fills and closes an epoll object each time.
One call of poll does the same; in an operator with a thousand topologies that is a tenth of a core.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import fileobj_to_fd

Ready = tuple[list[Any], list[Any], list[Any]]


class PollHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """As its base class, for any number of open files."""

    def select(
        self,
        rlist: Sequence[Any],
        wlist: Sequence[Any],
        _xlist: Sequence[Any] = (),
        timeout: float | None = None,
    ) -> Ready:
        """Those that can be read, and those that can be written, within `timeout` seconds (None: for ever).  Raises
        TypeError for a socket that was closed, as the base class does."""
        readers = [(fileobj_to_fd(socket), socket) for socket in rlist]
        writers = [(fileobj_to_fd(socket), socket) for socket in wlist]
        wanted = dict.fromkeys((number for number, _ in readers), select.POLLIN)
        for number, _ in writers:
            wanted[number] = wanted.get(number, 0) | select.POLLOUT
        poll = select.poll()
        for number, events in wanted.items():
            poll.register(number, events)
        found = dict(poll.poll(None if timeout is None else max(0.0, timeout) * 1000.0))
        # an error or a hang-up is for him to find who reads or writes
        readable = [socket for number, socket in readers if found.get(number, 0) & ~select.POLLOUT]
        writable = [socket for number, socket in writers if found.get(number, 0) & ~select.POLLIN]
        return readable, writable, []

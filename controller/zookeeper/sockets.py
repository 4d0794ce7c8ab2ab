"""What kazoo reads, writes and is woken by: sockets that ask the kernel once where kazoo asks it ten times.

kazoo waits before every read and every write, reads a length and then a body, and is woken by a byte a request.  Each of
these is a system call that hands the interpreter to another thread.  Here answers are read by the buffer, requests are
gathered until the loop has nothing else to do, and the loop is woken only if it sleeps.

Who calls: a `Connection` belongs to kazoo's loop alone.  `PollHandler.select` flushes before it waits, so that nothing
gathered is ever waited upon, and an error of a flush is an error of that select, which kazoo takes as a lost connection.

Invariant of a `wake_up_pair`: the loop never sleeps while a wake-up is pending.  A waker counts its wake-up and then looks
whether the receiver is armed; the loop arms the receiver before it sleeps and then looks at the count.  Whichever comes
first, one of the two sees the other.  The one waker that finds the receiver armed disarms it and sends a byte, which ends
this sleep, or the next one for nothing if the loop woke by itself meanwhile.  There is no lock, so that a signal handler
may wake the loop, too.
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
from collections import deque
from contextlib import suppress

_READ_BYTES = 1 << 16
GATHER_BYTES = 1 << 12
"""As much is gathered before it is sent although more is to come: some dozens of requests."""
ROOM_BYTES = 1 << 16
"""More than this is not held for a server that reads nothing: whoever writes must wait."""


class Connection:
    """A connected socket with a buffer for each direction; not blocking once `setblocking(0)` was called."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._came, self._at = b"", 0
        self._ended = False
        self._out = bytearray()
        self.needs = 0
        """Event of poll without which nothing more can be sent now; 0 if there is nothing to wait for."""
        self.fileno, self.getpeername = raw.fileno, raw.getpeername
        self.setblocking, self.close = raw.setblocking, raw.close
        self._decrypted = raw.pending if isinstance(raw, ssl.SSLSocket) else int

    def pending(self) -> int:
        """Bytes that `recv` returns without asking the kernel."""
        return len(self._came) - self._at or self._decrypted()

    @property
    def at_hand(self) -> bool:
        """Whether `recv` has an answer: data or the end."""
        return self._at < len(self._came) or self._ended or self._decrypted() > 0

    @property
    def gathered(self) -> int:
        """Bytes that were given to `send` and not yet to the kernel."""
        return len(self._out)

    def recv(self, size: int) -> bytes:
        """Like a socket's `recv`; what was gathered goes out before this waits or finds nothing."""
        if self._at == len(self._came) and not self._ended:
            self.flush()
            self._read()
        chunk = self._came[self._at : self._at + size]
        self._at += len(chunk)
        return chunk

    def fill(self) -> None:
        """Read what has come, if anything has and nothing is at hand.  OSError as from `recv`."""
        try:
            if not self.at_hand:
                self._read()
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except ssl.SSLWantWriteError:
            self.needs = select.POLLOUT

    def _read(self) -> None:
        self._came, self._at = self._raw.recv(_READ_BYTES), 0
        self._ended = not self._came

    def send(self, data: bytes | memoryview) -> int:
        """Gathers all of it."""
        self._out += data
        return len(data)

    def sendall(self, data: bytes) -> None:
        """Send at once, like a socket's `sendall`."""
        self._raw.sendall(bytes(self._out) + data)
        self._out.clear()

    def flush(self) -> None:
        """Give the kernel what it takes; `needs` says what to wait for before the rest.  OSError as from a socket's
        `send`."""
        self.needs = 0
        try:
            while self._out:
                # the rest only grows between attempts, as TLS demands of a record that is begun
                del self._out[: self._raw.send(self._out)]
        except (BlockingIOError, ssl.SSLWantWriteError):
            self.needs = select.POLLOUT
        except ssl.SSLWantReadError:
            self.needs = select.POLLIN


class WakeReceiver:
    """The end of a `wake_up_pair` that the loop reads: it yields one byte for each wake-up."""

    def __init__(self, near: socket.socket, wakes: deque[None], armed: deque[None]) -> None:
        self._near, self._wakes, self._armed = near, wakes, armed
        self.fileno = near.fileno

    @property
    def at_hand(self) -> bool:
        """Whether a wake-up is pending, which `recv` has not returned yet."""
        return bool(self._wakes)

    def recv(self, size: int) -> bytes:
        """Bytes, at most `size`, one for each wake-up.  BlockingIOError if none is pending."""
        taken = 0
        while taken < size and self._wakes:
            self._wakes.popleft()
            taken += 1
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "no wake-up is pending")
        return b"\0" * taken

    def arm(self) -> bool:
        """Ask for a byte at `fileno` with the next wake-up.  False, and there will be none, if one is pending already."""
        self._armed.append(None)
        if not self._wakes:
            return True
        self.disarm()
        return False

    def disarm(self) -> None:
        """Ask for no more bytes; one may be on its way already."""
        self._armed.clear()

    def fill(self) -> None:
        """Take the bytes that ended a sleep."""
        with suppress(BlockingIOError):
            self._near.recv(_READ_BYTES)

    def close(self) -> None:
        """Close this end; a waker then finds the socket closed."""
        self._near.close()


class Waker:
    """The end of a `wake_up_pair` with which any thread wakes the loop."""

    def __init__(self, far: socket.socket, wakes: deque[None], armed: deque[None]) -> None:
        self._far, self._wakes, self._armed = far, wakes, armed
        self.fileno = far.fileno

    def send(self, data: bytes) -> int:
        """Wake the loop, once for each byte.  OSError after `close`."""
        if self._far.fileno() < 0:
            raise OSError(errno.EBADF, "the pair is closed")
        self._wakes.extend([None] * len(data))
        try:
            self._armed.pop()
        except IndexError:  # it is awake, or another byte is on its way
            return len(data)
        with suppress(BlockingIOError):  # full of bytes that nobody has heard yet: any of them ends the sleep
            self._far.send(b"\0")
        return len(data)

    def close(self) -> None:
        """Refuse wake-ups from here on."""
        self._far.close()


def wake_up_pair() -> tuple[WakeReceiver, Waker]:
    """Make the two ends: what kazoo's loop reads, and what other threads write to."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    wakes: deque[None] = deque()
    armed: deque[None] = deque(maxlen=1)
    return WakeReceiver(near, wakes, armed), Waker(far, wakes, armed)

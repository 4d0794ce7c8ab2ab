"""Where the partition host meets the two relays of its node: how frames leave the node and come in, and orders come.

A continuous exchange is one long Spark job with two tasks a node, the relays: the outlet
takes frames from the host, each with the slot that it goes to, and the inlet brings those that others sent here.  Relays
run in the executor's JVM and connect to a socket file in the executor's folder.  Their hello has the key that stands
beside it, in a file that this user alone can read.

Several exchanges may be here at once, as the next one starts while the last one still runs.  One is attached, by its
number, and only its frames count.  The next one brings orders as soon as it is connected, as its first orders attach it;
its frames are held until then.  Those of the one before are drained until their job ends, so that a host that changes over
first does not end the exchange for those that have not.

Nothing in here waits for a relay on the caller's thread: what there is no room for is refused, and the caller keeps it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import struct
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from reprise.spark_jobs.node.meeting import announce, listen
from reprise.spark_jobs.node.rounds import NO_ROUND, Kind, encode_answer
from reprise.spark_jobs.node.seal import Seal

SOCKET, RECORD = "exchange.sock", "exchange.json"
"""Files in the executor's folder that the relays know by name: where the host listens, and the key that it asks for."""
OUTLET, INLET = b"o", b"i"
"""First byte of a hello: which of the two relays connects."""
HELLO = struct.Struct(">cII32s")
"""Kind, number of the exchange, slot, key."""
TO_OUTLET = struct.Struct(">iI")
"""Before each frame to the outlet: target slot, length in bytes."""
FROM_INLET = struct.Struct(">i")
"""Before each frame from the inlet: length in bytes; negative before orders of the driver."""
DRIVER = -1
"""Instead of a slot: what the driver is answered."""
WELCOME, TOO_LATE = b"+", b"-"
"""The answer to a hello with the right key.  A relay that is too late must not try again; one that gets no answer may, as
the key is another one where the host has just been replaced."""
HELLO_S = 10.0
"""A hello is complete within that time; a busy machine needs milliseconds."""
QUEUE_BYTES = 8 << 20
"""What waits for an outlet at most.  A frame that is larger is taken when nothing waits."""
WRITE_BYTES = 256 << 10
"""How much is written at once, where many small frames wait."""
READ_BYTES = 128 << 10


class Links:
    """The host's end of the exchanges of its node.  `heard` gets (number, frame) on a reader's thread, which it may hold
    up: then the senders of this node are held up in the end.  `ordered` gets what the driver has sent, the same way."""

    def __init__(
        self,
        home: Path,
        heard: Callable[[int, bytes], None],
        ordered: Callable[[int, bytes], None] = lambda _number, _order: None,
    ) -> None:
        self._home, self._heard, self._ordered = home, heard, ordered
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        """Of whoever attaches or adds; not of who sends, as a frame may be answered while one attaches."""
        self._number, self._sealing = -1, b""
        self._closed = False
        self._here: dict[tuple[int, bytes], _Relay] = {}
        name = f"exchange-{os.getpid()}-{secrets.token_hex(4)}"
        self._listener = listen(home, name)
        announce(home, RECORD, SOCKET, self._key)
        (home / name).replace(home / SOCKET)  # over that of a host which was here before
        threading.Thread(target=self._accept, daemon=True).start()

    def attach(self, number: int, key: bytes) -> None:
        """Let only connections of that exchange count from now on.  `key`: with which its frames are sealed.  ValueError: a
        later one is attached already."""
        with self._lock:
            if number < self._number:
                raise ValueError(f"exchange {number} is attached after exchange {self._number}")
            if number == self._number:
                return
            if (outlet := self._here.get((number, OUTLET))) is not None:
                outlet.begin(key)  # before anybody sends by it
            before, self._number, self._sealing = self._number, number, key
            for relay in self._here.values():
                if relay.number < before:
                    relay.close()
                elif relay.number < number:
                    relay.retire()
                elif relay.number == number and relay is not outlet:
                    relay.begin(key)

    @property
    def ready(self) -> bool:
        """Whether outlet and inlet of the attached exchange are here."""
        return self.there(self._number)

    def there(self, number: int) -> bool:
        """Whether outlet and inlet of that exchange are here, attached or not."""
        return (number, OUTLET) in self._here and (number, INLET) in self._here

    def send(self, slot: int, frame: bytes) -> bool:
        """Put a frame for another slot of the attached exchange into the outlet's queue; never waits.  False where there is
        no room, or no outlet.  True says that it was taken, not that it will arrive."""
        outlet = self._here.get((self._number, OUTLET))
        return isinstance(outlet, _Outlet) and outlet.put(slot, frame)

    def answer(self, number: int, answer: bytes) -> None:
        """Put an answer for the driver into the outlet's queue, whatever waits there; nothing is done where that exchange is
        over."""
        outlet = self._here.get((number, OUTLET))
        if isinstance(outlet, _Outlet):
            outlet.put(DRIVER, answer, at_once=True)

    def close(self) -> None:
        """End all connections, and take the files away."""
        with self._lock:
            self._closed = True
            relays = list(self._here.values())
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for relay in relays:
            relay.close()
        (self._home / SOCKET).unlink(missing_ok=True)
        (self._home / RECORD).unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                threading.Event().wait(0.1)  # no file descriptor is left, for instance
                continue
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        """One connection, from its hello to its end."""
        with accepted, contextlib.suppress(OSError):  # the relay's task ended, or was cancelled
            hello = _hello(accepted)
            if hello is None or not hmac.compare_digest(hello[3], self._key):
                return
            relay: _Relay = _Outlet(accepted, hello[1], hello[2])
            if hello[0] == INLET:
                relay = _Inlet(accepted, hello[1], hello[2], self._heard, self._ordered)
            if not self._admit(relay):
                accepted.sendall(TOO_LATE)
                return
            try:
                accepted.sendall(WELCOME)
                relay.run()
            finally:
                with self._lock:
                    del self._here[relay.number, relay.kind]
                    other = self._here.get((relay.number, INLET if relay.kind == OUTLET else OUTLET))
                for one in (relay, other):  # an exchange that has lost one of them is over
                    if one is not None:
                        one.close()

    def _admit(self, relay: _Relay) -> bool:
        """Whether it is the one relay of its kind, of an exchange that is not over, and for the slot that the other one has:
        anything else is a task that Spark has put on the wrong node."""
        with self._lock:
            others = [one for one in self._here.values() if one.number == relay.number]
            if self._closed or relay.number < self._number:
                return False
            if any(one.kind == relay.kind or one.slot != relay.slot for one in others):
                return False
            if relay.number == self._number:
                relay.begin(self._sealing)
            self._here[relay.number, relay.kind] = relay
        if self.there(relay.number):  # orders can come, and answers can leave
            self.answer(relay.number, encode_answer(NO_ROUND, Kind.CONNECTED, b""))
        return True


def _hello(plain: socket.socket) -> tuple[bytes, int, int, bytes] | None:
    """Kind, number, slot, and key of somebody who says them in time; None for anybody else."""
    deadline = time.monotonic() + HELLO_S
    said = b""
    while len(said) < HELLO.size:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        plain.settimeout(left)
        some = plain.recv(HELLO.size - len(said))
        if not some:
            return None
        said += some
    plain.settimeout(None)
    kind, number, slot, key = HELLO.unpack(said)
    return (kind, number, slot, key) if kind in (OUTLET, INLET) else None


class _Relay:
    """A relay that has said who it is."""

    kind = b""

    def __init__(self, plain: socket.socket, number: int, slot: int) -> None:
        self.plain, self.number, self.slot = plain, number, slot
        self.seal: Seal | None = None
        """Of frames between hosts, once the exchange is attached."""

    def run(self) -> None:
        """Run until the connection ends."""
        raise NotImplementedError

    def begin(self, key: bytes) -> None:
        """The exchange is attached."""
        self.seal = Seal(key, self.slot)

    def retire(self) -> None:
        """Another exchange is attached: nothing of this one counts, but its job goes on until the driver ends it."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self.plain.shutdown(socket.SHUT_RDWR)


class _Outlet(_Relay):
    """Takes frames away from here."""

    kind = OUTLET

    def __init__(self, plain: socket.socket, number: int, slot: int) -> None:
        super().__init__(plain, number, slot)
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._over = False

    def put(self, slot: int, frame: bytes, at_once: bool = False) -> bool:
        """Whether it was taken.  `at_once`: before what waits, whether there is room or not."""
        with self._changed:
            if self._over or (not at_once and self._bytes and self._bytes + len(frame) > QUEUE_BYTES):
                return False
            (self._waiting.appendleft if at_once else self._waiting.append)((slot, frame))
            self._bytes += len(frame)
            self._changed.notify()
            return True

    def run(self) -> None:
        """An outlet says nothing after its hello; that it ends is heard here, though nothing may be written for long."""
        threading.Thread(target=self._write, daemon=True).start()
        self.plain.recv(1)

    def retire(self) -> None:
        self._end()

    def close(self) -> None:
        self._end()
        super().close()

    def _end(self) -> None:
        with self._changed:
            self._over = True
            self._waiting.clear()
            self._bytes = 0
            self._changed.notify()

    def _write(self) -> None:
        try:
            while block := self._next():
                self.plain.sendall(block)
        except OSError:
            pass  # the relay's task ended, or was cancelled
        except Exception:
            traceback.print_exc()
            self.close()

    def _next(self) -> bytes:
        """Frames that wait, one after the other, as far as they make one write; empty when this exchange is over."""
        with self._changed:
            while not self._waiting and not self._over:
                self._changed.wait()
            taken: list[tuple[int, bytes]] = []
            size = 0
            while self._waiting and (not taken or size + len(self._waiting[0][1]) <= WRITE_BYTES):
                taken.append(self._waiting.popleft())
                size += len(taken[-1][1])
            self._bytes -= size
        parts: list[bytes] = []
        for slot, frame in taken:
            sent = frame if slot == DRIVER else self._sealed(slot, frame)
            parts += (TO_OUTLET.pack(slot, len(sent)), sent)
        return b"".join(parts)

    def _sealed(self, slot: int, frame: bytes) -> bytes:
        assert self.seal is not None, "frames are taken for an exchange that is attached"
        return self.seal.close(slot, frame)


class _Inlet(_Relay):
    """Brings frames that others sent to this node's slot, and orders."""

    kind = INLET

    def __init__(
        self,
        plain: socket.socket,
        number: int,
        slot: int,
        heard: Callable[[int, bytes], None],
        ordered: Callable[[int, bytes], None],
    ) -> None:
        super().__init__(plain, number, slot)
        self._heard, self._ordered = heard, ordered
        self._turn = threading.Lock()
        self._held: list[bytes] = []
        """Frames that came before the exchange was attached: at most what others may send unconfirmed."""
        self._retired = False

    def run(self) -> None:
        with cast(BinaryIO, self.plain.makefile("rb", READ_BYTES)) as stream:
            while (found := _frame(stream)) is not None:
                frame, is_order = found
                try:
                    if not is_order:
                        self._take(frame)
                    elif not self._retired:
                        self._ordered(self.number, frame)
                except Exception:
                    traceback.print_exc()  # the connection ends, and the exchange with it: that is seen
                    return

    def _take(self, frame: bytes) -> None:
        with self._turn:
            if self._retired:
                return  # its exchange is over, and is drained
            if self.seal is None:
                self._held.append(frame)
            else:
                self._heard(self.number, self.seal.open(frame))

    def begin(self, key: bytes) -> None:
        with self._turn:
            super().begin(key)
            assert self.seal is not None
            try:
                for frame in self._held:
                    self._heard(self.number, self.seal.open(frame))
            except Exception:
                traceback.print_exc()
                self.close()
            self._held.clear()

    def retire(self) -> None:
        with self._turn:
            self._retired = True
            self._held.clear()


def _frame(stream: BinaryIO) -> tuple[bytes, bool] | None:
    """The next frame, and whether it is an order; None at the end."""
    head = stream.read(FROM_INLET.size)
    if len(head) < FROM_INLET.size:
        return None
    (length,) = FROM_INLET.unpack(head)
    frame = stream.read(abs(length))
    return (frame, length < 0) if len(frame) == abs(length) else None

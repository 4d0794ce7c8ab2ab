"""Buffers of connections and the wake-up pair: real sockets, real threads."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from reprise.controller.zookeeper.handler import PollHandler
from reprise.controller.zookeeper.sockets import (
    GATHER_BYTES,
    ROOM_BYTES,
    Connection,
    Waker,
    WakeReceiver,
    wake_up_pair,
)

Pair = tuple[Connection, socket.socket]
REPORTED_AFTER_S = 60.0


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A connection that does not block, and its peer that does."""
    ours, peer = socket.socketpair()
    with ours, peer:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        peer.settimeout(10)
        connection = Connection(ours)
        connection.setblocking(0)
        yield connection, peer


def read(connection: Connection, size: int) -> bytes:
    """As kazoo's loop reads."""
    handler, parts = PollHandler(), b""
    while len(parts) < size:
        if not connection.pending():
            assert handler.select([connection], [], [], 60)[0] == [connection]
        part = connection.recv(size - len(parts))
        assert part
        parts += part
    return parts


def test_what_came_together_is_read_once_and_served_in_pieces(pair: Pair) -> None:
    connection, peer = pair
    peer.sendall(b"abcdefg")
    assert PollHandler().select([connection], [], [], 60) == ([connection], [], [])
    assert connection.pending() == 7 and select.select([connection], [], [], 0)[0] == []
    assert (connection.recv(4), connection.recv(1), connection.pending()) == (b"abcd", b"e", 2)
    assert PollHandler().select([connection], [], [], None)[0] == [connection], (
        "at hand, whatever the kernel says"
    )
    assert (connection.recv(100), connection.pending()) == (b"fg", 0)
    assert PollHandler().select([connection], [], [], 0)[0] == []


def test_nothing_to_read_is_said_as_by_a_socket(pair: Pair) -> None:
    with pytest.raises(BlockingIOError):
        pair[0].recv(1)


def test_the_end_comes_after_the_data_and_stays(pair: Pair) -> None:
    connection, peer = pair
    peer.sendall(b"last")
    peer.close()
    assert read(connection, 4) == b"last"
    for _ in range(2):
        assert PollHandler().select([connection], [], [], None)[0] == [connection]
        assert (connection.pending(), connection.recv(1)) == (0, b"")


def test_requests_go_out_together_before_the_loop_waits(pair: Pair) -> None:
    connection, peer = pair
    handler = PollHandler()
    for _ in range(3):
        assert handler.select([], [connection], [], 60) == ([], [connection], [])
        assert connection.send(b"ask") == 3
    assert select.select([peer], [], [], 0)[0] == [] and connection.gathered == 9
    assert handler.select([connection], [], [], 0) == ([], [], [])
    assert (peer.recv(100), connection.gathered) == (b"askaskask", 0)


def test_answers_at_hand_hold_no_request_back(pair: Pair) -> None:
    connection, peer = pair
    peer.sendall(b"1234")
    assert read(connection, 1) == b"1"
    connection.send(b"ask")
    assert PollHandler().select([connection], [], [], 60)[0] == [connection]
    assert peer.recv(100) == b"ask"


def test_a_blocking_command_sends_at_once(pair: Pair) -> None:
    connection, peer = pair
    connection.setblocking(1)
    connection.send(b"before ")
    connection.sendall(b"ruok")
    assert peer.recv(100) == b"before ruok"
    connection.send(b"more")
    peer.sendall(b"imok")
    assert (connection.recv(8192), peer.recv(100)) == (b"imok", b"more")


def test_a_full_socket_makes_the_writer_wait_and_loses_nothing(pair: Pair) -> None:
    connection, peer = pair
    handler = PollHandler()
    data = bytes(range(256)) * (8 * ROOM_BYTES // 256)
    connection.send(data)
    assert handler.select([], [connection], [], 0.05) == ([], [], []), "nobody reads: time is up"
    assert connection.needs == select.POLLOUT
    got: list[bytes] = []
    reader = threading.Thread(
        target=lambda: got.extend(
            iter(lambda: peer.recv(5000) if sum(map(len, got)) < len(data) else b"", b"")
        )
    )
    reader.start()
    assert handler.select([], [connection], [], 60) == ([], [connection], [])
    # the rest goes out while the loop waits for answers
    assert handler.select([connection], [], [], 0.5) == ([], [], [])
    reader.join(300)
    assert b"".join(got) == data and connection.gathered == 0 == connection.needs


def test_answers_are_read_although_nothing_more_can_be_sent(pair: Pair) -> None:
    connection, peer = pair
    connection.send(bytes(8 * ROOM_BYTES))
    peer.sendall(b"answer")
    assert read(connection, 6) == b"answer" and connection.gathered > 0


def test_who_has_gone_is_an_error_of_the_wait(pair: Pair) -> None:
    connection, peer = pair
    peer.close()
    connection.send(b"x")
    with pytest.raises(BrokenPipeError):
        PollHandler().select([connection], [], [], 60)


def test_rings_are_told_one_by_one_and_cost_no_bytes_while_the_loop_is_awake() -> None:
    receiver, waker = wake_up_pair()
    with pytest.raises(BlockingIOError):
        receiver.recv(1)
    for _ in range(3):
        assert waker.send(b"\0") == 1
    assert select.select([receiver], [], [], 0)[0] == []
    assert PollHandler().select([receiver], [], [], None) == ([receiver], [], [])
    assert (receiver.recv(1), receiver.recv(5), receiver.at_hand) == (b"\0", b"\0\0", False)
    assert not receiver.at_hand and PollHandler().select([receiver], [], [], 0)[0] == []
    receiver.close(), waker.close()


def test_a_sleeping_loop_gets_one_byte_however_many_wake_it() -> None:
    receiver, waker = wake_up_pair()
    assert receiver.arm()
    waker.send(b"\0"), waker.send(b"\0")
    assert select.select([receiver], [], [], 5)[0]
    receiver.fill()
    assert select.select([receiver], [], [], 0)[0] == [] and receiver.at_hand
    assert not receiver.arm(), "nobody sleeps while a wake-up is pending"
    receiver.close(), waker.close()


class _Interrupted(deque[None]):
    """Once, something happens right after somebody has looked or said that it sleeps."""

    then: Callable[[], object] | None = None

    def _happen(self) -> None:
        then, self.then = self.then, None
        if then is not None:
            then()

    def pop(self) -> None:  # type: ignore[override]
        try:
            super().pop()
        finally:
            self._happen()

    def append(self, item: None, /) -> None:
        super().append(item)
        self._happen()


def test_who_rings_and_who_lies_down_see_each_other_at_the_worst_moment() -> None:
    near, far = socket.socketpair()
    with near, far:
        wakes, armed = deque[None](), _Interrupted()
        receiver, waker = WakeReceiver(near, wakes, armed), Waker(far, wakes, armed)
        armed_now: list[bool] = []
        armed.then = lambda: armed_now.append(receiver.arm())
        waker.send(b"\0")  # finds the loop awake, and then it lies down
        assert armed_now == [False]
        receiver.recv(1)
        armed.then = lambda: waker.send(b"\0")
        assert not receiver.arm() or select.select([near], [], [], 5)[0], "woken before it looked"
        assert receiver.at_hand


def test_a_byte_that_was_owed_wakes_for_nothing_and_the_wait_goes_on() -> None:
    receiver, waker = wake_up_pair()
    receiver.arm()
    waker.send(b"\0")
    receiver.disarm()
    assert receiver.recv(1) == b"\0"  # the loop woke by itself, and the byte is still there
    began = time.monotonic()
    assert PollHandler().select([receiver], [], [], 0.1) == ([], [], [])
    assert time.monotonic() - began >= 0.1
    receiver.close(), waker.close()


@pytest.mark.parametrize("end", [0, 1])
def test_a_closed_pair_refuses(end: int) -> None:
    pair = wake_up_pair()
    pair[0].arm()
    pair[end].close()
    with pytest.raises(OSError):
        pair[1].send(b"\0")
    pair[1 - end].close()


@pytest.mark.parametrize(("threads", "batches", "batch"), [(1, 5000, 1), (6, 300, 5)])
def test_no_ring_of_many_threads_is_lost_or_slept_on(threads: int, batches: int, batch: int) -> None:
    """As kazoo: append, wake; the loop takes one for each wake-up.  A loop that sleeps with work waiting is stuck, as the
    others wait for it before they go on."""
    receiver, waker = wake_up_pair()
    handler, work = PollHandler(), deque[threading.Semaphore]()

    def ask() -> None:
        done = threading.Semaphore(0)
        for _ in range(batches):
            for _ in range(batch):
                work.append(done)
                waker.send(b"\0")
            for _ in range(batch):
                assert done.acquire(timeout=REPORTED_AFTER_S)

    askers = [threading.Thread(target=ask, daemon=True) for _ in range(threads)]
    for asker in askers:
        asker.start()
    for _ in range(threads * batches * batch):
        assert handler.select([receiver], [], [], REPORTED_AFTER_S)[0], f"armed with {len(work)} waiting"
        work.popleft().release()
        assert receiver.recv(1) == b"\0"
    for asker in askers:
        asker.join(REPORTED_AFTER_S)
    assert not work and not receiver.at_hand
    receiver.close(), waker.close()


def test_a_stream_of_requests_does_not_choke_the_answers(pair: Pair) -> None:
    connection, peer = pair
    receiver, waker = wake_up_pair()
    handler = PollHandler()
    peer.sendall(b"answer")
    asked = 0
    while connection not in handler.select([connection, receiver], [], [], 60)[0] or not asked:
        waker.send(b"\0")
        connection.send(bytes(100))
        asked += 1
        assert asked * 100 <= GATHER_BYTES + 200
    receiver.close(), waker.close()

"""The host's end of an exchange, with real sockets: relays are played by threads of this test."""

from __future__ import annotations

import json
import os
import queue
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.node import links as module
from reprise.spark_jobs.node.links import (
    DRIVER,
    FROM_INLET,
    HELLO,
    INLET,
    OUTLET,
    TO_OUTLET,
    TOO_LATE,
    WELCOME,
    Links,
)
from reprise.spark_jobs.node.meeting import announce, listen
from reprise.spark_jobs.node.rounds import NO_ROUND, Kind, encode_answer
from reprise.spark_jobs.node.seal import KEY_BYTES, Seal
from tools.testbed.waiting import until

KEY, LATER = b"k" * KEY_BYTES, b"l" * KEY_BYTES
OTHER = 9
"""The slot from which relays bring frames."""
Heard = "queue.SimpleQueue[tuple[int, bytes]]"
CONNECTED = encode_answer(NO_ROUND, Kind.CONNECTED, b"")


class Played:
    """A relay: says its hello at once, and keeps the answer."""

    def __init__(self, home: Path, kind: bytes, number: int, slot: int = 0, key: bytes | None = None) -> None:
        record = json.loads((home / "exchange.json").read_text())
        self.connected, self.slot = 0, slot
        self.seal = Seal(KEY, OTHER)
        self.readers: dict[int, Seal] = {}
        self.plain = socket.socket(socket.AF_UNIX)
        self.plain.settimeout(20.0)
        self.plain.connect(str(home / "exchange.sock"))
        self.plain.sendall(HELLO.pack(kind, number, slot, key or bytes.fromhex(record["key"])))
        try:
            self.answer = self.plain.recv(1)
        except ConnectionResetError:
            self.answer = b""

    def bring(self, *frames: bytes) -> None:
        sealed = [self.seal.close(self.slot, frame) for frame in frames]
        self.plain.sendall(b"".join(FROM_INLET.pack(len(frame)) + frame for frame in sealed))

    def taken(self) -> tuple[int, bytes]:
        """The next frame, but for that which reports the connection to the driver."""
        while (found := self._frame()) == (DRIVER, CONNECTED):
            self.connected += 1
        slot, frame = found
        return slot, frame if slot == DRIVER else self.readers.setdefault(slot, Seal(KEY, slot)).open(frame)

    def _frame(self) -> tuple[int, bytes]:
        slot, length = TO_OUTLET.unpack(self._read(TO_OUTLET.size))
        return slot, self._read(length)

    def _read(self, length: int) -> bytes:
        parts: list[bytes] = []
        while (left := length - sum(map(len, parts))) > 0:
            parts.append(self.plain.recv(left))
            assert parts[-1], "the host has ended it"
        return b"".join(parts)

    def ended(self) -> bool:
        """Once it is; TimeoutError: it is not."""
        with suppress(ConnectionResetError):
            while self.plain.recv(4096):
                pass
        return True


@pytest.fixture
def heard() -> Heard:
    return queue.SimpleQueue()


@pytest.fixture
def links(tmp_path: Path, heard: Heard) -> Iterator[Links]:
    made = Links(tmp_path, lambda number, frame: heard.put((number, frame)))
    yield made
    made.close()


def pair(home: Path, number: int, slot: int = 0) -> tuple[Played, Played]:
    outlet, inlet = Played(home, OUTLET, number, slot), Played(home, INLET, number, slot)
    assert outlet.answer == inlet.answer == WELCOME
    return outlet, inlet


def test_what_a_relay_finds_is_for_this_user_alone(tmp_path: Path, links: Links) -> None:
    for name in ("exchange.sock", "exchange.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert stat.S_ISSOCK((tmp_path / "exchange.sock").stat().st_mode)
    assert len(bytes.fromhex(json.loads((tmp_path / "exchange.json").read_text())["key"])) == 32
    links.close()
    assert list(tmp_path.iterdir()) == []


def test_it_takes_the_place_of_a_host_that_was_here_before(tmp_path: Path, heard: Heard) -> None:
    listen(tmp_path, "exchange.sock").close()
    announce(tmp_path, "exchange.json", "exchange.sock", b"\1" * 32)
    made = Links(tmp_path, lambda number, frame: heard.put((number, frame)))
    made.attach(1, KEY)
    relays = pair(tmp_path, 1)
    until(lambda: made.ready, "both relays")
    made.close()
    assert all(relay.ended() for relay in relays)


def test_frames_go_out_and_come_in_whole_and_in_order(tmp_path: Path, links: Links, heard: Heard) -> None:
    links.attach(7, KEY)
    outlet, inlet = pair(tmp_path, 7, slot=2)
    until(lambda: links.ready, "both relays")
    frames = [bytes([n % 251]) * (n * 37 % 5000) for n in range(300)]
    for n, frame in enumerate(frames):
        assert links.send(n % 5, frame)
    assert [outlet.taken() for _ in frames] == [(n % 5, frame) for n, frame in enumerate(frames)]
    inlet.bring(*frames)
    assert [heard.get(timeout=300) for _ in frames] == [(7, frame) for frame in frames]


def test_without_an_outlet_nothing_is_taken(tmp_path: Path, links: Links) -> None:
    assert not links.ready
    assert not links.send(1, b"x")
    outlet = Played(tmp_path, OUTLET, 3)
    assert not links.send(1, b"x"), "it waits, as its exchange is not attached"
    links.attach(3, KEY)
    until(lambda: links.send(1, b"x"), "its turn")
    assert not links.ready, "the inlet is missing"
    assert outlet.taken() == (1, b"x")
    outlet.plain.close()
    until(lambda: not links.send(1, b"x"), "a relay that ends is missed without a write")


def test_a_queue_has_a_bound_in_bytes_and_send_never_waits(tmp_path: Path, links: Links) -> None:
    links.attach(1, KEY)
    outlet, inlet = pair(tmp_path, 1)
    large = os.urandom(module.QUEUE_BYTES + 1)
    until(lambda: links.send(0, large), "one that is larger than the queue is taken by an empty one")
    frame = os.urandom(1 << 20)
    taken = until(lambda: 0 if links.send(0, frame) else 1, "the outlet does not read, so the queue fills")
    assert taken
    assert outlet.taken() == (0, large)
    until(lambda: links.send(0, frame), "room again")
    assert inlet.answer == WELCOME


def test_a_wrong_key_or_kind_is_not_answered_and_feeds_nothing(
    tmp_path: Path, links: Links, heard: Heard
) -> None:
    links.attach(1, KEY)
    wrong = Played(tmp_path, INLET, 1, key=b"k" * 32)
    assert wrong.answer == b""
    assert Played(tmp_path, b"x", 1).answer == b""
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        wrong.bring(b"not mine")
    assert not links.ready
    outlet, inlet = pair(tmp_path, 1)
    inlet.bring(b"mine")
    assert heard.get(timeout=300) == (1, b"mine")
    assert links.ready and outlet.answer == WELCOME
    assert heard.empty()


def test_a_stranger_who_says_nothing_holds_nobody_up_and_is_let_go(
    tmp_path: Path, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HELLO_S", 0.3)
    silent, slow = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    for stranger in (silent, slow):
        stranger.settimeout(20.0)
        stranger.connect(str(tmp_path / "exchange.sock"))
    slow.sendall(b"o\0\0")
    links.attach(1, KEY)
    relays = pair(tmp_path, 1)
    until(lambda: links.ready, "both relays, beside the strangers")
    assert silent.recv(1) == slow.recv(1) == b""
    assert links.ready and relays


def test_the_next_exchange_waits_beside_this_one_until_it_is_attached(
    tmp_path: Path, links: Links, heard: Heard
) -> None:
    links.attach(1, KEY)
    old_outlet, old_inlet = pair(tmp_path, 1)
    new_outlet, new_inlet = pair(tmp_path, 2, slot=4)
    new_inlet.seal, new_outlet.readers[0] = Seal(LATER, OTHER), Seal(LATER, 0)
    until(lambda: links.there(2), "the next one")
    new_inlet.bring(b"early")
    old_inlet.bring(b"old")
    assert heard.get(timeout=300) == (1, b"old")
    assert links.ready
    links.attach(2, LATER)
    links.attach(2, LATER)
    assert heard.get(timeout=300) == (2, b"early")
    assert links.send(0, b"to the new one")
    assert new_outlet.taken() == (0, b"to the new one")
    old_inlet.bring(b"of the old one" * 100_000)  # is drained, so that the others of that exchange go on
    new_inlet.bring(b"last")
    assert heard.get(timeout=300) == (2, b"last")
    links.attach(3, KEY)
    assert old_outlet.ended(), "two changes later it is closed"
    assert old_inlet.ended()
    assert heard.empty()


def test_an_exchange_that_was_never_attached_is_drained_too(
    tmp_path: Path, links: Links, heard: Heard
) -> None:
    """Other hosts may still use it."""
    links.attach(1, KEY)
    left, (_, used) = pair(tmp_path, 2), pair(tmp_path, 3)
    links.attach(3, KEY)
    left[1].bring(b"nobody reads this" * 100_000)
    used.bring(b"last")
    assert heard.get(timeout=300) == (3, b"last")
    assert links.there(2) and heard.empty()


def test_an_exchange_that_is_over_is_told_so(tmp_path: Path, links: Links) -> None:
    links.attach(5, KEY)
    assert Played(tmp_path, OUTLET, 4).answer == TOO_LATE
    with pytest.raises(ValueError, match="exchange 4 is attached after exchange 5"):
        links.attach(4, KEY)
    links.attach(5, KEY)


@pytest.mark.parametrize(("kind", "slot"), [(OUTLET, 0), (INLET, 1)])
def test_a_task_of_another_slot_is_refused(tmp_path: Path, links: Links, kind: bytes, slot: int) -> None:
    links.attach(1, KEY)
    right = Played(tmp_path, OUTLET, 1, slot=0)
    wrong = Played(tmp_path, kind, 1, slot=slot)
    assert (right.answer, wrong.answer) == (WELCOME, TOO_LATE)
    assert not links.ready


def test_a_reader_that_fails_ends_its_connection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(number: int, frame: bytes) -> None:
        raise RuntimeError(f"no use for {frame!r} of {number}")

    made = Links(tmp_path, fail)
    made.attach(1, KEY)
    outlet, inlet = pair(tmp_path, 1)
    until(lambda: made.ready, "both relays")
    inlet.bring(b"x")
    assert inlet.ended()
    assert "no use for b'x' of 1" in capsys.readouterr().err
    until(lambda: not made.ready, "the exchange counts as broken")
    made.close()
    assert outlet.ended()


def test_a_frame_that_nobody_with_the_key_has_sent_ends_the_exchange(
    tmp_path: Path, links: Links, heard: Heard, capsys: pytest.CaptureFixture[str]
) -> None:
    links.attach(1, KEY)
    outlet, inlet = pair(tmp_path, 1)
    inlet.seal = Seal(b"x" * KEY_BYTES, OTHER)
    inlet.bring(b"forged")
    assert inlet.ended()
    assert outlet.ended(), "the relay that always reads sees it at once"
    assert f"slot 0 got a frame that slot {OTHER} has not sent" in capsys.readouterr().err
    assert heard.empty()


def test_a_frame_that_cannot_be_sealed_ends_the_exchange(
    tmp_path: Path, links: Links, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> bytes:
        raise MemoryError("no room")

    links.attach(1, KEY)
    relays = pair(tmp_path, 1)
    until(lambda: links.ready, "both relays")
    monkeypatch.setattr(Seal, "close", fail)
    assert links.send(1, b"x")
    assert all(relay.ended() for relay in relays)
    assert "no room" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["links", "outlet", "inlet"])
def test_when_it_closes_nobody_is_left(tmp_path: Path, what: str) -> None:
    before = set(threading.enumerate())
    made = Links(tmp_path, lambda number, frame: None)
    made.attach(1, KEY)
    outlet, inlet = pair(tmp_path, 1)
    waiting = Played(tmp_path, INLET, 2)
    ends: dict[str, Callable[[], None]] = {
        "links": made.close,
        "outlet": outlet.plain.close,
        "inlet": inlet.plain.close,
    }
    ends[what]()
    until(lambda: not made.ready, "one end is enough")
    made.close()
    for relay in (outlet, inlet, waiting):
        assert relay.plain.fileno() < 0 or relay.ended()
    until(lambda: set(threading.enumerate()) <= before, "no thread is left")


@pytest.mark.parametrize("first", [OUTLET, INLET])
def test_the_driver_hears_of_an_exchange_once_orders_can_come_and_answers_can_leave(
    tmp_path: Path, heard: Heard, first: bytes
) -> None:
    """Relays begin on their own: what came by one while the other is not there yet could not be answered."""
    orders: Heard = queue.SimpleQueue()
    links = Links(
        tmp_path, lambda number, frame: heard.put((number, frame)), lambda *order: orders.put(order)
    )
    second = INLET if first == OUTLET else OUTLET
    links.attach(7, KEY)
    relays = {first: Played(tmp_path, first, 7)}
    assert not links.ready
    relays[second] = Played(tmp_path, second, 7)
    assert relays[OUTLET]._frame() == (DRIVER, CONNECTED)
    relays[INLET].plain.sendall(FROM_INLET.pack(-4) + b"work")
    relays[INLET].bring(b"row")
    assert orders.get(timeout=20.0) == (7, b"work")
    assert heard.get(timeout=20.0) == (7, b"row")
    links.answer(7, b"done")
    assert relays[OUTLET].taken() == (DRIVER, b"done")
    links.close()


def test_orders_of_the_next_exchange_come_before_it_is_attached_and_frames_after(
    tmp_path: Path, heard: Heard
) -> None:
    """Its first orders attach it, and hosts that had theirs first have sent frames by then."""
    orders: Heard = queue.SimpleQueue()
    links = Links(
        tmp_path, lambda number, frame: heard.put((number, frame)), lambda *order: orders.put(order)
    )
    links.attach(1, KEY)
    (_, before), (outlet, after) = pair(tmp_path, 1), pair(tmp_path, 2)
    assert outlet._frame() == (DRIVER, CONNECTED)
    after.bring(b"first", b"second")
    after.plain.sendall(FROM_INLET.pack(-5) + b"early")
    assert orders.get(timeout=20.0) == (2, b"early")
    links.answer(2, b"taken")
    assert outlet.taken() == (DRIVER, b"taken")
    assert heard.empty()
    links.attach(2, KEY)
    after.bring(b"third")
    assert [heard.get(timeout=20.0) for _ in range(3)] == [(2, b"first"), (2, b"second"), (2, b"third")]
    before.plain.sendall(FROM_INLET.pack(-4) + b"late")
    after.plain.sendall(FROM_INLET.pack(-4) + b"work")
    assert orders.get(timeout=20.0) == (2, b"work")
    links.answer(1, b"of the exchange before")
    links.answer(2, b"done")
    assert outlet.taken() == (DRIVER, b"done")
    links.close()
    assert orders.empty()


def test_a_frame_that_was_held_and_does_not_open_ends_the_exchange(
    tmp_path: Path, links: Links, heard: Heard, capsys: pytest.CaptureFixture[str]
) -> None:
    outlet, inlet = pair(tmp_path, 2)
    inlet.seal = Seal(LATER, OTHER)
    inlet.bring(b"forged")
    until(lambda: _inlet(links)._held, "the frame is held")
    links.attach(2, KEY)
    assert inlet.ended() and outlet.ended()
    assert f"slot 0 got a frame that slot {OTHER} has not sent" in capsys.readouterr().err
    assert heard.empty()


def test_frames_that_are_heard_while_an_exchange_is_attached_may_be_answered(tmp_path: Path) -> None:
    """A ping that was held is answered by the thread that attaches."""
    answers: list[bool] = []
    links = Links(tmp_path, lambda _number, frame: answers.append(links.send(3, frame)))
    outlet, inlet = pair(tmp_path, 2)
    inlet.bring(b"ping")
    until(lambda: _inlet(links)._held, "the frame is held")
    links.attach(2, KEY)
    assert answers == [True]
    assert outlet.taken() == (3, b"ping")
    links.close()


def _inlet(links: Links) -> Any:
    return links._here[2, INLET]

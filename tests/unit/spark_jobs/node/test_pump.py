"""What a pump makes of frames that come early, late, of another generation, or not at all."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprise.spark_jobs.errors import DataPlaneError, WireError
from reprise.spark_jobs.node import pump as pump_module
from reprise.spark_jobs.node.command import Command, Shadow
from reprise.spark_jobs.node.frames import Confirmation, FrameKind, Stamp, decode_frame, encode_frame
from reprise.spark_jobs.node.pump import CONFIRM_PART, CONFIRM_S, FIRST_S, PING_S, SILENT_S, Pump, Turn
from reprise.spark_jobs.node.sending import Sent
from reprise.spark_jobs.node.wire import Message, pack
from reprise.spark_jobs.platform import PLATFORM

COMMAND = Command(job=5, epoch=2, slot=0, topology="", sink="", checkpoints="", link=9, generation=3)
THERE = Stamp(2, 3, 5, 1)


class Ends:
    """A host and its links, as far as a pump sees them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.attached: list[int] = []
        self.ready = True
        self.sent: list[tuple[int, bytes]] = []
        self.room = True
        self.closed = 0
        self.delivered: list[Message] = []
        self.command: Command | None = None
        self.begun = True
        self.runtimes: dict[str, Any] = {"b.0": SimpleNamespace(position=4)}
        self.sender = SimpleNamespace(confirmed={}, outgoing=self._outgoing, cut=False)
        self.waiting: dict[int, Sent] = {}
        platform = replace(PLATFORM, elapsed=lambda: self.now)
        self.pump = Pump(cast(Any, self), lambda _: cast(Any, self), platform)

    def attach(self, number: int, _key: bytes) -> None:
        self.attached.append(number)

    def send(self, slot: int, frame: bytes) -> bool:
        if self.room:
            self.sent.append((slot, frame))
        return self.room

    def close(self) -> None:
        self.closed += 1

    def run(self, budget_s: float) -> bool:
        return False

    def worked(self, seconds: float) -> None:
        assert seconds >= 0

    def deliver(self, message: Message) -> None:
        self.delivered.append(message)

    def _outgoing(
        self, command: Command, without: Collection[int], limit: float, within_s: float
    ) -> dict[int, Sent]:
        found = {slot: sent for slot, sent in self.waiting.items() if slot not in without}
        for slot in found:
            del self.waiting[slot]
        return found

    def begin(self, command: Command) -> None:
        self.command = command
        self.pump.begun(command)

    def confirmed(self) -> list[Confirmation]:
        """What it has confirmed, once a confirmation need not wait any longer."""
        self.now += CONFIRM_S
        self.pump.round()
        found = [decode_frame(frame) for _, frame in self.sent]
        return [Confirmation.decode(body) for kind, _, body in found if kind is FrameKind.CONFIRMATION]

    def due_in(self) -> float:
        return math.inf

    def kinds(self) -> list[FrameKind]:
        return [decode_frame(frame)[0] for _, frame in self.sent]


@pytest.fixture
def ends() -> Ends:
    found = Ends()
    found.begin(COMMAND)
    return found


def message(batch: int) -> tuple[Message, bytes]:
    return Message("a.0", "b.0", batch, None, None), b""


def frame(stamp: Stamp, batch: int) -> bytes:
    return encode_frame(FrameKind.MESSAGES, stamp, pack([message(batch)]))


def batches(ends: Ends) -> list[int]:
    return [m.batch for m in ends.delivered]


def test_what_comes_is_delivered_and_confirmed_with_what_is_applied(ends: Ends) -> None:
    ends.pump.heard(9, frame(THERE, 5))
    assert ends.pump.round()
    assert batches(ends) == [5]
    assert ends.confirmed() == [Confirmation(1, {"b.0": 4})]
    assert ends.sent[0][0] == 1
    assert decode_frame(ends.sent[0][1])[1] == Stamp(2, 3, 5, 0)
    assert len(ends.confirmed()) == 1, "nothing is new"
    ends.runtimes["b.0"].position = 5
    ends.pump.round()
    assert ends.confirmed()[1:] == [Confirmation(1, {"b.0": 5})]


def test_what_comes_in_a_short_time_is_confirmed_in_one_frame(ends: Ends) -> None:
    for batch in (5, 6, 7):
        ends.pump.heard(9, frame(THERE, batch))
        ends.pump.round()
        assert ends.sent == []
        assert 0 < ends.pump.due_in() <= CONFIRM_S, "its time comes though nothing else does"
        ends.now += CONFIRM_S / 4
    ends.runtimes["b.0"].position = 7
    assert ends.confirmed() == [Confirmation(3, {"b.0": 7})]
    assert ends.pump.due_in() == math.inf


def test_a_sender_that_may_have_no_room_is_told_at_once(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "WINDOW_BYTES", 8 * len(frame(THERE, 5)))
    for batch in (5, 6):
        assert ends.sent == []
        ends.pump.heard(9, frame(THERE, batch))
        ends.pump.round()
    assert ends.kinds() == [FrameKind.CONFIRMATION]


def test_a_sender_that_may_soon_send_no_further_batch_is_told_at_once(ends: Ends) -> None:
    ends.pump.heard(9, frame(THERE, 5))
    ends.pump.round()
    assert ends.confirmed() == [Confirmation(1, {"b.0": 4})]
    ends.runtimes["b.0"].position += COMMAND.window // CONFIRM_PART - 1
    ends.pump.round()
    assert len(ends.sent) == 1
    ends.runtimes["b.0"].position += 1
    ends.pump.round()
    assert len(ends.sent) == 2


def test_a_confirmation_that_finds_no_room_is_tried_again_after_a_while(ends: Ends) -> None:
    ends.room = False
    ends.pump.heard(9, frame(THERE, 5))
    ends.pump.round()
    ends.now += CONFIRM_S
    ends.pump.round()
    assert ends.pump.due_in() > 0, "not at once, again and again"
    ends.room = True
    assert ends.confirmed() == [Confirmation(1, {"b.0": 4})]


def test_what_was_cut_short_is_sent_in_the_next_round(ends: Ends) -> None:
    ends.sender.cut = True
    assert ends.pump.round()
    ends.waiting[1] = [message(5)]
    assert ends.pump.round() and [slot for slot, _ in ends.sent] == [1], "though nothing has come since"
    ends.sender.cut = False
    assert not ends.pump.round()


def test_nothing_of_a_standby_is_confirmed(ends: Ends) -> None:
    """Its partition, on another node, may be behind it."""
    ends.begin(replace(COMMAND, job=6, standbys={"b.0": Shadow(0, 4, False, 4)}))
    ends.pump.heard(9, frame(THERE, 5))
    assert ends.pump.round()
    assert batches(ends) == [5]
    assert ends.confirmed() == [Confirmation(1, {})]


def test_nothing_moves_between_two_executors(ends: Ends) -> None:
    ends.pump.part()
    assert ends.closed == 1
    ends.pump.heard(9, frame(THERE, 5))
    assert not ends.pump.round()
    assert batches(ends) == []
    ends.pump.meet(lambda _: cast(Any, ends))
    assert ends.pump.round()
    assert batches(ends) == [5]


def test_messages_under_orders_that_are_not_here_wait_for_them(ends: Ends) -> None:
    ends.pump.heard(9, frame(THERE._replace(job=6), 5))
    ends.pump.round()
    assert batches(ends) == []
    assert [c.frames for c in ends.confirmed()] == [1], "it has come all the same"
    ends.begin(replace(COMMAND, job=6))
    assert batches(ends) == [5]


@pytest.mark.parametrize(
    "stamp", [THERE._replace(generation=2), THERE._replace(epoch=1, job=90)], ids=["generation", "driver"]
)
def test_messages_of_an_earlier_generation_or_driver_are_dropped(ends: Ends, stamp: Stamp) -> None:
    ends.pump.heard(9, frame(stamp, 5))
    ends.pump.round()
    assert batches(ends) == []


def test_a_large_bundle_travels_in_pieces_and_is_taken_in_once_it_is_whole(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump_module, "PIECE", 10)
    bundle = pack([message(5), message(6)])
    pieces = list(pump_module._frames(bundle, THERE))
    assert len(pieces) == -(-len(bundle) // 10)
    for piece in pieces[:-1]:
        ends.pump.heard(9, piece)
    ends.pump.round()
    assert batches(ends) == []
    assert [c.frames for c in ends.confirmed()] == [len(pieces) - 1], "it may send more"
    ends.pump.heard(9, pieces[-1])
    ends.pump.heard(9, frame(THERE, 7))
    ends.pump.round()
    assert batches(ends) == [5, 6, 7]


def test_pieces_of_two_nodes_or_of_two_exchanges_make_no_bundle_together(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump_module, "PIECE", 10)
    here, there = (list(pump_module._frames(pack([message(b)]), THERE._replace(slot=b))) for b in (1, 2))
    for one, other in zip(here[:-1], there[:-1], strict=True):
        ends.pump.heard(9, one)
        ends.pump.heard(9, other)
    ends.pump.heard(9, here[-1])
    ends.pump.round()
    assert batches(ends) == [1]
    ends.begin(replace(COMMAND, job=6, link=10))
    for piece in there:
        ends.pump.heard(10, piece)
    ends.pump.round()
    assert batches(ends) == [1, 2]


def test_frames_of_an_exchange_that_was_left_are_dropped(ends: Ends) -> None:
    ends.pump.heard(9, frame(THERE._replace(job=6), 5))
    ends.pump.round()
    ends.begin(replace(COMMAND, job=6, link=10))
    assert ends.attached == [9, 10]
    ends.pump.heard(9, frame(THERE, 6))
    ends.pump.round()
    assert batches(ends) == [], "all of it is sent again over the next one"


def test_no_more_is_under_way_to_a_node_than_its_window(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(frame(THERE, 1))
    monkeypatch.setattr(pump_module, "WINDOW_BYTES", 2 * size)
    monkeypatch.setattr(pump_module, "FRAME", 0)
    ends.waiting[1] = [message(k) for k in (1, 2, 3)]
    ends.pump.round()
    assert ends.kinds() == [FrameKind.MESSAGES] * 2
    ends.waiting[1] = [message(4)]
    ends.pump.round()
    assert len(ends.sent) == 2 and ends.waiting, "what waits is bounded"
    ends.pump.heard(9, encode_frame(FrameKind.CONFIRMATION, THERE, Confirmation(2, {"c.0": 2}).encode()))
    ends.pump.round()
    ends.pump.round()
    assert len(ends.sent) == 4
    assert ends.sender.confirmed == {"c.0": 2}


def test_a_frame_without_room_is_sent_later_and_once(ends: Ends) -> None:
    ends.waiting[1] = [message(1)]
    ends.room = False
    ends.pump.round()
    ends.room = True
    ends.pump.round()
    ends.pump.round()
    assert ends.kinds() == [FrameKind.MESSAGES]


@pytest.mark.parametrize(("met", "limit_s"), [(True, SILENT_S), (False, FIRST_S)])
def test_who_neither_confirms_nor_answers_makes_the_next_job_fail(
    ends: Ends, met: bool, limit_s: float
) -> None:
    """One from which nothing has come may have no orders yet: it answers later."""
    if met:
        ends.pump.heard(9, encode_frame(FrameKind.PONG, THERE, b""))
    ends.waiting[1] = [message(1)]
    for _ in range(2):
        ends.pump.round()
    ends.now += PING_S + 0.1
    ends.pump.round()
    assert ends.kinds() == [FrameKind.MESSAGES, FrameKind.PING]
    ends.now += limit_s - 0.1
    ends.pump.round()
    ends.pump.checked()
    ends.now += 0.2
    ends.pump.round()
    with pytest.raises(DataPlaneError, match="slot 1 has not answered"):
        ends.pump.checked()
    ends.begin(replace(COMMAND, job=6, link=10))
    ends.pump.checked()


def test_a_ping_that_finds_no_room_starts_the_clock_too(ends: Ends) -> None:
    """More than 32 nodes fill the outlet, which does not read: nothing leaves, and nothing comes back."""
    ends.waiting[1] = [message(1)]
    for _ in range(2):
        ends.pump.round()
    ends.room = False
    ends.now += PING_S + 0.1
    ends.pump.round()
    ends.pump.checked()
    ends.now += FIRST_S + 0.1
    ends.pump.round()
    with pytest.raises(DataPlaneError, match="slot 1 has not answered"):
        ends.pump.checked()


def test_who_is_busy_and_answers_is_waited_for(ends: Ends) -> None:
    ends.waiting[1] = [message(1)]
    for _ in range(10):
        ends.pump.round()
        ends.now += SILENT_S / 2
        ends.pump.heard(9, encode_frame(FrameKind.PONG, THERE, b""))
    ends.pump.checked()


def test_a_step_of_its_own_that_takes_long_convicts_nobody(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came meanwhile is read before anybody is asked or convicted."""
    ends.waiting[1] = [message(1)]

    def long_step(_budget_s: float) -> bool:
        ends.now += 5 * SILENT_S
        ends.pump.heard(9, encode_frame(FrameKind.CONFIRMATION, THERE, Confirmation(1, {}).encode()))
        return False

    ends.pump.round()
    monkeypatch.setattr(ends, "run", long_step)
    for _ in range(3):
        ends.pump.round()
    ends.pump.checked()


def test_a_confirmation_from_before_its_target_began_anew_is_not_believed(ends: Ends) -> None:
    ends.begin(replace(COMMAND, job=7, resend=("c.0",)))
    told = Confirmation(0, {"c.0": 500}).encode()
    ends.pump.heard(9, encode_frame(FrameKind.CONFIRMATION, THERE._replace(job=6), told))
    ends.pump.round()
    assert ends.sender.confirmed == {}
    ends.pump.heard(9, encode_frame(FrameKind.CONFIRMATION, THERE._replace(job=7), told))
    ends.pump.round()
    assert ends.sender.confirmed == {"c.0": 500}


def test_code_that_would_end_the_process_makes_the_next_job_fail(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves(_budget_s: float) -> bool:
        raise SystemExit("bye")

    monkeypatch.setattr(ends, "run", leaves)
    ends.pump.round()
    with pytest.raises(DataPlaneError, match="SystemExit: bye"):
        ends.pump.checked()


def test_a_ping_is_answered_by_whoever_reads_it(ends: Ends) -> None:
    """Without the host's turn, which a step that takes minutes may have."""
    ends.pump.heard(9, encode_frame(FrameKind.PING, THERE, b""))
    assert [(slot, decode_frame(f)[0]) for slot, f in ends.sent] == [(1, FrameKind.PONG)]
    ends.pump.heard(8, encode_frame(FrameKind.PING, THERE, b""))
    assert len(ends.sent) == 1, "of another exchange"


def test_a_ping_that_waited_for_the_exchange_is_answered_by_the_slot_that_the_host_has_there(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    ping = encode_frame(FrameKind.PING, THERE._replace(job=6), b"")
    monkeypatch.setattr(ends, "attach", lambda number, _key: ends.pump.heard(number, ping))
    ends.begin(replace(COMMAND, job=6, link=10, slot=4))
    ((slot, answer),) = ends.sent
    assert (slot, decode_frame(answer)[:2]) == (1, (FrameKind.PONG, Stamp(2, 3, 6, 4)))


def test_what_cannot_be_read_makes_the_next_job_fail(ends: Ends) -> None:
    ends.pump.heard(9, b"\xff")
    ends.pump.round()
    with pytest.raises(DataPlaneError, match="exchange 9: WireError"):
        ends.pump.checked()
    with pytest.raises(WireError):
        Confirmation.decode(b"[]")


def test_a_host_that_is_not_connected_says_so_after_a_while(ends: Ends) -> None:
    ends.ready = False
    ends.waiting[1] = [message(1)]
    ends.pump.round()
    assert ends.waiting, "nothing is taken off its buffer before"
    ends.now += 61
    ends.pump.round()
    with pytest.raises(DataPlaneError, match="not connected"):
        ends.pump.checked()


def test_orders_that_were_not_taken_in_whole_move_nothing(ends: Ends) -> None:
    ends.begun = False
    ends.pump.heard(9, frame(THERE, 5))
    assert not ends.pump.round()
    assert batches(ends) == []


def test_a_request_has_its_turn_before_the_next_piece_of_work() -> None:
    turn, said = Turn(), list[str]()
    asked, free = threading.Event(), threading.Event()

    def request() -> None:
        asked.set()
        with turn.request():
            said.append("request")
        free.set()

    with turn.work():
        threading.Thread(target=request, daemon=True).start()
        assert asked.wait(300)
        while not turn._requests:
            free.wait(0.01)
    with turn.work():
        said.append("work")
    assert said == ["request", "work"]

"""Ranges of offsets on a client that is made up: what is read again is the same, whatever comes when.

The log has holes, as where transactions end and where compaction has been; its client gives messages in pieces, drops what
it had fetched when it is assigned anew, and says where a log ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import NotYetError, SourceError
from reprise.spark_jobs.kafka import reader
from reprise.spark_jobs.kafka.reader import ALARM_S, OffsetsLostError, Reader
from reprise.spark_jobs.kafka.settings import Settings
from tests.support.examples import examples
from tests.support.fake_kafka import Message


class Client:
    """Fetches in turn from the logs that it is assigned and that are not paused, `size` messages at a time."""

    def __init__(self, world: World) -> None:
        self._world, self._at, self._paused = world, dict[str, int](), set[str]()
        self._told_end = set[str]()
        self.closed = False

    def assign(self, at: Sequence[TopicPartition]) -> None:
        self._world.assigned.append({f"{p.topic}/{p.partition}": p.offset for p in at})
        self._at, self._told_end = dict(self._world.assigned[-1]), set()
        self._paused.clear()

    def pause(self, at: Sequence[TopicPartition]) -> None:
        self._paused |= {f"{p.topic}/{p.partition}" for p in at}
        self._world.paused.append(set(self._paused))

    def resume(self, at: Sequence[TopicPartition]) -> None:
        self._paused -= {f"{p.topic}/{p.partition}" for p in at}

    def consume(self, count: int, timeout: float) -> list[Message]:
        if self._world.errors:
            raise self._world.errors.popleft()
        self._world.now += 0.01
        found: list[Message] = []
        for log in sorted(self._at):
            if log in self._paused or log in self._world.silent:
                continue
            begin, end = self._world.bounds[log]
            if not begin <= self._at[log] <= end:
                found.append(Message(log, self._at[log], code=KafkaError._AUTO_OFFSET_RESET))
                del self._at[log]
                continue
            there = [o for o in self._world.offsets[log] if o >= self._at[log]][: self._world.size]
            found += [Message(log, o) for o in there]
            if there:
                self._at[log] = there[-1] + 1
            elif log not in self._told_end:
                self._told_end.add(log)
                found.append(Message(log, end, code=KafkaError._PARTITION_EOF))
        return found

    def get_watermark_offsets(self, at: TopicPartition, timeout: float) -> tuple[int, int]:
        return self._world.bounds[f"{at.topic}/{at.partition}"]

    def close(self) -> None:
        self.closed = True


class World:
    """Logs as the brokers have them, and a clock that only moves when somebody waits."""

    def __init__(self, **offsets: list[int]) -> None:
        self.offsets = {name.replace("_", "/"): numbers for name, numbers in offsets.items()}
        self.bounds = {log: (0, max(numbers, default=-1) + 1) for log, numbers in self.offsets.items()}
        self.size = 3
        self.silent: set[str] = set()
        self.errors: deque[BaseException] = deque()
        self.assigned: list[dict[str, int]] = []
        self.paused: list[set[str]] = []
        self.clients: list[Client] = []
        self.now = 1000.0
        self.ids: dict[str, str] = {}
        self.requests = 0
        self.requested: set[str] = set()
        self.unanswered: deque[BaseException] = deque()

    def client(self, _settings: Any) -> Client:
        self.clients.append(Client(self))
        return self.clients[-1]

    def ids_of(self, bootstrap: str, settings: Settings, topics: Iterable[str]) -> World:
        """In the place of `TopicIds`."""
        self.requests += 1
        self.requested = self.topics = frozenset(topics)
        return self

    def result(self, patience_s: float) -> dict[str, str]:
        if self.unanswered:
            raise self.unanswered.popleft()
        return self.ids

    def patch(self, patch: pytest.MonkeyPatch) -> World:
        patch.setattr(reader, "Consumer", self.client)
        patch.setattr(reader, "TopicIds", self.ids_of)
        patch.setattr(f"{__name__}.Reader", partial(Reader, elapsed=lambda: self.now))
        return self


def made(*clusters: str, skip_lost: bool = False, standby_after_s: float = 10.0) -> Reader:
    return Reader(
        clusters or ("b:1",), Settings({}), name="in.0", skip_lost=skip_lost, standby_after_s=standby_after_s
    )


def patiently(reading: Reader, spans: dict[str, tuple[int, int]]) -> dict[str, list[int]]:
    for _ in range(50):
        try:
            return {log: [m.offset() or 0 for m in found] for log, found in reading.read(spans).items()}
        except NotYetError:
            continue
    raise AssertionError("the range never came")


logs = st.dictionaries(
    st.sampled_from(["t_0", "t_1", "u_0"]), st.sets(st.integers(0, 30), max_size=20), min_size=1
)


@examples(50)
@given(logs, st.integers(1, 7), st.data())
def test_a_range_is_what_the_log_holds_there_in_whatever_order_ranges_are_read(
    offsets: dict[str, set[int]], size: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = World(**{name: sorted(found) for name, found in offsets.items()}).patch(patch)
        world.size = size
        patch.setattr(reader, "CHUNK", 4)
        reading = made()
        for _ in range(data.draw(st.integers(1, 4))):
            spans = {}
            for log in data.draw(st.sets(st.sampled_from(sorted(world.offsets)))):
                end = world.bounds[log][1]
                if end:
                    start = data.draw(st.integers(0, end - 1))
                    spans[log] = (start, data.draw(st.integers(start + 1, end)))
            expected = {
                log: [o for o in world.offsets[log] if start <= o < end]
                for log, (start, end) in sorted(spans.items())
            }
            assert patiently(reading, spans) == expected


@examples(60)
@given(
    st.sets(st.integers(0, 40), min_size=1),
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(1, 9),
)
def test_ranges_one_after_the_other_give_every_message_once_and_fetch_once(
    offsets: set[int], steps: list[int], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = World(t_0=sorted(offsets)).patch(patch)
        world.size = size
        reading, at, found = made(), 0, []
        for step in steps:
            end = min(at + step, world.bounds["t/0"][1])
            if end > at:
                found += patiently(reading, {"t/0": (at, end)})["t/0"]
            at = end
        assert found == [o for o in sorted(offsets) if o < at]
        assert len(world.assigned) == 1


def test_a_log_far_ahead_makes_room_for_those_that_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(t_0=list(range(100)), t_1=[0, 1]).patch(monkeypatch)
    monkeypatch.setattr(reader, "CHUNK", 10)
    world.silent.add("t/1")
    reading = made()
    with pytest.raises(NotYetError, match=r"waiting for t/1$"):
        reading.read({"t/0": (0, 5), "t/1": (0, 2)})
    assert world.paused == [{"t/0"}]
    world.silent.clear()
    assert patiently(reading, {"t/0": (0, 5), "t/1": (0, 2)}) == {"t/0": [0, 1, 2, 3, 4], "t/1": [0, 1]}
    assert patiently(reading, {"t/0": (5, 100)})["t/0"] == list(range(5, 100))
    assert len(world.assigned) == 1


def test_a_log_far_ahead_stays_held_back_however_often_the_others_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition of a topic may be away for hours, while another one goes on."""
    world = World(t_0=list(range(1000)), t_1=[0, 1]).patch(monkeypatch)
    monkeypatch.setattr(reader, "CHUNK", 10)
    world.silent.add("t/1")
    reading = made()
    for _ in range(50):
        with pytest.raises((NotYetError, SourceError)):
            reading.read({"t/0": (0, 5), "t/1": (0, 2)})
    assert len(reading._logs["t/0"].kept) <= 10 + world.size
    assert world.paused == [{"t/0"}], "it was told once"


def test_a_log_that_has_caught_up_with_its_range_is_held_back_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(t_0=list(range(1000)), t_1=list(range(60))).patch(monkeypatch)
    monkeypatch.setattr(reader, "CHUNK", 10)
    reading, most = made(), 0
    for begin in range(0, 60, 20):
        world.silent.add("t/1")
        with pytest.raises(NotYetError):
            reading.read({"t/0": (begin, begin + 20), "t/1": (begin, begin + 20)})
        most = max(most, len(reading._logs["t/0"].kept))
        world.silent.clear()
        found = patiently(reading, {"t/0": (begin, begin + 20), "t/1": (begin, begin + 20)})
        assert found["t/0"] == found["t/1"] == list(range(begin, begin + 20))
    assert world.paused == [{"t/0"}] * 3
    assert most <= 20 + 10, "what a range has, and a chunk"


def test_offsets_that_retention_removed_are_an_error_or_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(t_0=list(range(20))).patch(monkeypatch)
    world.bounds["t/0"] = (8, 20)
    world.offsets["t/0"] = list(range(8, 20))
    with pytest.raises(OffsetsLostError, match=r"t/0: offsets from 3 are gone, the log now has 8 to 20"):
        made().read({"t/0": (3, 12)})
    choosing = made(skip_lost=True)
    assert patiently(choosing, {"t/0": (3, 12)}) == {"t/0": [8, 9, 10, 11]}
    assert choosing.notices == [
        "t/0: offsets from 3 are gone, the log now has 8 to 20; 5 offsets are left out"
    ]
    assert patiently(choosing, {"t/0": (12, 20)}) == {"t/0": list(range(12, 20))}
    gone = made(skip_lost=True)
    assert patiently(gone, {"t/0": (2, 6)}) == {"t/0": []}
    assert gone.notices == ["t/0: offsets from 2 are gone, the log now has 8 to 20; 4 offsets are left out"]


def test_a_topic_made_anew_has_nothing_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(t_0=[0, 1]).patch(monkeypatch)
    with pytest.raises(OffsetsLostError, match="offsets from 50 are gone, the log now has 0 to 2"):
        made().read({"t/0": (50, 60)})
    choosing = made(skip_lost=True)
    assert patiently(choosing, {"t/0": (50, 60)}) == {"t/0": []}
    assert "10 offsets are left out" in choosing.notices[0]
    assert world.bounds["t/0"] == (0, 2)


def test_after_a_while_without_the_rest_it_is_said_what_is_missing_and_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(t_0=[0], t_1=[0]).patch(monkeypatch)
    world.silent.add("t/1")
    reading = made("b:9")
    for _ in range(3):
        with pytest.raises(NotYetError, match="waiting for t/1"):
            reading.read({"t/0": (0, 1), "t/1": (0, 1)})
    world.now += ALARM_S
    world.errors.append(KafkaException(KafkaError(KafkaError._TRANSPORT, "connection refused")))
    with pytest.raises(
        SourceError, match=r"rows of t/0, t/1 have not come from b:9 for \d s: .*connection refused"
    ):
        reading.read({"t/0": (0, 1), "t/1": (0, 1)})
    world.silent.clear()
    assert patiently(reading, {"t/0": (0, 1), "t/1": (0, 1)}) == {"t/0": [0], "t/1": [0]}
    assert reading._trouble == ""


def test_an_error_of_one_log_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(t_0=[0]).patch(monkeypatch)
    world.silent.add("t/0")
    reading = made()
    with pytest.raises(NotYetError):
        reading.read({"t/0": (0, 1)})
    said = [Message("t/0", 0, code=KafkaError.TOPIC_AUTHORIZATION_FAILED), Message("x/0", 0)]
    reading._keep(said, {})  # type: ignore[arg-type]
    world.now += ALARM_S
    with pytest.raises(SourceError, match=r"rows of t/0 .*: t/0: .*\(TOPIC_AUTHORIZATION_FAILED\)"):
        reading.read({"t/0": (0, 1)})


def test_another_cluster_is_asked_and_what_has_come_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(t_0=[0, 1, 2], t_1=[0]).patch(monkeypatch)
    world.silent.add("t/1")
    reading = made("first:1", "second:1", standby_after_s=2.0)
    spans = {"t/0": (0, 3), "t/1": (0, 1)}
    with pytest.raises(NotYetError, match="waiting for"):
        reading.read(spans)
    world.now += 2.0
    with pytest.raises(NotYetError, match="another cluster is asked"):
        reading.read(spans)
    assert reading.notices == ["reading goes on from second:1: first:1 does not answer"]
    assert [client.closed for client in world.clients] == [True]
    world.silent.clear()
    assert patiently(reading, spans) == {"t/0": [0, 1, 2], "t/1": [0]}
    assert world.assigned[-1] == {"t/0": 3, "t/1": 0}
    reading.close()
    assert [client.closed for client in world.clients] == [True, True]


def test_a_standby_that_lags_is_waited_for_and_nothing_is_taken_for_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(t_0=list(range(5))).patch(monkeypatch)
    reading = made("first:1", "second:1", skip_lost=True)
    reading._cluster = 1
    with pytest.raises(
        SourceError, match="t/0: the standby cluster ends at offset 5, offset 9 is not there yet"
    ):
        reading.read({"t/0": (9, 12)})
    assert reading.notices == []
    world.offsets["t/0"], world.bounds["t/0"] = list(range(12)), (0, 12)
    reading.close()
    assert patiently(reading, {"t/0": (9, 12)}) == {"t/0": [9, 10, 11]}


def test_a_message_that_comes_twice_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(t_0=[0, 1, 2], t_1=[0]).patch(monkeypatch)
    world.silent.add("t/1")
    reading = made()
    with pytest.raises(NotYetError):
        reading.read({"t/0": (0, 3), "t/1": (0, 1)})
    for offset in (0, 2):
        reading._keep([Message("t/0", offset)], {})  # type: ignore[list-item]
    world.silent.clear()
    assert patiently(reading, {"t/0": (0, 3), "t/1": (0, 1)}) == {"t/0": [0, 1, 2], "t/1": [0]}


OLD = {"t": "c/first"}


def test_offsets_of_a_topic_that_was_deleted_are_not_those_of_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(t_0=list(range(50))).patch(monkeypatch)
    world.ids = {"t": "c/second"}
    world.unanswered += [TimeoutError(), KafkaException("no broker")]
    reading, span = made(), {"t/0": (0, 10)}
    for _ in range(2):
        with pytest.raises(NotYetError):
            reading.read(span, OLD)
    with pytest.raises(
        OffsetsLostError, match="t/0: the topic was deleted and created again, offsets 0 to 10"
    ):
        reading.read(span, OLD)
    assert reading.read(span, world.ids).keys() == {"t/0"}
    choosing = made(skip_lost=True)
    assert choosing.read(span, OLD) == {"t/0": []}
    assert len(choosing.notices) == 1


def test_the_ids_of_topics_are_requested_once_and_where_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(t_0=list(range(50))).patch(monkeypatch)
    world.ids = OLD
    reading = made()
    for start in range(0, 30, 10):
        assert len(reading.read({"t/0": (start, start + 10)}, OLD)["t/0"]) == 10
    assert world.requests == 1
    world.ids = {"t": "c/second"}
    assert len(reading.read({"t/0": (30, 40)}, world.ids)["t/0"]) == 10
    assert world.requests == 2
    assert made("mirror:1").read({"t/0": (0, 10)}, {"t": "d/other"}).keys() == {"t/0"}


def test_a_replay_of_the_same_reader_requests_ids_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(t_0=list(range(50))).patch(monkeypatch)
    world.ids = OLD
    reading, span = made(), {"t/0": (0, 10)}
    assert len(reading.read(span, OLD)["t/0"]) == 10
    world.ids = {"t": "c/second"}
    with pytest.raises(OffsetsLostError):
        reading.read(span, OLD)


def test_ids_are_requested_of_topics_with_rows_alone_and_once_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, reading = World(t_0=list(range(50))).patch(monkeypatch), made()
    for start in (0, 10):
        assert reading.read({"t/0": (start, start + 10)}, {**OLD, "deleted": "c/5"})
    assert (world.requested, world.requests) == ({"t"}, 1)


def test_rows_that_are_left_out_are_reported_once_while_other_logs_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(t_0=list(range(50)), u_0=list(range(50))).patch(monkeypatch)
    world.silent, world.ids = {"u/0"}, {"t": "c/second"}
    reading, spans = made(skip_lost=True), {"t/0": (0, 10), "u/0": (0, 10)}
    for _ in range(3):
        with pytest.raises(NotYetError):
            reading.read(spans, OLD)
    assert (len(reading.notices), world.requests) == (1, 1)

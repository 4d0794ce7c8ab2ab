"""What goes into a batch, and the watermark that follows: arithmetic without a broker."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.errors import SourceError
from reprise.spark_jobs.kafka.encode import make_encoder
from reprise.spark_jobs.kafka.event_time import Clock, EventTimeError, Seen
from reprise.spark_jobs.kafka.logs import Snapshot, reader_of
from reprise.spark_jobs.kafka.shares import shares
from reprise.spark_jobs.kafka.source import KafkaSource
from reprise.spark_jobs.kafka.transactions import DIGESTS, Marker
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.sinks import Owner
from tests.support.fake_kafka import Message

P = Place("in", 0, 1)


class Looked:
    """Logs whose answer is fixed."""

    def __init__(
        self, ends: dict[str, int], begins: dict[str, int] | None = None, cluster: int = 0, **ids: str
    ) -> None:
        self.snapshot = Snapshot({log: (begins or {}).get(log, 0) for log in ends}, ends, cluster, ids)

    def look(self) -> Snapshot:
        return self.snapshot


def source(looked: Looked, **more: Any) -> KafkaSource:
    made = KafkaSource(**{"brokers": "b:1", "topics": ["t"], "columns": {"id": "int64"}, **more})
    made._logs = looked  # type: ignore[assignment]
    return made


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 1000), max_size=8), st.integers(1, 2000))
def test_shares_fill_the_room_and_starve_nobody(waiting: dict[str, int], room: int) -> None:
    found = shares(waiting, room)
    assert found.keys() == waiting.keys()
    assert sum(found.values()) == min(room, sum(waiting.values()))
    for log, taken in found.items():
        assert taken <= waiting[log]
        if taken < waiting[log]:
            assert taken >= max(found.values()) - 1


def test_consecutive_partitions_go_to_consecutive_readers_whatever_else_there_is() -> None:
    readers = [reader_of(f"flights/{p}", 4) for p in range(8)]
    assert sorted(readers) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [(r - readers[0]) % 4 for r in readers] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert reader_of("a/b/3", 1) == 0


def test_a_batch_goes_on_where_the_one_before_ended() -> None:
    reading = source(Looked({"t/0": 10, "t/1": 4}), batch_rows=8)
    first = reading.plan(P, 1, Range(0, 0))
    assert first == Range(0, 8, {"t/0": (0, 4), "t/1": (0, 4)})
    assert first is not None
    assert reading.plan(P, 2, first) == Range(8, 14, {"t/0": (4, 10), "t/1": (4, 4)})


def test_a_log_that_appears_later_is_read_from_its_beginning() -> None:
    before = Range(0, 10, {"t/0": (0, 10)})
    found = source(Looked({"t/0": 10, "t/1": 3}), start="latest").plan(P, 2, before)
    assert found == Range(10, 13, {"t/0": (10, 10), "t/1": (0, 3)})
    assert source(Looked({"t/0": 10}), start="latest").plan(P, 1, Range(0, 0)) == Range(
        0, 0, {"t/0": (10, 10)}
    )


def test_a_bounded_source_ends() -> None:
    reading = source(Looked({"t/0": 10, "t/1": 4}), until={"t/0": 5})
    assert reading.plan(P, 1, Range(0, 0)) == Range(0, 5, {"t/0": (0, 5)})
    assert reading.plan(P, 2, Range(0, 5, {"t/0": (0, 5)})) is None


def test_offsets_that_are_gone_are_an_error_or_a_notice() -> None:
    before, looked = Range(0, 5, {"t/0": (0, 5)}), Looked({"t/0": 20}, {"t/0": 9})
    with pytest.raises(SourceError, match="next offset is 5, but the log now has 9 to 20: retention"):
        source(looked).plan(P, 2, before)
    choosing = source(looked, on_offsets_lost="earliest")
    assert choosing.plan(P, 2, before) == Range(5, 16, {"t/0": (9, 20)})
    assert "going on from 9" in choosing.notices()[0]


@pytest.mark.parametrize("end", [20, 50, 51, 400])
def test_a_topic_that_was_created_again_is_not_read_on_however_many_rows_it_has(end: int) -> None:
    before = Range(0, 50, {"t/0": (0, 50)}, {"t": "c/first"})
    looked = Looked({"t/0": end}, t="c/second")
    with pytest.raises(
        SourceError, match=r"the next offset is 50, .*the topic was deleted and created again"
    ):
        source(looked).plan(P, 2, before)
    choosing = source(looked, on_offsets_lost="earliest")
    span = choosing.plan(P, 2, before)
    assert span == Range(50, 50 + end, {"t/0": (0, end)}, {"t": "c/second"})
    assert len(choosing.notices()) == 1
    again = choosing.plan(P, 3, span)
    assert again == Range(50 + end, 50 + end, {"t/0": (end, end)}, {"t": "c/second"})
    assert choosing.notices() == []


def test_an_id_is_kept_while_a_standby_cluster_answers_which_has_other_ids() -> None:
    before = Range(0, 50, {"t/0": (0, 50)}, {"t": "c/first"})
    meanwhile = source(Looked({"t/0": 60}, cluster=1)).plan(P, 2, before)
    assert meanwhile == Range(50, 60, {"t/0": (50, 60)}, {"t": "c/first"})
    with pytest.raises(SourceError, match="created again"):
        source(Looked({"t/0": 70}, t="c/second")).plan(P, 3, meanwhile)
    assert source(Looked({"t/0": 70}, t="c/first")).plan(P, 3, meanwhile).logs == {"t/0": (60, 70)}


def test_another_cluster_that_has_become_the_primary_is_read_on() -> None:
    before = Range(0, 50, {"t/0": (0, 50)}, {"t": "c/first"})
    span = source(Looked({"t/0": 60}, t="d/second")).plan(P, 2, before)
    assert span == Range(50, 60, {"t/0": (50, 60)}, {"t": "d/second"})


def test_a_range_keeps_the_ids_of_its_topics_alone_and_travels_with_them() -> None:
    span = source(Looked({"t/0": 5}, t="c/first", u="c/other")).plan(P, 1, Range(0, 0))
    assert span.ids == {"t": "c/first"}
    assert Range.parse(json.loads(json.dumps(span))) == span


def test_a_log_that_was_cut_is_an_error_and_a_standby_that_lags_is_waited_for() -> None:
    before = Range(0, 50, {"t/0": (0, 50)})
    with pytest.raises(SourceError, match="the log was cut"):
        source(Looked({"t/0": 20})).plan(P, 2, before)
    with pytest.raises(SourceError, match="topic is gone"):
        source(Looked({})).plan(P, 2, before)
    with pytest.raises(SourceError, match="standby cluster ends at 20"):
        source(Looked({"t/0": 20}, cluster=1), on_offsets_lost="earliest").plan(P, 2, before)


def test_the_rate_bounds_a_batch() -> None:
    reading = source(Looked({"t/0": 10_000}), rate=100)
    first = reading.plan(P, 1, Range(0, 0))
    assert first is not None
    assert first.end == 100
    second = reading.plan(P, 2, first)
    assert second is not None
    assert second.end - second.start <= 100


def test_the_watermark_is_that_of_the_slowest_log_and_never_goes_back() -> None:
    clock = Clock(disorder_us=5, idle=3)
    seen = Seen().after(1, {"a": 100, "b": 50}, clock)
    assert seen.watermark == 45
    seen = seen.after(2, {"a": 200}, clock).after(3, {"a": 300}, clock)
    assert seen.watermark == 45
    seen = seen.after(4, {"a": 400}, clock)  # b has been idle for three batches
    assert seen.watermark == 395
    seen = seen.after(5, {"b": 60}, clock)
    assert seen.watermark == 395
    assert Seen.of(seen.tables()) == seen
    assert Seen.of(Seen().tables()) == Seen()


class Sent:
    """A message's timestamp."""

    def __init__(self, sent_ms: int) -> None:
        self._sent = sent_ms

    def timestamp(self) -> tuple[int, int]:
        return 1, self._sent


def test_a_row_far_ahead_of_its_message_does_not_move_the_watermark() -> None:
    table = pa.table({"at": [5, 900, 7]})
    messages: dict[str, list[Any]] = {"t/0": [Sent(0), Sent(0)], "t/1": [Sent(0)]}
    stamped, newest, ahead = Clock("at", "ms", ahead_us=10_000).stamp(table, messages, np.array([1, 1, 1]))
    assert newest == {"t/0": 5000, "t/1": 7000}
    assert ahead == 1
    assert stamped["time"].to_pylist() == [5000, 900_000, 7000]


def test_rows_take_the_time_of_their_message_when_no_column_has_it() -> None:
    messages: dict[str, list[Any]] = {"t/0": [Sent(3), Sent(4)]}
    stamped, newest, _ = Clock().stamp(pa.table({"id": [1, 2, 3]}), messages, np.array([2, 1]))
    assert stamped["time"].to_pylist() == [3000, 3000, 4000]
    assert newest == {"t/0": 4000}


@pytest.mark.parametrize("table", [pa.table({"id": [1]}), pa.table({"at": pa.array([None], pa.int64())})])
def test_rows_without_an_event_time_are_an_error(table: pa.Table) -> None:
    messages: dict[str, list[Any]] = {"t/0": [Sent(3)]}
    with pytest.raises(EventTimeError, match="'at'"):
        Clock("at").stamp(table, messages, np.array([1]))


def test_a_marker_survives_its_text_and_keeps_the_last_digests() -> None:
    marker = Marker(40, Owner(1.5, (2, 3, 4)), {b: f"{b:08x}" for b in range(1, 41)})
    found = Marker.decode(40, marker.encode())
    assert (found.batch, found.owner) == (40, marker.owner)
    assert list(found.digests) == list(range(41 - DIGESTS, 41))
    assert len(marker.encode()) < 4096


def test_owners_are_ordered_by_stream_then_driver_then_installation() -> None:
    owners = [Owner.of(s, i) for s, i in [(1.0, "2.0.9"), (1.0, "10.0.1"), (1.0, "10.0.2"), (2.0, "1.0.1")]]
    assert owners == sorted(owners)


class Read:
    """A reader with messages at hand."""

    def __init__(self, *messages: Message) -> None:
        self._messages, self.notices = messages, list[str]()

    def read(self, *_spans: Any) -> dict[str, Any]:
        return {"t/0": self._messages}


def read_of(*messages: Message, **more: Any) -> tuple[pa.Table, list[str]]:
    reading = source(Looked({"t/0": 9}), on_bad_record="skip", **more)
    reading._reader = Read(*messages)  # type: ignore[assignment]
    return reading.read(P, 1, Range(0, 0)), reading.notices()


@pytest.mark.parametrize("name", ["time", "kafka_offset"])
def test_a_column_of_messages_is_not_replaced_by_one_of_the_source(name: str) -> None:
    (value,) = make_encoder("arrow", None).values(pa.table({name: [1]}))
    with pytest.raises(ColumnError, match=f"messages have a column '{name}'; the source adds"):
        read_of(Message("t/0", 0, value), format="arrow", columns=None, metadata=["offset"])


@pytest.mark.parametrize(("sent_ms", "why"), [(-1, "no timestamp"), (1_700_000_000 * 10**9, "nanoseconds")])
def test_a_timestamp_of_a_message_that_is_none_makes_it_a_bad_message(sent_ms: int, why: str) -> None:
    messages = [Message("t/0", 0, b'{"id": 5}', sent_ms), Message("t/0", 1, b'{"id": 7}', 1)]
    for more in (
        {},
        {"time": {"column": "id", "ahead": "1h"}},
        {"time": {"column": "id"}, "metadata": ["timestamp"]},
    ):
        table, (notice,) = read_of(*messages, **more)
        assert table["id"].to_pylist() == [7]
        assert "1 messages were left out, the first t/0 offset 0: " in notice
        assert why in notice
    table, notices = read_of(*messages, time={"column": "id"})
    assert (table["time"].to_pylist(), notices) == ([5, 7], [])

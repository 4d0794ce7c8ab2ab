"""Which offsets a batch has: whatever the brokers say from look to look, no offset is left out and none is read twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place, Range, SourcePart
from reprise.spark_jobs.errors import SourceError
from reprise.spark_jobs.kafka.event_time import Seen
from reprise.spark_jobs.kafka.logs import Snapshot, log_name, reader_of, split_name
from reprise.spark_jobs.kafka.source import KafkaSource
from reprise.spark_jobs.operators.frames import END_OF_TIME
from tests.support.examples import examples

LOGS = ["t/0", "t/1", "t/2", "u/0"]


class Looked:
    """Logs whose answer the test sets."""

    def __init__(self) -> None:
        self.snapshot = Snapshot({}, {})

    def look(self) -> Snapshot:
        return self.snapshot


def source(**more: Any) -> tuple[KafkaSource, Looked]:
    made = KafkaSource(**{"brokers": "b:1", "pattern": ".*", "format": "raw", **more})
    looked = Looked()
    made._logs = looked  # type: ignore[assignment]
    return made, looked


grows = st.lists(st.dictionaries(st.sampled_from(LOGS), st.integers(0, 7)), min_size=1, max_size=10)


@examples(50)
@given(grows, st.integers(1, 3), st.integers(1, 9))
def test_batches_follow_each_other_without_a_gap_over_all_readers(
    looks: list[dict[str, int]], parallelism: int, room: int
) -> None:
    reading, looked = source(batch_rows=room)
    places = [Place("in", index, parallelism) for index in range(parallelism)]
    before = {place: Range(0, 0) for place in places}
    ends: dict[str, int] = {}
    most = sum(sum(more.values()) for more in looks)  # batches that may be needed once nothing more arrives
    for batch, more in enumerate([*looks, *({} for _ in range(-(-most // room)))], 1):
        ends = {log: ends.get(log, 0) + more.get(log, 0) for log in {*ends, *more}}
        looked.snapshot = Snapshot(dict.fromkeys(ends, 0), ends)
        for place in places:
            span = reading.plan(place, batch, before[place])
            assert span is not None
            assert span.start == before[place].end
            assert span.end - span.start == sum(end - begin for begin, end in span.logs.values()) <= room
            for log, (begin, end) in span.logs.items():
                assert reader_of(log, parallelism) == place.index
                assert begin == before[place].logs.get(log, (0, 0))[1]
                assert begin <= end <= ends[log]
            assert set(before[place].logs) <= set(span.logs)
            assert Range.parse(json.loads(json.dumps(span))) == span
            before[place] = span
    read = {log: end for span in before.values() for log, (_, end) in span.logs.items()}
    assert read == ends


@examples(50)
@given(
    st.dictionaries(st.sampled_from(LOGS), st.integers(0, 9), min_size=1),
    st.integers(1, 3),
    st.integers(1, 5),
)
def test_a_bounded_source_reads_up_to_its_bounds_and_ends_with_every_window_closed(
    until: dict[str, int], parallelism: int, room: int
) -> None:
    reading, looked = source(until=until, batch_rows=room)
    looked.snapshot = Snapshot(dict.fromkeys(LOGS, 0), dict.fromkeys(LOGS, 9))
    read: dict[str, int] = {}
    for index in range(parallelism):
        place, before, state, mark = Place("in", index, parallelism), Range(0, 0), reading.initial(None), None  # type: ignore[arg-type]
        for batch in range(1, 60):
            span = reading.plan(place, batch, before)
            if span is None:
                break
            state, mark = reading.follow(place, state, batch, span, None)
            assert (mark == END_OF_TIME) == all(end >= until[log] for log, (_, end) in span.logs.items())
            before = span
        else:
            raise AssertionError("it never ended")
        assert mark == END_OF_TIME or not before.logs
        read |= {log: end for log, (_, end) in before.logs.items()}
    assert {log: end for log, end in read.items() if end} == {log: end for log, end in until.items() if end}


def test_a_bound_on_a_log_that_is_not_there_is_an_error_and_no_early_end() -> None:
    reading, looked = source(until={"t/9": 5})
    looked.snapshot = Snapshot({"t/0": 0}, {"t/0": 9})
    with pytest.raises(SourceError, match="t/9: the topic is gone"):
        reading.plan(Place("in", 0, 1), 1, Range(0, 0))


@pytest.mark.parametrize(("batch", "start", "told"), [(1, "latest", 9), (2, "latest", 4), (1, "earliest", 4)])
def test_where_a_new_log_begins(batch: int, start: str, told: int) -> None:
    reading, looked = source(start=start)
    looked.snapshot = Snapshot({"t/0": 4}, {"t/0": 9})
    span = reading.plan(Place("in", 0, 1), batch, Range(0, 0))
    assert span is not None
    assert span.logs == {"t/0": (told, 9)}


@pytest.mark.parametrize("choice", ["fail", "earliest"])
def test_a_topic_that_is_gone_stops_or_stands_where_it_was(choice: str) -> None:
    reading, looked = source(on_offsets_lost=choice)
    before = Range(0, 5, {"t/0": (0, 5)})
    looked.snapshot = Snapshot({"t/1": 0}, {"t/1": 2})
    if choice == "fail":
        with pytest.raises(SourceError, match="t/0: the topic is gone"):
            reading.plan(Place("in", 0, 1), 2, before)
    else:
        assert reading.plan(Place("in", 0, 1), 2, before) == Range(5, 7, {"t/0": (5, 5), "t/1": (0, 2)})


@given(st.text(min_size=1), st.integers(0, 1000), st.integers(1, 64))
def test_names_of_logs_come_apart_as_they_were_put_together(
    topic: str, partition: int, parallelism: int
) -> None:
    assert split_name(log_name(topic, partition)) == (topic, partition)
    assert 0 <= reader_of(log_name(topic, partition), parallelism) < parallelism


@examples(40)
@given(
    st.dictionaries(st.sampled_from(LOGS), st.integers(1, 9), min_size=1), st.integers(1, 4), st.integers(1, 4),
    st.integers(1, 3),
)  # fmt: skip
def test_other_partitions_read_on_each_log_where_it_was_left(
    ends: dict[str, int], before: int, now: int, room: int
) -> None:
    reading, looked = source(batch_rows=room)
    looked.snapshot = Snapshot(dict.fromkeys(ends, 0), ends)
    parts = []
    for index in range(before):
        span = reading.plan(Place("in", index, before), 1, Range(0, 0))
        assert span is not None
        times = {log: 10 * end for log, (_, end) in span.logs.items() if end}
        parts.append(SourcePart(span, Seen(times, dict.fromkeys(times, 1), 5 + index).tables()))
    left = {log: end for part in parts for log, (_, end) in part.upto.logs.items()}
    after = reading.repartition("in", parts, now)
    assert len(after) == now
    met = dict[str, int]()
    for index, part in enumerate(after):
        assert part.tables is not None
        seen = Seen.of(part.tables)
        assert seen.watermark == min(5 + i for i, one in enumerate(parts) if one.upto.logs)
        assert seen.newest == {log: 10 * left[log] for log in part.upto.logs if left[log]}
        assert seen.active.keys() == seen.newest.keys()
        span = reading.plan(Place("in", index, now), 2, part.upto)
        assert span is not None
        assert span.start == part.upto.end
        met |= {log: begin for log, (begin, _) in span.logs.items()}
    assert met == left
    assert sum(part.upto.end for part in after) == sum(left.values())


@pytest.mark.parametrize(("logs", "expected"), [({"t/1": (0, 0)}, None), ({}, 3)])
def test_without_a_watermark_of_all_that_have_logs_there_is_none(
    logs: dict[str, tuple[int, int]], expected: int | None
) -> None:
    reading, _ = source()
    parts = [
        SourcePart(Range(0, 1, {"t/0": (0, 1)}), Seen({"t/0": 3}, {"t/0": 1}, 3).tables()),
        SourcePart(Range(0, 0, logs)),
    ]
    (part,) = reading.repartition("in", parts, 1)
    assert part.tables is not None
    assert Seen.of(part.tables).watermark == expected

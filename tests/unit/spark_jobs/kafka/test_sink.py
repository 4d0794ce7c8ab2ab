"""The thread of the Kafka sink: it goes on through trouble, says what it is, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from reprise.spark_jobs.errors import FencedError, NotYetError, SinkError, SpecError, StepError
from reprise.spark_jobs.kafka import KafkaSink
from reprise.spark_jobs.kafka import sink as module
from reprise.spark_jobs.kafka.sink import GAP
from reprise.spark_jobs.node.settling import leave_out
from tests.support.fake_kafka import Broker
from tests.unit.spark_jobs.kafka.test_transactions import NAME, expected, ids, opened, rows

LONG_S = 300.0


def shown(sink: KafkaSink, batch: int) -> list[str]:
    """Wait until it is visible; what was said meanwhile."""
    said, until = [], time.monotonic() + LONG_S
    while sink.visible < batch:
        assert time.monotonic() < until, said
        if trouble := sink.settle(0.05):
            said.append(trouble)
        time.sleep(0.01)
    return said


def test_a_write_that_fails_is_tried_again_and_again_and_the_session_ends_with_the_sink(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.1)
    broker.faults.extend(["unheard"] * 3)
    sink = opened(1)
    sink.write(1, rows(1))
    said = shown(sink, 1)
    assert said and all("made up by the test" in text for text in said)
    assert ids(broker) == expected(1)
    assert sink._session._producer is not None
    sink.close()
    assert sink._thread is not None
    sink._thread.join(LONG_S)
    assert not sink._thread.is_alive()
    assert sink._session._producer is None


def test_brokers_that_do_not_answer_are_worth_a_report_after_a_while() -> None:
    sink, now = opened(1), [100.0 + module.ALARM_S]
    sink._platform = replace(sink._platform, elapsed=lambda: now[0])
    sink._waiting.append((7, None))
    sink._since = 100.0
    assert sink.settle(0.0) is None
    now[0] += 1.0
    assert sink.settle(0.0) == "brokers 127.0.0.1:1 have not taken batch 7 for 6 s"


def test_upserts_without_a_column_of_deletions_delete_nothing(broker: Broker) -> None:
    written = opened(1, mode="upsert", key=["id"])._encode(1, rows(1))
    assert len(written.messages) == 2
    assert all(value is not None for _, value in written.messages)


def test_a_dead_letter_says_where_it_is_from_and_how_large_it_was() -> None:
    sink = opened(
        1, config={"message.max.bytes": 2000}, on_too_large="dead-letter", dead_letters="dead"
    )  # fmt: skip
    ((_, _, headers),) = sink._encode(4, pa.table({"id": ["x" * 3000]})).letters
    about: dict[str, Any] = dict(headers)
    size = len('{"id":""}') + 3000
    assert (about["reprise-partition"], about["reprise-batch"]) == ("out.1", "4")
    assert about["reprise-bytes"] == str(size)
    assert about["reprise-reason"].startswith(f"a message of {size} bytes (key None) is larger than ")


def test_each_dead_letter_of_a_batch_says_its_own_key_and_size() -> None:
    sink = opened(
        1, key=["id"], config={"message.max.bytes": 2000}, on_too_large="dead-letter", dead_letters="dead"
    )
    table = pa.table({"id": [1, 2, 3], "text": ["x" * 3000, "x", "x" * 4000]})
    written = sink._encode(4, table)
    assert [key for key, _ in written.messages] == [b"2"]
    about = [(key, dict(headers)) for key, _, headers in written.letters]
    sizes = [len('{"id":1,"text":""}') + n for n in (3000, 4000)]
    assert [(key, said["reprise-bytes"]) for key, said in about] == [
        (b"1", str(sizes[0])),
        (b"3", str(sizes[1])),
    ]
    assert f"{sizes[1]} bytes (key b'3')" in str(about[1][1]["reprise-reason"])


def test_a_size_that_is_none_is_quoted() -> None:
    with pytest.raises(SpecError, match="much"):
        KafkaSink(brokers="127.0.0.1:1", topic="t", buffer="much")


# -- gaps ----------------------------------------------------------------------------------------------------------------


def marks(broker: Broker) -> dict[int, dict[str, Any]]:
    """Batch -> headers of its message on the topic of gaps."""
    found = {}
    for (topic, _, key, value), headers in zip(broker.messages, broker.headers, strict=True):
        if topic == "gaps":
            said = json.loads(value or b"")
            assert key == f"{NAME}/{said['batch']}".encode()
            assert said == {"topic": "t", "name": NAME, "batch": said["batch"]}
            found[int(said["batch"])] = headers
    return found


def mark(sink: KafkaSink, batch: int) -> None:
    """As a host asks: again and again."""
    until = time.monotonic() + LONG_S
    while True:
        try:
            return sink.mark(batch)
        except (NotYetError, SinkError):
            assert time.monotonic() < until


def headers_of(broker: Broker, topic: str = "t") -> list[dict[str, Any]]:
    found = zip(broker.messages, broker.headers, strict=True)
    return [headers for (name, *_), headers in found if name == topic]


def test_a_marked_batch_has_its_message_before_its_rows_and_a_header_on_each(broker: Broker) -> None:
    sink = opened(1, gaps="gaps")
    sink.write(1, rows(1))
    shown(sink, 1)
    mark(sink, 2)
    assert marks(broker) == {2: dict([*sink._about(2), GAP])}
    assert sink.visible == 1, "a mark shows no batch"
    sink.write(2, rows(2))
    sink.write(4, rows(4))
    shown(sink, 4)
    about = {"reprise-partition": "out.1", "reprise-batch": "2", "reprise-gap": "rows may be missing"}
    assert headers_of(broker) == [{}, {}, about, {}], "two rows of batch 1, one of the marked batch, one more"
    sink.close()


def test_a_batch_without_rows_is_marked_on_the_topic_of_gaps_alone(broker: Broker) -> None:
    sink = opened(1, gaps="gaps")
    sink.write(1, rows(1))
    shown(sink, 1)
    mark(sink, 3)
    sink.write(3, None)
    assert sink.visible == 3
    assert set(marks(broker)) == {3}
    assert ids(broker) == expected(1)
    sink.close()


def test_what_is_there_of_a_marked_batch_stays_and_only_of_that_one(broker: Broker) -> None:
    first = opened(1, gaps="gaps")
    for batch in (1, 2, 4):
        first.write(batch, rows(batch))
    shown(first, 4)
    second = opened(2, gaps="gaps")
    mark(second, 2)
    second.write(2, rows(9))
    shown(second, 2)
    second.write(4, rows(9))
    with pytest.raises(StepError, match="batch 4 was written before with other rows"):
        shown(second, 4)
    assert ids(broker) == [*expected(2), *rows(4)["id"].to_pylist()]  # type: ignore[index]
    assert set(marks(broker)) == {2}
    second.close()


@pytest.mark.parametrize("call", range(8))
@pytest.mark.parametrize("fault", ["unheard", "done", "prepared"])
def test_a_fault_at_any_call_leaves_no_batch_unmarked(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, call: int, fault: str
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.05)
    broker.faults.extend([""] * call + [fault])
    sink = opened(1, gaps="gaps")
    mark(sink, 2)
    assert set(marks(broker)) == {2}
    sink.write(2, rows(2))
    shown(sink, 2)
    assert [h.get("reprise-gap") for h in headers_of(broker)] == ["rows may be missing"]
    sink.close()


def test_who_is_no_owner_any_more_marks_nothing(broker: Broker) -> None:
    early = opened(1, gaps="gaps")
    mark(early, 1)
    late = opened(2, gaps="gaps")
    late.write(1, rows(1))
    shown(late, 1)
    with pytest.raises(FencedError):
        for _ in range(6000):
            with contextlib.suppress(NotYetError, SinkError):
                early.mark(2)
            time.sleep(0.05)
    assert set(marks(broker)) == {1}
    late.close()


def test_brokers_that_are_away_hold_a_batch_back_until_its_mark_is_there(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.05)
    broker.faults.extend(["unheard"] * 6)
    sink = opened(1, gaps="gaps")
    with pytest.raises((SinkError, NotYetError)):
        for _ in range(3):
            sink.mark(1)
    mark(sink, 1)
    assert set(marks(broker)) == {1}
    sink.close()


def test_a_topic_of_gaps_that_is_not_there_is_said_before_there_is_a_gap(broker: Broker) -> None:
    sink = opened(1, gaps="gaps")
    broker.missing.add("gaps")
    sink.write(1, rows(1))
    until = time.monotonic() + LONG_S
    while (said := sink.settle(0.05)) is None:
        assert time.monotonic() < until
    assert said.startswith("topic gaps, for marks of gaps: ")
    assert broker.messages == []
    broker.missing.clear()
    shown(sink, 1)
    sink.close()


def test_batches_that_nobody_makes_are_marked_together(broker: Broker) -> None:
    sink = opened(3, position=0, gaps="gaps")
    leave_out(sink, range(1, 60))
    shown(sink, 59)
    assert set(marks(broker)) == set(range(1, 60))
    assert ids(broker) == []
    sink.close()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"gaps": "t"}, "expected the name of another topic, found 't'"),
        (
            {"gaps": "d", "dead_letters": "d", "on_too_large": "dead-letter"},
            "expected the name of another topic, found 'd'",
        ),
        ({"gaps": ""}, "expected the name of another topic, found ''"),
        ({"gaps": 5}, "expected the name of another topic, found 5"),
        (
            {"gaps": "gaps", "mode": "upsert", "key": ["id"]},
            "is not for mode upsert: a key whose row is missing",
        ),
    ],
)
def test_where_a_gap_could_not_be_told_the_topic_is_refused(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        KafkaSink(brokers="127.0.0.1:1", topic="t", **more)
    assert refused.value.field == "gaps"


def test_a_sink_marks_where_it_has_a_topic_for_that() -> None:
    assert not opened(1).marks
    assert opened(1, gaps="gaps").marks

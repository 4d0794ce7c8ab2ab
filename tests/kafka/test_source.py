"""The source against a real broker: what it reads, what it refuses to lose, and what it says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.errors import NotYetError, SourceError
from reprise.spark_jobs.kafka import KafkaSource
from reprise.spark_jobs.kafka.reader import OffsetsLostError
from tests.kafka import pipes
from tests.kafka.broker import TIMEOUT_S, Broker, wait_for

pytestmark = pytest.mark.slow
P = Place("in", 0, 1)


def patiently(ask: Callable[[], Any]) -> Any:
    """The answer of something that may say "not yet"."""
    found: list[Any] = []

    def answered() -> bool:
        try:
            found.append(ask())
        except NotYetError:
            return False
        return True

    wait_for(answered)
    return found[0]


def made(broker: Broker, *topics: str, **more: Any) -> KafkaSource:
    return KafkaSource(**{**pipes.source(broker, ""), "topics": list(topics), "discover": "1ms", **more})


def plan(source: KafkaSource, batch: int = 1, before: Range = Range(0, 0)) -> Range:  # noqa: B008 - immutable
    """The next batch, asked afresh."""
    patiently(source.look)
    found = source.plan(P, batch, before)
    assert found is not None
    return found


def read(source: KafkaSource, span: Range, batch: int = 1) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = patiently(lambda: source.read(P, batch, span)).to_pylist()
    return rows


def cut(broker: Broker, topic: str, before: int) -> None:
    """What retention does: the log begins at `before`."""
    asked = broker.admin.delete_records([TopicPartition(topic, 0, before)])
    for future in asked.values():
        future.result(TIMEOUT_S)


def test_a_range_is_read_again_as_it_was_whatever_was_read_meanwhile(broker: Broker) -> None:
    topic = broker.topic("again", 2)
    broker.send(topic, pipes.rows(50), 0)
    broker.send(topic, pipes.rows(50, first=50), 1)
    source = made(broker, topic, batch_rows=30, metadata=["partition", "offset"])
    spans = [plan(source)]
    while spans[-1].end < 100:
        spans.append(plan(source, len(spans) + 1, spans[-1]))
    first = [read(source, span, b) for b, span in enumerate(spans, 1)]
    assert sorted(row["id"] for rows in first for row in rows) == list(range(100))
    assert all(row["kafka_offset"] == row["id"] % 50 for rows in first for row in rows)
    for number in reversed(range(len(spans))):
        assert read(source, spans[number], number + 1) == first[number]
    assert [read(made(broker, topic, metadata=["partition", "offset"]), span) for span in spans] == first
    source.close()


def test_aborted_and_open_transactions_are_not_read(broker: Broker) -> None:
    topic = broker.topic("transactions")
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for number, commit in enumerate([True, False, True]):
        producer.begin_transaction()
        for row in pipes.rows(5, first=10 * number):
            producer.produce(topic, json.dumps(row).encode(), partition=0)
        producer.flush(TIMEOUT_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, json.dumps(pipes.rows(1, first=99)[0]).encode(), partition=0)
    producer.flush(TIMEOUT_S)
    source = made(broker, topic)
    span = plan(source)
    assert span.logs == {f"{topic}/0": (0, 18)}  # 15 messages and the markers of three transactions
    assert [row["id"] for row in read(source, span)] == [0, 1, 2, 3, 4, 20, 21, 22, 23, 24]
    producer.abort_transaction(TIMEOUT_S)
    source.close()


def test_new_partitions_and_topics_of_a_pattern_are_found(broker: Broker) -> None:
    topic = broker.topic("found")
    broker.send(topic, pipes.rows(2))
    source = made(broker, pattern=f"{topic}.*")
    first = plan(source)
    broker.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(TIMEOUT_S)
    broker.create(f"{topic}-more")
    broker.send(topic, pipes.rows(1, first=7), 1)
    broker.send(f"{topic}-more", pipes.rows(1, first=8))
    after: list[Range] = []

    def found() -> bool:
        after.append(plan(source, 2, first))
        return after[-1].end == 4

    wait_for(found)
    assert set(after[-1].logs) == {f"{topic}/0", f"{topic}/1", f"{topic}-more/0"}
    assert sorted(row["id"] for row in read(source, after[-1], 2)) == [7, 8]
    source.close()


def test_rows_that_retention_removed_are_an_error_in_driver_and_executor(broker: Broker) -> None:
    topic = broker.topic("retention")
    broker.send(topic, pipes.rows(20))
    source = made(broker, topic, batch_rows=5)
    first = plan(source)
    second = plan(source, 2, first)
    cut(broker, topic, 12)
    with pytest.raises(
        SourceError, match="next offset is 10, but the log now has 12 to 20: retention has removed"
    ):
        plan(source, 3, second)
    with pytest.raises(OffsetsLostError, match=r"offsets from 5 are gone, .* `on_offsets_lost: earliest`"):
        read(source, second, 2)
    source.close()


def test_rows_that_retention_removed_are_left_out_by_choice_and_said(broker: Broker) -> None:
    topic = broker.topic("chosen")
    broker.send(topic, pipes.rows(20))
    source = made(broker, topic, batch_rows=8, on_offsets_lost="earliest")
    first = plan(source)
    cut(broker, topic, 5)
    assert [row["id"] for row in read(source, first)] == [5, 6, 7]
    assert "5 offsets are left out" in source.notices()[0]
    cut(broker, topic, 12)
    second = plan(source, 2, first)
    assert second.logs == {f"{topic}/0": (12, 20)}
    assert "going on from 12" in source.notices()[0]
    source.close()


def test_a_topic_that_is_deleted_stops_the_stream_and_says_so(broker: Broker) -> None:
    topic = broker.topic("deleted")
    broker.send(topic, pipes.rows(3))
    source = made(broker, topic)
    first = plan(source)
    broker.delete(topic)
    with pytest.raises(SourceError, match=f"there is no topic '{topic}'|UNKNOWN_TOPIC"):
        plan(source, 2, first)
    broker.create(topic)
    broker.send(topic, pipes.rows(5))
    said: list[str] = []

    def complained() -> bool:
        try:
            plan(source, 2, first)
        except SourceError as error:
            said.append(str(error))
        return bool(said) and "the topic was deleted and created again" in said[-1]

    wait_for(complained)
    with pytest.raises(OffsetsLostError, match="the topic was deleted and created again"):
        read(source, first)
    source.close()


def test_a_message_that_cannot_be_read_is_an_error_with_its_place(broker: Broker) -> None:
    topic = broker.topic("poison")
    broker.send(topic, [*pipes.rows(2), b"{nonsense", *pipes.rows(1, first=2)])
    source = made(broker, topic)
    with pytest.raises(ValueError, match=f"message {topic}/0 offset 2 cannot be read .*JSON"):
        read(source, plan(source))
    source.close()


def test_a_message_that_cannot_be_read_goes_to_the_dead_letters_by_choice(broker: Broker) -> None:
    topic, letters = broker.topic("letters"), broker.topic("letters-dead")
    broker.send(topic, [*pipes.rows(2), b"{nonsense", *pipes.rows(1, first=2)], key=b"k")
    source = made(broker, topic, on_bad_record="dead-letter", dead_letters=letters)
    assert [row["id"] for row in read(source, plan(source))] == [0, 1, 2]
    assert f"1 messages went to topic {letters}, the first {topic}/0 offset 2" in source.notices()[0]
    (letter,) = broker.messages(letters)
    headers = dict(letter.headers() or [])
    assert (letter.key(), letter.value()) == (f"{topic}/0/2".encode(), b"{nonsense")
    assert (headers["reprise-topic"], headers["reprise-offset"], headers["reprise-key"]) == (
        topic.encode(),
        b"2",
        b"k",
    )
    assert b"JSON" in headers["reprise-reason"]
    source.close()


def test_dead_letters_that_cannot_be_written_hold_the_batch_back(broker: Broker) -> None:
    topic = broker.topic("held")
    broker.send(topic, [b"{nonsense"])
    source = made(broker, topic, on_bad_record="dead-letter", dead_letters="nobody-made-this-topic")
    with pytest.raises(SourceError, match="dead letters cannot be written to nobody-made-this-topic"):
        read(source, plan(source))
    source.close()


def test_a_clock_that_is_ahead_does_not_close_windows(broker: Broker) -> None:
    """A producer whose clock is a year ahead: its rows come through, the watermark does not move, and it is said."""
    topic = broker.topic("skew", config={"retention.ms": "-1"})
    now_us = 1_700_000_000_000_000
    good, wrong = (
        {"id": 1, "time": now_us, "name": "a"},
        {"id": 2, "time": now_us + 365 * 86_400 * 10**6, "name": "b"},
    )
    broker.send(topic, [good, wrong], timestamp=now_us // 1000)
    source = made(broker, topic, time={"column": "time", "ahead": "1h"})
    span = plan(source)
    table = patiently(lambda: source.read(P, 1, span))
    _, watermark = source.follow(P, source.initial(P), 1, span, table)
    assert table.num_rows == 2
    assert watermark == now_us
    assert "1 rows of batch 1 are ahead" in source.notices()[0]
    source.close()


def test_offsets_of_checkpoints_are_committed_for_lag_tools(broker: Broker, tmp_path: Path) -> None:
    origin, target = broker.topic("lag-in"), broker.topic("lag-out")
    broker.send(origin, pipes.rows(30))
    parameters = pipes.source(broker, origin, until=broker.ends(origin), batch_rows=10, group=f"lag-{origin}")
    world = pipes.world(pipes.pipe(parameters, pipes.sink(broker, target)), tmp_path, "a")
    world.run(lambda e: e.done)
    lag = Consumer({"bootstrap.servers": broker.address, "group.id": f"lag-{origin}"})
    wait_for(lambda: lag.committed([TopicPartition(origin, 0)], timeout=TIMEOUT_S)[0].offset == 30)
    lag.close()
    manifest = world.engine.store.manifest(world.engine.punctuations.newest)
    assert manifest.logs == {"in.0": {f"{origin}/0": 30}}
    assert len(world.engine.ledger._blocks()) < world.engine.ledger.written


def test_rows_go_on_arriving_while_the_stream_runs(broker: Broker, tmp_path: Path) -> None:
    origin, target = broker.topic("live-in"), broker.topic("live-out")
    broker.send(origin, pipes.rows(5))
    world = pipes.world(pipes.pipe(pipes.source(broker, origin), pipes.sink(broker, target)), tmp_path, "a")
    world.run(lambda _: len(broker.rows(target)) == 5)
    broker.send(origin, pipes.rows(5, first=5))
    world.run(lambda _: len(broker.rows(target)) == 10)
    assert [row["id"] for row in broker.rows(target)] == list(range(10))
    assert world.engine.final is None
    world.nodes.hosts["a"].close()

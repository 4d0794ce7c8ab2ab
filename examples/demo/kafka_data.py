"""What goes into Kafka in the Kafka demo, what must come out, and what did.

The flights are sent while the topology runs, a bit every fifth of a second, each log in the order of event time; so no row
is late, and what must come out is a group-by over the table.  What did come out is read with `isolation.level` set to
`read_committed`, as a consumer would.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from reprise.controller.errors import RunError
from reprise.spark_jobs.sources.tables import nycflights

ORIGIN = "flights"
LOGS = 4
HOUR = 3_600_000_000
TIMEOUT_S = 60.0
TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class Output:
    """One output operator: its topic, keys and windows."""

    topic: str
    keys: tuple[str, ...]
    size_us: int


OUTPUTS = (
    Output("by-carrier", ("carrier",), 24 * HOUR),
    Output("by-origin", ("origin",), HOUR),
    Output("by-route", ("origin", "dest"), 24 * HOUR),
)


@dataclass(frozen=True, slots=True)
class Found:
    """One topic against what it must hold; counts of (key, window)."""

    topic: str
    wanted: int
    missing: int
    twice: int
    different: int

    @property
    def good(self) -> bool:
        return self.wanted > 0 and not (self.missing or self.twice or self.different)


def flights(rows: int) -> pl.DataFrame:
    """The first flights of 2013 in the order of their times."""
    frame = pl.from_arrow(nycflights("flights"))
    assert isinstance(frame, pl.DataFrame)
    late = (pl.col("dep_delay").fill_null(0) > 15).cast(pl.Int64).alias("late")
    time_us = pl.col("time").cast(pl.Int64)
    columns = [time_us, "carrier", "origin", "dest", late, pl.col("distance").cast(pl.Int64)]
    return frame.sort("time", maintain_order=True).head(rows).select(columns)


def make_topics(address: str) -> None:
    """The input with its logs, and a topic for each output."""
    wanted = [NewTopic(ORIGIN, LOGS, 1), *(NewTopic(o.topic, 2, 1) for o in OUTPUTS)]
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics(wanted).values():
        future.result(TIMEOUT_S)


def until(rows: int) -> dict[str, int]:
    """Where each log of the input will end: row i is in log i modulo their number."""
    return {f"{ORIGIN}/{log}": len(range(log, rows, LOGS)) for log in range(LOGS)}


def batch_rows(rows: int, seconds: float, readers: int) -> int:
    """Rows a batch and reader with which batches of a second each take so long for all rows."""
    return max(1, -(-rows // max(1, round(seconds * readers))))


class Feeder(threading.Thread):
    """Sends the first half of the rows, waits for `second_half`, and sends the rest; in `seconds`, without the wait."""

    def __init__(self, address: str, frame: pl.DataFrame, seconds: float) -> None:
        super().__init__(daemon=True)
        self._address, self._seconds = address, seconds
        self._lines = frame.write_ndjson().encode().splitlines()
        self.failed: str | None = None
        self.second_half = threading.Event()

    def run(self) -> None:
        """In its thread."""
        producer = Producer({"bootstrap.servers": self._address, "linger.ms": 20, "enable.idempotence": True})
        half = len(self._lines) // 2
        self._send(producer, 0, half)
        self.second_half.wait()
        self._send(producer, half, len(self._lines))
        if producer.flush(TIMEOUT_S):
            self.failed = "the broker did not take all flights"

    def _send(self, producer: Producer, sent: int, end: int) -> None:
        began, first, a_second = time.monotonic(), sent, len(self._lines) / self._seconds
        while sent < end:
            due = min(end, first + round(a_second * (time.monotonic() - began)))
            for number in range(sent, due):
                producer.produce(ORIGIN, self._lines[number], partition=number % LOGS)
            sent = due
            producer.poll(TICK_S)


def check(address: str, frame: pl.DataFrame) -> list[Found]:
    """Every topic read as committed, against the group-by.  RunError when a topic cannot be read."""
    found = []
    for output in OUTPUTS:
        rows = read_committed(address, output.topic)
        wanted = expected(frame, output)
        counts = Counter(tuple(row[name] for name in (*output.keys, "window_start")) for row in rows)
        values = {
            tuple(row[name] for name in (*output.keys, "window_start")): tuple(
                row[n] for n in ("flights", "late", "miles")
            )
            for row in rows
        }
        found.append(
            Found(
                output.topic,
                wanted=len(wanted),
                missing=len(wanted.keys() - counts.keys()),
                twice=sum(count > 1 for count in counts.values()),
                different=sum(values[k] != wanted.get(k) for k in values),
            )
        )
    return found


def expected(frame: pl.DataFrame, output: Output) -> Mapping[tuple[object, ...], tuple[int, ...]]:
    """(key, window) -> flights, late flights, miles."""
    start = (pl.col("time") - pl.col("time") % output.size_us).alias("window_start")
    grouped = frame.group_by([*output.keys, start]).agg(
        pl.len().alias("flights"), pl.col("late").sum(), pl.col("distance").sum()
    )
    width = len(output.keys) + 1
    return {row[:width]: row[width:] for row in grouped.iter_rows()}


def read_committed(address: str, topic: str) -> list[dict[str, object]]:
    """All committed rows of a topic.  RunError when its end is not reached in time."""
    settings = {"bootstrap.servers": address, "group.id": "reprise-demo", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "isolation.level": "read_committed"})
    about = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    left = set(about.partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
    values: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while left and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.5):
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
    consumer.close()
    if left:
        raise RunError(f"topic {topic} cannot be read to its end")
    return pl.read_ndjson(b"\n".join(values)).to_dicts() if values else []

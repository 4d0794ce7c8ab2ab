"""The benchmark's topics: what goes in, and a reader of committed messages that says when each row came out.

All contestants are measured by the same reader at the end of the pipe, so what a sink costs, and how long a transaction
keeps its rows from readers, is in everybody's figures.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

COLUMNS = {"id": "int64", "time": "int64", "name": "string", "amount": "double"}
TIMEOUT_S = 60.0
TICK_S = 0.02


def make_topics(address: str, logs: int, *names: str) -> None:
    """Topics with `logs` partitions each."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(name, logs, 1) for name in names]).values():
        future.result(TIMEOUT_S)


def row(number: int) -> bytes:
    """About 100 bytes of JSON; `time` is when it was made, microseconds."""
    about = {"id": number, "time": time.time_ns() // 1000, "name": f"customer-{number % 9973:05d}"}
    return json.dumps({**about, "amount": number % 100_000 / 100}, separators=(",", ":")).encode()


def until(topic: str, rows: int, logs: int) -> dict[str, int]:
    """Where each log ends when row i is in log i modulo their number."""
    return {f"{topic}/{log}": len(range(log, rows, logs)) for log in range(logs)}


class Feeder:
    """Sends rows to a topic, row i to log i modulo `logs`."""

    def __init__(self, address: str, topic: str, logs: int) -> None:
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 2, "acks": 1})
        self._topic, self._logs, self.sent = topic, logs, 0

    def fill(self, rows: int) -> None:
        """As fast as it goes.  Returns when the broker has them all."""
        for number in range(self.sent, self.sent + rows):
            self._send(number)
        self.sent += rows
        self._flush()

    def pace(self, rate: int, seconds: float) -> None:
        """`rate` rows a second for so long."""
        began, before = time.monotonic(), self.sent
        while self.sent < before + round(rate * seconds):
            due = before + round(rate * min(seconds, time.monotonic() - began))
            for number in range(self.sent, due):
                self._send(number)
            self.sent = due
            self._producer.poll(TICK_S)
        self._flush()

    def _send(self, number: int) -> None:
        while True:
            try:
                self._producer.produce(self._topic, row(number), partition=number % self._logs)
                return
            except BufferError:
                self._producer.poll(TICK_S)

    def _flush(self) -> None:
        if self._producer.flush(TIMEOUT_S):
            raise TimeoutError(f"the broker has not taken all rows of {self._topic}")


@dataclass(slots=True)
class Seen:
    """What came out: (unix seconds, rows so far) at each look;
    with `delays` also when each row was sent, and how long it took."""

    looks: list[tuple[float, int]] = field(default_factory=list)
    delays: list[tuple[float, float]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.looks[-1][1] if self.looks else 0


class Watcher(threading.Thread):
    """Reads a topic as consumers do that only want what was committed, until it is stopped."""

    def __init__(self, address: str, topic: str, logs: int, *, delays: bool) -> None:
        super().__init__(daemon=True)
        self.seen = Seen()
        self._delays, self._over = delays, threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False,
                "isolation.level": "read_committed", "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 10,
            }
        )  # fmt: skip
        self._consumer.assign([TopicPartition(topic, log, 0) for log in range(logs)])

    def run(self) -> None:
        """In its thread."""
        while not self._over.is_set():
            first = self._consumer.poll(0.2)
            if first is None:
                continue
            found = [m for m in (first, *self._consumer.consume(20_000, 0)) if m.error() is None]
            if found:
                self._note(found, time.time())
        self._consumer.close()

    def _note(self, found: list[Message], now: float) -> None:
        self.seen.looks.append((now, self.seen.rows + len(found)))
        if self._delays:
            sent = [json.loads(m.value() or b"{}")["time"] / 1e6 for m in found]
            self.seen.delays += [(at, now - at) for at in sent]

    def stop(self) -> Seen:
        """What was seen until now."""
        self._over.set()
        self.join(TIMEOUT_S)
        return self.seen

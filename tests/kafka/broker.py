"""What tests do with a real broker: make topics, write, and read what was committed."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tools.testbed.waiting import until

_NUMBERS = itertools.count(1)
TIMEOUT_S = 150.0


class Broker:
    """A running cluster with its admin client; topics of tests have names of their own."""

    def __init__(self, address: str, settings: Mapping[str, str] | None = None, copies: int = 1) -> None:
        self.address, self.copies = address, copies
        self.settings = dict(settings or {})
        self.admin = AdminClient({"bootstrap.servers": address, **self.settings})

    def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic whose name nobody has yet."""
        fresh = f"{name}-{os.getpid()}-{time.time_ns() % 10**9}-{next(_NUMBERS)}"
        self.create(fresh, partitions, config)
        return fresh

    def create(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        new = NewTopic(name, partitions, self.copies, config=dict(config or {}))
        self.admin.create_topics([new])[name].result(TIMEOUT_S)
        wait_for(lambda: len(self._partitions(name)) == partitions)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(TIMEOUT_S)
        wait_for(lambda: name not in self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def configure(self, topic: str, **config: str) -> None:
        entries = [
            ConfigEntry(k.replace("_", "."), v, incremental_operation=AlterConfigOpType.SET)
            for k, v in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def send(self, topic: str, rows: Iterable[Any], partition: int = 0, **more: Any) -> None:
        """Rows as JSON (bytes as they are) into one partition, acknowledged, in their order.

        One request in flight: a request that is repeated (a new partition has no leader yet) stays before the next one.
        """
        one = {"linger.ms": 5, "max.in.flight.requests.per.connection": 1}
        producer = Producer({"bootstrap.servers": self.address, **one, **self.settings})
        for row in rows:
            value = row if isinstance(row, bytes) or row is None else json.dumps(row).encode()
            producer.produce(topic, value, partition=partition, **more)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0

    def messages(self, topic: str, isolation: str = "read_committed") -> list[Message]:
        """Everything in a topic, partition by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address, "group.id": "test-reader", "enable.auto.commit": False,
                "enable.partition.eof": True, "isolation.level": isolation, **self.settings,
            }
        )  # fmt: skip
        parts = self._partitions(topic)
        consumer.assign([TopicPartition(topic, p, 0) for p in parts])
        found: list[Message] = []
        left = set(parts)
        deadline = time.monotonic() + TIMEOUT_S
        while left and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        consumer.close()
        assert not left
        return sorted(found, key=lambda m: (m.partition() or 0, m.offset() or 0))

    def rows(self, topic: str) -> list[Any]:
        """Committed values as JSON."""
        return [json.loads(m.value() or b"null") for m in self.messages(topic)]

    def ends(self, topic: str) -> dict[str, int]:
        """Log -> offset behind its last message, for `until`."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "test-reader", **self.settings})
        found = {}
        for p in self._partitions(topic):
            found[f"{topic}/{p}"] = consumer.get_watermark_offsets(
                TopicPartition(topic, p), timeout=TIMEOUT_S
            )[1]
        consumer.close()
        return found

    def _partitions(self, topic: str) -> Sequence[int]:
        metadata = self.admin.list_topics(timeout=TIMEOUT_S).topics
        return sorted(metadata[topic].partitions) if topic in metadata else ()


def wait_for(true: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Poll until `true`; AssertionError when the time is up."""
    until(true, "what the test waits for", timeout_s, poll_s=0.05)

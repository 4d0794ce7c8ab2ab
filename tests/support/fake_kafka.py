"""Kafka's transactions without a broker: what a transactional producer and a group's committed offsets promise.

A transaction is open, prepared (the coordinator has decided to commit, the markers are still to come) or done.  A producer
that comes up under the same transactional id aborts what is open, completes what is prepared, and fences the ones before it.
What a call does when it fails is chosen by the test (`Broker.faults`): the sink cannot tell whether brokers have heard it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from types import SimpleNamespace
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition


def trouble(code: int = KafkaError._TIMED_OUT) -> KafkaException:
    """What a client raises."""
    return KafkaException(KafkaError(code, "made up by the test"))


@dataclass(frozen=True, slots=True)
class Message:
    """One message, or what a client says in its place."""

    log: str
    at: int
    body: bytes | None = None
    sent_ms: int = 0
    code: int | None = None

    def topic(self) -> str:
        return self.log.rpartition("/")[0]

    def partition(self) -> int:
        return int(self.log.rpartition("/")[2])

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.body

    def key(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, self.sent_ms

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


@dataclass
class Transaction:
    """What one producer has sent since `begin_transaction`."""

    messages: list[tuple[str, int, bytes | None, bytes | None]] = field(default_factory=list)
    headers: list[dict[str, Any]] = field(default_factory=list)
    offset: tuple[str, TopicPartition] | None = None
    prepared: bool = False


@dataclass
class Broker:
    """All there is in the cluster.  `faults`: what happens to the next calls that can fail, one each; none: they work."""

    messages: list[tuple[str, int, bytes | None, bytes | None]] = field(default_factory=list)
    """Committed ones: topic, partition, key, value."""
    headers: list[dict[str, Any]] = field(default_factory=list)
    """Of each of them."""
    committed: dict[str, tuple[int, str]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    under_way: dict[str, Transaction] = field(default_factory=dict)
    lost_ends: set[str] = field(default_factory=set)
    """Groups with an offset whose transaction is over for the coordinator, but has no end in the group's own log."""
    faults: deque[str] = field(default_factory=deque)
    partitions: int = 4
    policy: str = "compact,delete"
    topic_error: KafkaError | None = None
    missing: set[str] = field(default_factory=set)
    """Topics that are not there."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """The cluster answers one call after the other, though sinks have threads of their own and zombies live on."""
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    """Settings of each consumer that was made."""

    def fault(self) -> str:
        return self.faults.popleft() if self.faults else ""

    def finish(self, name: str) -> None:
        """The transaction counts: its messages and its offset are there, both at once."""
        done = self.under_way.pop(name, None)
        if done is not None:
            self.messages += done.messages
            self.headers += done.headers
            if done.offset is not None:
                group, at = done.offset
                self.committed[group] = (at.offset, at.metadata)

    def patch(self, monkeypatch: Any, module: Any) -> None:
        """Put these clients in the place of the real ones."""
        monkeypatch.setattr(module, "Producer", lambda settings: Producer(self, settings))
        monkeypatch.setattr(module, "Consumer", lambda settings: Consumer(self, settings))
        monkeypatch.setattr(module, "AdminClient", lambda settings: Admin(self))


F = TypeVar("F", bound=Callable[..., Any])


def one_by_one(call: F) -> F:
    """A call that the cluster answers before it answers another one."""

    @wraps(call)
    def answered(self: Any, *arguments: Any, **named: Any) -> Any:
        with self._broker.lock:
            return call(self, *arguments, **named)

    return answered  # type: ignore[return-value]


class Producer:
    """A transactional producer."""

    def __init__(self, broker: Broker, settings: Mapping[str, Any]) -> None:
        self._broker, self._name = broker, settings["transactional.id"]
        self._epoch = -1

    @one_by_one
    def init_transactions(self, _timeout: float) -> None:
        fault = self._broker.fault()
        if fault == "unheard":
            raise trouble()
        broker = self._broker
        if self._name in broker.under_way:
            if broker.under_way[self._name].prepared:
                broker.finish(self._name)
            else:
                del broker.under_way[self._name]
        self._epoch = broker.epochs[self._name] = broker.epochs.get(self._name, 0) + 1
        if fault:
            raise trouble()

    def _check(self) -> None:
        if self._broker.epochs.get(self._name) != self._epoch:
            raise trouble(KafkaError._FENCED)

    @one_by_one
    def begin_transaction(self) -> None:
        if self._name in self._broker.under_way and self._broker.epochs[self._name] == self._epoch:
            raise trouble(KafkaError._STATE)
        self._local = Transaction()

    @one_by_one
    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        *,
        on_delivery: Any,
        headers: Any,
    ) -> None:
        fault = self._broker.fault()
        if fault == "undelivered":  # it is known later, and the commit then fails
            on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT, "not delivered"), None)
            return
        if fault:
            raise trouble()
        self._local.messages.append((topic, partition, key, value))
        self._local.headers.append(dict(headers or ()))

    @one_by_one
    def send_offsets_to_transaction(
        self, offsets: Sequence[TopicPartition], group: Any, _timeout: float
    ) -> None:
        fault = self._broker.fault()
        if fault == "unheard":
            raise trouble()
        self._check()
        (at,) = offsets
        self._local.offset = (group.name, at)
        self._broker.under_way[self._name] = self._local
        if fault:
            raise trouble()

    @one_by_one
    def commit_transaction(self, _timeout: float) -> None:
        fault = self._broker.fault()
        if fault == "unheard":
            raise trouble()
        self._check()
        if fault == "prepared":
            self._broker.under_way[self._name].prepared = True
            raise trouble()
        self._broker.finish(self._name)
        if fault:
            raise trouble()

    def poll(self, _timeout: float) -> int:
        return 0

    def purge(self, blocking: bool = True) -> None:
        """What was not sent is forgotten."""


class Consumer:
    """A client that asks for a group's offset and nothing else."""

    def __init__(self, broker: Broker, settings: Mapping[str, Any]) -> None:
        broker.asked.append(settings)
        self._broker, self._group = broker, settings["group.id"]
        self._stable = settings["isolation.level"] == "read_committed"
        assert settings["isolation.level"] in ("read_committed", "read_uncommitted")
        assert settings["enable.auto.commit"] is False

    @one_by_one
    def committed(self, asked: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        (at,) = asked
        assert at.partition == 0
        if self._broker.fault():
            raise trouble()
        pending = [t.offset[0] for t in self._broker.under_way.values() if t.offset is not None]
        if self._stable and self._group in {*pending, *self._broker.lost_ends}:
            raise trouble()  # the brokers answer only once it is known how the transaction ends
        offset, metadata = self._broker.committed.get(self._group, (-1001, ""))
        return [TopicPartition(at.topic, at.partition, offset, metadata)]

    def consumer_group_metadata(self) -> Any:
        return SimpleNamespace(name=self._group)

    def close(self) -> None:
        """Nothing is held."""


class Admin:
    """What the sink asks of a topic."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def list_topics(self, topic: str, timeout: float) -> Any:
        if self._broker.fault():
            raise trouble()
        error = self._broker.topic_error
        if topic in self._broker.missing:
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "made up by the test")
        found = SimpleNamespace(error=error, partitions=range(self._broker.partitions))
        return SimpleNamespace(topics={topic: found})

    def describe_configs(self, resources: Sequence[Any]) -> dict[Any, Any]:
        answer = {"cleanup.policy": SimpleNamespace(value=self._broker.policy)}
        return {resource: SimpleNamespace(result=lambda _timeout: answer) for resource in resources}

    def poll(self, _timeout: float) -> int:
        return 0

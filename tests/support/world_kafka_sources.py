"""Topics that a Kafka source reads in the simulated world: logs that grow in virtual time by transactions of others, clients
that ask for them, and what batches on record hold.

Some transactions are given up, and each ends with a marker that takes an offset, so offsets have holes; nothing behind the
first open transaction may be read.  What is written and when is the same in each run, so that it is known where logs end.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from confluent_kafka import KafkaError, TopicPartition

from reprise.controller.simulated_world.core import EPOCH, World
from reprise.controller.simulated_world.operators import KEYS, Recorded
from reprise.spark_jobs.contract import Place, Range, Source
from reprise.spark_jobs.kafka.logs import log_name
from reprise.spark_jobs.state.ledger import has_ended
from tests.support.fake_kafka import Message, trouble

if TYPE_CHECKING:
    from tests.support.world_kafka import Brokers

INPUT, PARTITIONS = "numbers", 3
WRITES_S, PAUSES_S, OPEN_S = 20.0, (0.1, 0.9), (0.0, 0.4)
"""How long all is written, between transactions of one log, and how long each is open."""
GIVEN_UP = 0.2
"""How many of them are."""


@dataclass(frozen=True, slots=True)
class Written:
    """A transaction: messages at `begins`, and its end `open_s` later."""

    log: str
    begins: float
    open_s: float
    numbers: range
    counts: bool


def _script() -> tuple[Written, ...]:
    dice, found = random.Random("messages"), list[Written]()
    for partition in range(PARTITIONS):
        now, first = 0.0, 0
        while (now := now + dice.uniform(*PAUSES_S)) < WRITES_S:
            last, open_s = first + dice.randint(1, 3), dice.uniform(*OPEN_S)
            found.append(
                Written(
                    log_name(INPUT, partition), now, open_s, range(first, last), dice.random() >= GIVEN_UP
                )
            )
            now, first = now + open_s, last
    return tuple(found)


SCRIPT = _script()
ENDS = {
    log: sum(len(written.numbers) + 1 for written in SCRIPT if written.log == log)
    for log in sorted({written.log for written in SCRIPT})
}
PARAMETERS = {
    "brokers": "127.0.0.1:1",
    "topics": [INPUT],
    "batch_rows": 5,
    "columns": {"key": "long", "n": "long"},
    "until": ENDS,
}
SOURCE = f"""class: "reprise.kafka:KafkaSource"
      with: {json.dumps(PARAMETERS)}"""
"""As a resource says it: bounded, so that a run ends."""


@dataclass
class Log:
    """What brokers have of one log; `stable`: the offset behind the last that may be read."""

    messages: dict[int, Message] = field(default_factory=dict)
    end: int = 0
    stable: int = 0

    def readable(self, at: int) -> list[Message]:
        """From an offset on, in order."""
        return [m for offset, m in sorted(self.messages.items()) if at <= offset < self.stable]


class Topics:
    """All logs; they grow while the world runs."""

    def __init__(self, world: World) -> None:
        self.logs = {log: Log() for log in ENDS}
        for written in SCRIPT:
            world.call(written.begins, lambda written=written: self._begin(world, written))  # type: ignore[misc]

    def _begin(self, world: World, written: Written) -> None:
        log, first = self.logs[written.log], self.logs[written.log].end
        for offset, n in enumerate(written.numbers, first):
            value = json.dumps({"key": n * 7 % KEYS, "n": n}).encode()
            log.messages[offset] = Message(written.log, offset, value, round((EPOCH + world.now) * 1000))
        log.end = first + len(written.numbers)
        world.call(written.open_s, lambda: self._finish(written, first))

    def _finish(self, written: Written, first: int) -> None:
        log = self.logs[written.log]
        if not written.counts:
            for offset in range(first, log.end):
                del log.messages[offset]
        log.end += 1
        log.stable = log.end


class AskingClient:
    """What the driver asks of logs."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def _ask(self) -> None:
        self._brokers.travel()
        if self._brokers.fails():
            raise trouble()
        self._brokers.travel()

    def list_topics(self, timeout: float) -> Any:
        self._ask()
        topic = SimpleNamespace(error=None, partitions=range(PARTITIONS))
        return SimpleNamespace(topics={INPUT: topic}, cluster_id="cluster")

    def describe_topics(self, asked: Any, request_timeout: float) -> Any:
        self._ask()
        return {INPUT: SimpleNamespace(result=lambda _timeout: SimpleNamespace(topic_id="of-input"))}

    def describe_cluster(self, request_timeout: float) -> Any:
        self._ask()
        return SimpleNamespace(result=lambda _timeout: SimpleNamespace(cluster_id="cluster"))

    def list_offsets(
        self, asked: Mapping[TopicPartition, Any], isolation_level: Any, request_timeout: float
    ) -> Any:
        self._ask()
        earliest = all(type(spec).__name__ == "EarliestSpec" for spec in asked.values())
        logs = self._brokers.topics.logs
        found = {at: 0 if earliest else logs[log_name(at.topic, at.partition)].stable for at in asked}
        return {
            at: SimpleNamespace(result=lambda _timeout, offset=offset: SimpleNamespace(offset=offset))
            for at, offset in found.items()
        }

    def poll(self, _timeout: float) -> int:
        return 0


class ReadingClient:
    """What hosts read logs with: some messages at a time, and a word where a log ends for now."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers, self._at, self._paused = brokers, dict[str, int](), set[str]()
        self._told: dict[str, int] = {}

    def assign(self, at: Sequence[TopicPartition]) -> None:
        self._at = {log_name(p.topic, p.partition): p.offset for p in at}
        self._told, self._paused = {}, set()

    def pause(self, at: Sequence[TopicPartition]) -> None:
        self._paused |= {log_name(p.topic, p.partition) for p in at}

    def resume(self, at: Sequence[TopicPartition]) -> None:
        self._paused -= {log_name(p.topic, p.partition) for p in at}

    def consume(self, count: int, timeout: float) -> list[Message]:
        brokers = self._brokers
        brokers.sleep(timeout)
        if brokers.away or not self._at:
            return []
        if brokers.fails():
            return [Message(min(self._at), -1, code=KafkaError._TRANSPORT)]
        found = list[Message]()
        for log, at in sorted(self._at.items()):
            if log not in self._paused:
                found += self._fetched(log, at)
        return found

    def _fetched(self, log: str, at: int) -> list[Message]:
        known = self._brokers.topics.logs[log]
        there = known.readable(at)[: self._brokers.dice.randint(1, 4)]
        if there:
            self._at[log] = there[-1].at + 1
            return there
        self._at[log] = max(at, known.stable)
        if self._told.get(log) == known.stable:
            return []
        self._told[log] = known.stable
        return [Message(log, self._at[log], code=KafkaError._PARTITION_EOF)]

    def close(self) -> None:
        """Nothing is held."""


class RecordedLogs(Source):
    """Rows of the batches that are on record, from the logs themselves."""

    topics: ClassVar[Topics]

    def __init__(self, **_: Any) -> None: ...

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        raise NotImplementedError

    def plan(self, place: Place, batch: int, before: Range) -> Range | None:
        span = Recorded.ranges.get(f"{place.operator}.{place.index}", {}).get(batch)
        return None if span is None or has_ended(span) else span

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        found = [
            (message.sent_ms * 1000, json.loads(message.body or b""))
            for log, (begin, end) in sorted(span.logs.items())
            for offset, message in sorted(self.topics.logs[log].messages.items())
            if begin <= offset < end
        ]
        columns = {name: pa.array([row[name] for _, row in found], pa.int64()) for name in ("key", "n")}
        return pa.table({**columns, "time": pa.array([time for time, _ in found], pa.int64())})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return None


def gaps_between(ranges: Mapping[str, Mapping[int, Range]], ended: bool) -> list[str]:
    """Where batches on record do not follow each other log by log, from the begin to the end: each offset is in one."""
    wrong, ends = list[str](), dict.fromkeys(ENDS, 0)
    for spans in ranges.values():
        for batch, span in sorted(spans.items()):
            for log, (begin, end) in () if has_ended(span) else span.logs.items():
                if begin != ends[log]:
                    wrong.append(
                        f"batch {batch} has {log} from {begin}, and the one before ends at {ends[log]}"
                    )
                ends[log] = end
    if ended and ends != ENDS:
        wrong.append(f"batches end at {ends}, and logs at {ENDS}")
    return wrong

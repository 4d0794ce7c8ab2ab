"""How far the logs of a source go, asked in the driver before batches are cut.

A log is one partition of one topic, named `topic/partition`.  The brokers are asked in a thread of its own, for a broker
that is down must not stop the queries that do not read from it: a look that takes too long is left under way, the batch
waits, and the next look finds its answer.  Invariant: `Snapshot.ends` are last stable offsets, so nothing below them will
change any more and no open transaction lies there.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as NotInTimeError
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from reprise.spark_jobs.errors import NotYetError, SourceError
from reprise.spark_jobs.kafka.heard import Heard
from reprise.spark_jobs.kafka.settings import SecretError, Settings
from reprise.spark_jobs.platform import PLATFORM, Platform

PATIENCE_S = 0.5
"""How long the driver waits for an answer, unless the brokers are known to be slow."""
ALARM_S = 3.0
"""After so long without an answer it is worth a report."""
REQUEST_S = 10.0
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of a topic in a cluster that knows no ids."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Log -> first offset that is there, and the offset behind the last that may be read."""

    begins: Mapping[str, int]
    ends: Mapping[str, int]
    cluster: int = 0
    """Which of the clusters answered; 0 is the primary."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Topic -> `<id of the cluster>/<id of the topic>`, where the primary answers and knows ids (Kafka 2.8 and later)."""


def log_name(topic: str, partition: int) -> str:
    """`topic/partition`."""
    return f"{topic}/{partition}"


def split_name(log: str) -> tuple[str, int]:
    """The inverse of `log_name`."""
    topic, _, partition = log.rpartition("/")
    return topic, int(partition)


def reader_of(log: str, parallelism: int) -> int:
    """Which source partition reads a log: consecutive partitions of a topic go to consecutive source partitions, from a
    place that the topic's name gives.  It depends on nothing else, so a new log never moves another."""
    topic, partition = split_name(log)
    return (zlib.crc32(topic.encode()) + partition) % parallelism


class _Question:
    """Asked in a thread of its own."""

    def __init__(self, platform: Platform, ask: Callable[[], Snapshot]) -> None:
        self._ask, self._over = ask, platform.event()
        self._found: Snapshot | Exception | None = None
        platform.begin(self._run, "kafka-look")

    def _run(self) -> None:
        try:
            self._found = self._ask()
        except Exception as error:
            self._found = error
        self._over.set()

    def answer(self, patience_s: float) -> Snapshot:
        """What was found.  NotInTimeError: nothing in so many seconds; and whatever asking has raised."""
        self._over.wait(patience_s)
        if self._found is None:
            raise NotInTimeError
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


class Logs:
    """The logs of some topics on the first cluster that answers."""

    def __init__(
        self,
        clusters: Sequence[str],
        settings: Settings,
        topics: Sequence[str],
        pattern: str | None,
        *,
        committed: bool,
        discover_s: float,
        standby_after_s: float,
        platform: Platform = PLATFORM,
    ) -> None:
        self._clusters, self._settings = clusters, settings
        self._topics, self._pattern = tuple(topics), re.compile(pattern) if pattern else None
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._discover_s, self._standby_after_s = discover_s, standby_after_s
        self.snapshot: Snapshot | None = None
        self._platform = platform
        self._asking: _Question | None = None
        self._asked = 0.0
        self._troubled: float | None = None
        self._cluster = 0
        self._admins: dict[int, AdminClient] = {}
        self._heard = Heard()
        self._known: tuple[TopicPartition, ...] = ()
        self._cluster_id: str | None = None
        self._discovered = float("-inf")

    def look(self) -> Snapshot:
        """The newest snapshot.  NotYetError, and after a while SourceError, when there is no fresh one."""
        now = self._platform.elapsed()
        if self._asking is None:
            self._asking, self._asked = _Question(self._platform, self._ask), now
        slow = now - self._asked > PATIENCE_S
        try:
            self.snapshot = self._asking.answer(0 if slow else PATIENCE_S)
        except NotInTimeError:
            waited = self._platform.elapsed() - self._asked
            if waited < ALARM_S:
                raise NotYetError(f"no answer yet from {self._clusters[self._cluster]}") from None
            said = f"brokers {self._clusters[self._cluster]} have not answered for {waited:.0f} s"
            raise SourceError(self._settings.clean(self._heard.beside(said))) from None
        except (KafkaException, SecretError, SourceError) as error:
            self._asking = None
            self._note_trouble(now)
            raise SourceError(self._settings.clean(self._heard.beside(reason(error)))) from None
        self._asking, self._troubled = None, None
        self._heard.forget()
        return self.snapshot

    def _note_trouble(self, now: float) -> None:
        """After long enough the next cluster of the list is asked."""
        self._troubled = self._troubled or self._asked
        if now - self._troubled >= self._standby_after_s and len(self._clusters) > 1:
            self._cluster = (self._cluster + 1) % len(self._clusters)
            self._troubled, self._discovered = None, float("-inf")
            self._heard.forget()

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _ask(self) -> Snapshot:
        cluster = self._cluster
        admin = self._admin(cluster)
        try:
            return self._ask_of(admin, cluster)
        finally:
            admin.poll(0)  # lets the client say what it has heard

    def _ask_of(self, admin: AdminClient, cluster: int) -> Snapshot:
        if self._platform.elapsed() - self._discovered >= self._discover_s:
            self._known = self._discover(admin)
            self._discovered = self._platform.elapsed()
        begins = self._offsets(admin, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._offsets(admin, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        # asked last: whatever topic these offsets are of has this id, or one that was created later
        return Snapshot(begins, ends, cluster, {} if cluster else self._ids(admin))

    def _admin(self, cluster: int) -> AdminClient:
        if cluster not in self._admins:
            settings = self._settings.resolve(self._clusters[cluster], {"error_cb": self._heard})
            self._admins[cluster] = AdminClient(_for_admin(settings))
        return self._admins[cluster]

    def _discover(self, admin: AdminClient) -> tuple[TopicPartition, ...]:
        found = []
        answer = admin.list_topics(timeout=REQUEST_S)
        self._cluster_id, metadata = answer.cluster_id, answer.topics
        for name in self._topics:
            if name not in metadata:
                raise SourceError(f"there is no topic {name!r} (or no right to see it)")
        for name, topic in sorted(metadata.items()):
            if name in self._topics or (self._pattern is not None and self._pattern.fullmatch(name)):
                if topic.error is not None:
                    raise SourceError(f"topic {name!r}: {topic.error.str()}")
                found += [TopicPartition(name, partition) for partition in sorted(topic.partitions)]
        return tuple(found)

    def _ids(self, admin: AdminClient) -> dict[str, str]:
        names = sorted({at.topic for at in self._known})
        if not names:
            return {}
        asked = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_S)
        found = {}
        for name, future in asked.items():
            try:
                found[name] = str(future.result(REQUEST_S).topic_id)
            except (KafkaException, NotInTimeError) as error:
                self._discovered = float("-inf")
                raise SourceError(f"topic {name!r}: {reason(error) or 'no answer'}") from None
        return {name: f"{self._cluster_id}/{known}" for name, known in found.items() if known != NO_ID}

    def _offsets(self, admin: AdminClient, spec: OffsetSpec) -> dict[str, int]:
        if not self._known:
            return {}
        asked = admin.list_offsets(
            dict.fromkeys(self._known, spec), isolation_level=self._isolation, request_timeout=REQUEST_S
        )
        answers = {}
        for at, future in asked.items():
            try:
                answers[log_name(at.topic, at.partition)] = int(future.result(REQUEST_S).offset)
            except (KafkaException, NotInTimeError) as error:
                self._discovered = float("-inf")
                why = reason(error) or "no answer"
                raise SourceError(f"topic {at.topic!r}, partition {at.partition}: {why}") from None
        return answers


class TopicIds:
    """Requests the ids of topics from the primary cluster, as `Snapshot.ids` has them.  Only `result` blocks."""

    def __init__(self, bootstrap: str, settings: Settings, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self._admin = AdminClient(_for_admin(settings.resolve(bootstrap)))
        self._cluster = self._admin.describe_cluster(request_timeout=REQUEST_S)
        self._topics = self._admin.describe_topics(
            TopicCollection(sorted(self.topics)), request_timeout=REQUEST_S
        )

    def result(self, patience_s: float) -> dict[str, str]:
        """NotInTimeError: no answer after so many seconds.  KafkaException: no answer will come."""
        cluster = self._cluster.result(patience_s).cluster_id
        found = {name: str(future.result(patience_s).topic_id) for name, future in self._topics.items()}
        return {name: f"{cluster}/{known}" for name, known in found.items() if known != NO_ID}


def created_again(log: str, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether a topic of this name was deleted and created again in the same cluster, by ids as `Snapshot.ids` has them.  A
    cluster that has become the primary is taken for a mirror with the same offsets."""
    topic, _ = split_name(log)
    (cluster, _, known), (there, _, found) = (ids.get(topic, "").partition("/") for ids in (before, now))
    return cluster == there and known != found


class Commits:
    """Offsets of complete checkpoints in a consumer group, for tools that show lag; nothing is ever read from it."""

    def __init__(self, cluster: str, settings: Settings, group: str) -> None:
        self._settings = settings
        self._consumer = Consumer(settings.resolve(cluster, {"group.id": group, "enable.auto.commit": False}))

    def commit(self, ends: Mapping[str, int]) -> None:
        """Send and do not wait.  KafkaException: what is wrong at once."""
        offsets = [TopicPartition(*split_name(log), end) for log, end in ends.items()]
        self._consumer.commit(offsets=offsets, asynchronous=True)
        self._consumer.poll(0)


def _for_admin(settings: dict[str, Any]) -> dict[str, Any]:
    """An admin client is a producer to librdkafka and warns of settings that consumers alone have."""
    return {
        name: value
        for name, value in settings.items()
        if not name.startswith(
            ("fetch.", "queued.", "isolation.", "check.", "max.poll", "session.", "group.")
        )
    }


def reason(error: BaseException) -> str:
    """What the client says of an error, with the error's name."""
    found = error.args[0] if error.args else error
    return f"{found.str()} ({found.name()})" if isinstance(found, KafkaError) else str(found)

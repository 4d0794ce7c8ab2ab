"""Batches of one output partition in Kafka transactions, with a marker that tells a replay from something new.

The marker is the offset that the partition's own consumer group has committed for partition 0 of the topic: the number of
the last batch written.  It is committed in the transaction that writes the batch, so both are there or none; a transaction
may hold several batches, and the marker names the last.  Its metadata says who wrote (`Owner`) and what (a digest of each of
the last batches).

A partition that has shown anything, be it a batch without rows, has a marker: the sink opens its session before the first
batch counts as visible.  Only so does a marker that is missing at position k > 0 prove that something was lost.

A new owner opens in this order: read the marker and give up if a later owner has claimed the partition; `init_transactions`,
which ends what an earlier producer had under way and fences it; read the marker again; claim it.  Why this is enough, and
what else was looked at: docs/decisions/0005-kafka-sink-protocol.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from reprise.spark_jobs.errors import FencedError, SinkError
from reprise.spark_jobs.kafka.encode import Keyed
from reprise.spark_jobs.kafka.heard import Heard
from reprise.spark_jobs.kafka.logs import reason
from reprise.spark_jobs.kafka.settings import SecretError, Settings, shared
from reprise.spark_jobs.platform import PLATFORM
from reprise.spark_jobs.sinks import Owner

TIMEOUT_S = 15.0
REFRESH_S = 3600.0
"""A marker older than this is committed anew although nothing was written, or it would expire with its group's offsets."""
DIGESTS = 32
"""Batches whose digests the marker keeps: a replay that differs is found out among them."""
DEFAULTS: Mapping[str, str | int] = {
    "partitioner": "murmur2_random",  # where Java producers put the same keys
    "transaction.timeout.ms": 30_000,  # longest time that readers wait behind a zombie's open transaction
    "linger.ms": 2,
    "allow.auto.create.topics": "false",  # a topic that was deleted must not come back without being asked for
}
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


Headers = Sequence[tuple[str, str | bytes | None]]


class TooLargeError(Exception):
    """A message that the brokers will never take."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch written, by whom, and digests by batch."""

    batch: int
    owner: Owner
    digests: Mapping[int, str] = field(default_factory=dict)

    def differs(self, written: Written) -> bool:
        """Whether this batch was written before with other rows, as far as that is known."""
        if written.batch > self.batch:
            return False
        before = self.digests.get(written.batch)
        if before is None:  # of those between batches with a digest it is known that they had no rows
            return bool(written.messages) and any(batch < written.batch for batch in self.digests)
        return before != written.digest

    def encode(self) -> str:
        """The text for the metadata of a committed offset, below the 4096 bytes that brokers allow."""
        digests = {str(b): d for b, d in sorted(self.digests.items())[-DIGESTS:]}
        return json.dumps(
            {"stream": self.owner.stream, "installation": self.owner.installation, "digests": digests},
            separators=(",", ":"),
        )

    @staticmethod
    def decode(batch: int, text: str) -> Marker:
        """SinkError for metadata that somebody else wrote."""
        try:
            raw = json.loads(text)
            owner = Owner(float(raw["stream"]), tuple(int(part) for part in raw["installation"]))
            return Marker(batch, owner, {int(b): str(d) for b, d in raw["digests"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SinkError(f"the committed offset is not a marker of Reprise: {error}") from None


@dataclass(frozen=True, slots=True)
class Written:
    """One batch, ready to be produced: messages by topic, and the partition for those without a key."""

    batch: int
    messages: Keyed
    headers: Headers = ()
    letters: Sequence[tuple[bytes, bytes, Headers]] = ()
    """Dead letters: key, value, headers."""

    @property
    def digest(self) -> str:
        """Of the messages as a list: all lengths and then all parts, so that no two lists have the same bytes."""
        parts = [part for message in self.messages for part in message]
        lengths = np.array([-1 if part is None else len(part) for part in parts], ">i8")
        found = hashlib.blake2b(lengths.tobytes(), digest_size=8)
        found.update(b"".join(filter(None, parts)))
        return found.hexdigest()


class Session:
    """The transactions of one output partition, as long as this installation of it owns them."""

    def __init__(
        self, brokers: str, settings: Settings, *, name: str, topic: str, letters: str | None,
        owner: Owner, position: int, go_on_without_marker: bool, compacted: bool, gaps: str | None = None,
        elapsed: Callable[[], float] = PLATFORM.elapsed,
    ) -> None:  # fmt: skip
        self._brokers, self._settings = brokers, settings
        self._name, self._topic, self._letters, self._gaps = name, topic, letters, gaps
        self._owner, self._position = owner, position
        self._go_on, self._compacted, self._elapsed = go_on_without_marker, compacted, elapsed
        self._producer: Producer | None = None
        self._group: object = None
        self._partitions = 1
        self._failed: list[tuple[int, str]] = []
        self._heard = Heard()
        self._committed_at = float("-inf")
        self.marker: Marker | None = None

    @property
    def stale(self) -> bool:
        """Whether the marker should be committed again for its age alone."""
        return self._elapsed() - self._committed_at > REFRESH_S

    def open(self) -> Marker:
        """The marker, once this owner has the partition.  FencedError: a later owner has it.  SinkError: try again."""
        if self._producer is not None and self.marker is not None:
            return self.marker
        self._producer = None
        try:
            self._check_topic()
            self._look(stable=False)
            producer = Producer(
                self._settings.resolve(
                    self._brokers,
                    {
                        "transactional.id": self._name,
                        "client.id": self._name,
                        "error_cb": self._heard,
                        "delivery.report.only.error": True,
                    },
                )
            )
            producer.init_transactions(TIMEOUT_S)
            self._producer, self.marker = producer, self._claim(producer, self._decided())
            self._heard.forget()
            return self.marker
        except (KafkaException, SecretError) as error:
            self.drop()
            raise SinkError(self._say(error)) from None

    def _check_topic(self) -> None:
        """How many partitions there are, and whether the topic keeps the last message of each key where that is meant."""
        admin = AdminClient(shared(self._settings.resolve(self._brokers)) | {"error_cb": self._heard})
        try:
            topic = admin.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic]
            gaps = (
                admin.list_topics(self._gaps, timeout=TIMEOUT_S).topics[self._gaps] if self._gaps else topic
            )
        finally:
            admin.poll(0)  # lets the client say what it has heard
        if topic.error is not None:
            raise KafkaException(topic.error)
        if gaps.error is not None:  # now, and not at three in the morning
            raise SinkError(
                f"topic {self._gaps}, for marks of gaps: {self._settings.clean(gaps.error.str())}"
            )
        self._partitions = len(topic.partitions)
        if self._compacted:
            resource = ConfigResource(ResourceType.TOPIC, self._topic)
            config = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
            if "compact" not in (policy := str(config["cleanup.policy"].value)):
                raise SinkError(
                    f"topic {self._topic} has cleanup.policy={policy}; mode upsert needs a compacted topic"
                )

    def _look(self, stable: bool) -> Marker | None:
        """The committed marker; with `stable` what is pending in a transaction is waited for.

        Before `init_transactions` nothing may be waited for: what is pending then is what this call will end.
        """
        level = "read_committed" if stable else "read_uncommitted"
        settings = shared(self._settings.resolve(self._brokers))
        consumer = Consumer(
            {**settings, "group.id": self._name, "enable.auto.commit": False, "isolation.level": level}
        )
        try:
            (at,) = consumer.committed([TopicPartition(self._topic, 0)], timeout=TIMEOUT_S)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        if at.error is not None:
            raise KafkaException(at.error)
        found = None if at.offset < 0 else Marker.decode(at.offset, at.metadata or "")
        if found is not None and found.owner > self._owner:
            self.drop()
            raise FencedError(f"{self._name} belongs to a later installation {found.owner}")
        return found

    def _decided(self) -> Marker | None:
        """The committed marker after `init_transactions`, which has ended all that was open under this name."""
        try:
            return self._look(stable=True)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            raise SinkError(
                f"{self._say(error)}: a transaction of {self._name} is still pending there, though none is open; "
                "if this lasts, the brokers have lost its end, as Kafka 4.3.0 to 4.4.0 can (KAFKA-20734)"
            ) from None

    def _claim(self, producer: Producer, found: Marker | None) -> Marker:
        """Write this owner into the marker, so that nobody before it opens the partition any more."""
        owner = self._owner
        if found is not None and found.owner.stream < owner.stream:
            found = Marker(0, owner)  # another stream wrote here: nothing of this one is there
        elif found is None:
            known = max(self._position, self.marker.batch if self.marker else 0)
            if known and not self._go_on:
                raise SinkError(
                    f"the marker of {self._name} on topic {self._topic} is gone though batch {known} was written: the topic "
                    "was made anew, or the offset expired; `on_marker_lost: continue` goes on behind that batch"
                )
            found = Marker(known, owner)
        claimed = replace(found, owner=owner)
        producer.begin_transaction()
        self._finish(producer, claimed)
        return claimed

    def _finish(self, producer: Producer, marker: Marker) -> None:
        at = TopicPartition(self._topic, 0, marker.batch, marker.encode())
        producer.send_offsets_to_transaction([at], self._group, TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        self._committed_at = self._elapsed()

    def write(self, batches: Sequence[Written]) -> None:
        """All batches and the new marker, in one transaction; without batches the old marker, so that it does not expire.

        SinkError: it is not known to be there, try again after `open`; TooLargeError: it never will be.
        """
        producer, before = self._opened()
        digests = {**before.digests, **{w.batch: w.digest for w in batches}}
        last = batches[-1].batch if batches else before.batch
        marker = replace(before, batch=last, digests=dict(sorted(digests.items())[-DIGESTS:]))
        try:
            producer.begin_transaction()
            for written in batches:
                self._produce(producer, written)
            self._finish(producer, marker)
            self.marker = marker
        except (KafkaException, BufferError) as error:
            self._give_up(producer, error)

    def mark(self, batches: Sequence[int], about: Callable[[int], Headers]) -> None:
        """A message for each of these batches on the topic of gaps, in a transaction with the marker as it is: whoever is no
        owner any more marks nothing.  The key is the same each time, so that one which is sent again is recognised.
        Raises what `write` raises."""
        producer, marker = self._opened()
        assert self._gaps is not None
        try:
            producer.begin_transaction()
            for batch in batches:
                headers = list(about(batch))
                value = json.dumps({"topic": self._topic, "name": self._name, "batch": batch}).encode()
                self._send(producer, self._gaps, value, f"{self._name}/{batch}".encode(), headers)
            self._finish(producer, marker)
        except (KafkaException, BufferError) as error:
            try:
                self._give_up(producer, error)
            except SinkError as said:
                raise SinkError(f"marks of gaps, to topic {self._gaps}: {said}") from error

    def _opened(self) -> tuple[Producer, Marker]:
        if self._producer is None or self.marker is None:
            raise SinkError("the session is not open")
        self._failed.clear()
        return self._producer, self.marker

    def _produce(self, producer: Producer, written: Written) -> None:
        own = int(self._name.rpartition(".")[2]) % self._partitions
        headers = list(written.headers) or None
        for key, value in written.messages:
            self._send(producer, self._topic, value, key, headers, -1 if key is not None else own)
        for key, value, about in written.letters:
            assert self._letters is not None
            self._send(producer, self._letters, value, key, list(about))

    def _send(
        self,
        producer: Producer,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, str | bytes | None]] | None,
        partition: int = -1,
    ) -> None:
        while True:
            try:
                producer.produce(topic, value, key, partition, on_delivery=self._note, headers=headers)
                return
            except BufferError:
                producer.poll(0.1)  # librdkafka's queue is full: it bounds memory

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append((error.code(), error.str()))

    def _give_up(self, producer: Producer, error: BaseException) -> None:
        """Whatever went wrong, the next `open` ends the transaction and learns from the marker whether it was committed."""
        kafka = error.args[0] if error.args and isinstance(error.args[0], KafkaError) else None
        with contextlib.suppress(KafkaException):  # a fenced producer says so again
            producer.poll(0)
        codes = {code for code, _ in self._failed} | ({kafka.code()} if kafka is not None else set())
        self.drop()
        if KafkaError.MSG_SIZE_TOO_LARGE in codes:
            raise TooLargeError(self._say(error))
        what = self._say(error)
        if self._failed:
            what += f" ({self._settings.clean(self._failed[0][1])})"
        if codes & set(_FENCED):
            what = f"the producer was fenced or its transaction timed out: {what}"
        raise SinkError(what)

    def _say(self, error: BaseException) -> str:
        return f"topic {self._topic}: {self._settings.clean(self._heard.beside(reason(error)))}"

    def drop(self) -> None:
        """Forget the producer; what it had under way is ended by the next one."""
        if self._producer is not None:
            with contextlib.suppress(KafkaException):
                self._producer.purge(blocking=False)
            self._producer = None

"""Messages that could not be read, put aside in a topic with the reason and where they came from.

At least once: a replayed batch puts its bad messages aside again.  The key of a dead letter is its coordinates, so a
compacted topic keeps each once, and a reader of any other can tell repetitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from reprise.spark_jobs.errors import SourceError
from reprise.spark_jobs.kafka.logs import reason
from reprise.spark_jobs.kafka.settings import SecretError, Settings

TIMEOUT_S = 5.0


class DeadLetters:
    """A producer to one topic."""

    def __init__(self, brokers: str, settings: Settings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._failed: list[str] = []
        try:
            self._producer = Producer(
                settings.resolve(brokers, {"enable.idempotence": True, "allow.auto.create.topics": False})
            )
        except (KafkaException, SecretError) as error:
            raise SourceError(settings.clean(f"dead letters cannot be written: {reason(error)}")) from None

    def send(self, partition: str, bad: Sequence[tuple[Message, str]]) -> None:
        """All of them, or SourceError: the batch waits, for no message may be lost."""
        self._failed.clear()
        for message, why in bad:
            where = f"{message.topic()}/{message.partition()}/{message.offset()}"
            headers = {
                "reprise-reason": why.encode(),
                "reprise-topic": (message.topic() or "").encode(),
                "reprise-partition": str(message.partition()).encode(),
                "reprise-offset": str(message.offset()).encode(),
                "reprise-reader": partition.encode(),
                "reprise-key": message.key() or b"",
            }
            self._producer.produce(
                self._topic,
                message.value(),
                where.encode(),
                headers=list(headers.items()),
                on_delivery=self._note,
            )
        left = self._producer.flush(TIMEOUT_S)
        if left or self._failed:
            self._producer.purge()
            why = self._failed[0] if self._failed else f"no answer for {TIMEOUT_S:g} s"
            raise SourceError(self._settings.clean(f"dead letters cannot be written to {self._topic}: {why}"))

    def close(self) -> None:
        """Everything was flushed by `send`."""
        self._producer.flush(0)

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error.str())

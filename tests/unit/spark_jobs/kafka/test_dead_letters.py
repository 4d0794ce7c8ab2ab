"""Messages that could not be read are put aside with their coordinates, all of them or the batch waits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from reprise.spark_jobs.errors import SourceError
from reprise.spark_jobs.kafka import dead_letters
from reprise.spark_jobs.kafka.dead_letters import TIMEOUT_S, DeadLetters
from reprise.spark_jobs.kafka.settings import Settings

PLAIN = Settings({})


class Producer:
    """One that delivers at the flush; `left`: messages still on their way then; `error`: what became of the rest."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.sent = settings, list[dict[str, Any]]()
        self.left, self.error, self.purged = 0, None, 0
        self.waiting: list[Callable[[Any, Any], None]] = []

    def produce(self, topic: str, value: bytes, key: bytes, *, headers: Any, on_delivery: Any) -> None:
        self.sent.append({"topic": topic, "value": value, "key": key, "headers": dict(headers)})
        self.waiting.append(on_delivery)

    def flush(self, _timeout: float) -> int:
        for delivered in self.waiting[: len(self.waiting) - self.left]:
            delivered(self.error, None)
        self.waiting.clear()
        return self.left

    def purge(self) -> None:
        self.purged += 1


def message(offset: int, value: bytes | None = b"?", key: bytes | None = b"k") -> Any:
    return SimpleNamespace(
        topic=lambda: "t", partition=lambda: 3, offset=lambda: offset, value=lambda: value, key=lambda: key
    )


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> DeadLetters:
    monkeypatch.setattr(dead_letters, "Producer", Producer)
    return DeadLetters("b:9092", PLAIN, "aside")


def producer(letters: DeadLetters) -> Producer:
    found: Any = letters._producer
    return found


def test_a_dead_letter_says_where_it_came_from_and_why_it_is_one(letters: DeadLetters) -> None:
    letters.send("in.0", [(message(7), "no JSON")])
    (sent,) = producer(letters).sent
    assert (sent["topic"], sent["key"], sent["value"]) == ("aside", b"t/3/7", b"?")
    assert sent["headers"] == {
        "reprise-reason": b"no JSON", "reprise-topic": b"t", "reprise-partition": b"3", "reprise-offset": b"7",
        "reprise-reader": b"in.0", "reprise-key": b"k",
    }  # fmt: skip


def test_a_message_that_is_told_again_has_the_same_key(letters: DeadLetters) -> None:
    for _ in range(2):
        letters.send("in.0", [(message(7), "no JSON"), (message(8, None, None), "empty")])
    keys = [sent["key"] for sent in producer(letters).sent]
    assert keys == [b"t/3/7", b"t/3/8"] * 2, "a compacted topic keeps each once"
    assert producer(letters).sent[1]["headers"]["reprise-key"] == b""
    assert producer(letters).sent[1]["value"] is None


def test_it_is_acknowledged_by_all_and_makes_no_topic(letters: DeadLetters) -> None:
    settings = producer(letters).settings
    assert settings["enable.idempotence"] is True
    assert settings["allow.auto.create.topics"] is False
    assert settings["bootstrap.servers"] == "b:9092"


def test_no_answer_in_time_makes_the_batch_wait_and_leaves_nothing_behind(letters: DeadLetters) -> None:
    producer(letters).left = 1
    with pytest.raises(SourceError, match=rf"cannot be written to aside: no answer for {TIMEOUT_S:g} s"):
        letters.send("in.0", [(message(7), "x"), (message(8), "x")])
    assert producer(letters).purged == 1, "else it would come with the next try as well"
    producer(letters).left = 0
    letters.send("in.0", [(message(7), "x"), (message(8), "x")])
    assert producer(letters).purged == 1


def test_what_a_broker_refuses_is_said_and_forgotten_with_the_next_try(letters: DeadLetters) -> None:
    producer(letters).error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed")
    with pytest.raises(SourceError, match="cannot be written to aside: not allowed"):
        letters.send("in.0", [(message(7), "x")])
    producer(letters).error = None
    letters.send("in.0", [(message(7), "x")])


def test_nothing_bad_is_nothing_to_wait_for(letters: DeadLetters) -> None:
    letters.send("in.0", [])
    letters.close()
    assert producer(letters).sent == []


def test_a_client_that_cannot_be_made_is_told_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    secret = Settings({"sasl.password": {"env": "PASSWORD"}})

    def refused(settings: dict[str, Any]) -> None:
        raise KafkaException(
            KafkaError(KafkaError._INVALID_ARG, f"no such mechanism: {settings['sasl.password']}")
        )

    monkeypatch.setattr(dead_letters, "Producer", refused)
    with pytest.raises(SourceError, match="dead letters cannot be written: no such mechanism") as found:
        DeadLetters("b:9092", secret, "aside")
    assert "hunter2" not in str(found.value)


def test_a_secret_whose_reference_leads_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOBODY_HAS_SET_THIS", raising=False)
    with pytest.raises(SourceError, match="leads nowhere"):
        DeadLetters("b:9092", Settings({"sasl.password": {"env": "NOBODY_HAS_SET_THIS"}}), "aside")

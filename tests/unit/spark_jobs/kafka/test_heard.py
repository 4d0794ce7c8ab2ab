"""What a client heard beside an answer: the reason that helps is kept, the ones that say nothing are not put over it."""

from __future__ import annotations

from confluent_kafka import KafkaError

from reprise.spark_jobs.kafka.heard import Heard

REFUSED = KafkaError(KafkaError._AUTHENTICATION, "Authentication failed: no such user")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


def test_the_reason_that_helps_is_kept() -> None:
    heard = Heard()
    assert heard.beside("timed out") == "timed out"
    heard(DOWN)
    assert heard.beside("timed out").startswith("timed out: 1/1 brokers are down")
    heard(REFUSED)
    heard(DOWN)
    assert heard.beside("timed out") == "timed out: Authentication failed: no such user (_AUTHENTICATION)"


def test_nothing_is_said_twice_and_an_answer_ends_it() -> None:
    heard = Heard()
    heard(REFUSED)
    said = heard.beside("timed out")
    assert heard.beside(said) == said
    heard.forget()
    assert heard.beside("timed out") == "timed out"

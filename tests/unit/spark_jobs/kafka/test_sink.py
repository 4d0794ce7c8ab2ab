"""The thread of the Kafka sink: it goes on through trouble, says what it is, and leaves nothing behind."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.kafka import KafkaSink, transactions
from reprise.spark_jobs.kafka import sink as module
from tests.support.fake_kafka import Broker
from tests.unit.spark_jobs.kafka.test_transactions import expected, ids, opened, rows

LONG_S = 20.0


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    made.patch(monkeypatch, transactions)
    return made


def shown(sink: KafkaSink, batch: int) -> list[str]:
    """Wait until it is visible; what was said meanwhile."""
    said, until = [], time.monotonic() + LONG_S
    while sink.visible < batch:
        assert time.monotonic() < until, said
        if trouble := sink.settle(0.05):
            said.append(trouble)
        time.sleep(0.01)
    return said


def test_a_write_that_fails_is_tried_again_and_again_and_the_session_ends_with_the_sink(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.1)
    broker.faults.extend(["unheard"] * 3)
    sink = opened(1)
    sink.write(1, rows(1))
    said = shown(sink, 1)
    assert said and all("made up by the test" in text for text in said)
    assert ids(broker) == expected(1)
    assert sink._session._producer is not None
    sink.close()
    assert sink._thread is not None
    sink._thread.join(LONG_S)
    assert not sink._thread.is_alive()
    assert sink._session._producer is None


def test_brokers_that_do_not_answer_are_worth_a_report_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = opened(1)
    sink._waiting.append((7, None))
    sink._since = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0 + module.ALARM_S)
    assert sink.settle(0.0) is None
    monkeypatch.setattr(module.time, "monotonic", lambda: 101.0 + module.ALARM_S)
    assert sink.settle(0.0) == "brokers 127.0.0.1:1 have not taken batch 7 for 6 s"


def test_upserts_without_a_column_of_deletions_delete_nothing(broker: Broker) -> None:
    written = opened(1, mode="upsert", key=["id"])._encode(1, rows(1))
    assert len(written.messages) == 2
    assert all(value is not None for _, value in written.messages)


def test_a_dead_letter_says_where_it_is_from_and_how_large_it_was() -> None:
    sink = opened(
        1, config={"message.max.bytes": 2000}, on_too_large="dead-letter", dead_letters="dead"
    )  # fmt: skip
    ((_, _, headers),) = sink._encode(4, pa.table({"id": ["x" * 3000]})).letters
    about: dict[str, Any] = dict(headers)
    size = len('{"id":""}') + 3000
    assert (about["reprise-partition"], about["reprise-batch"]) == ("out.1", "4")
    assert about["reprise-bytes"] == str(size)
    assert about["reprise-reason"].startswith(f"a message of {size} bytes (key None) is larger than ")


def test_a_size_that_is_none_is_quoted() -> None:
    with pytest.raises(SpecError, match="much"):
        KafkaSink(brokers="127.0.0.1:1", topic="t", buffer="much")

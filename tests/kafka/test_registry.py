"""Avro whose schemas are in a registry: over real HTTP, and from Kafka to Kafka on a real broker."""

from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from reprise.spark_jobs.errors import SourceError
from reprise.spark_jobs.kafka.decode import DecodeError, Registry, decode, make_decoder, parse_columns
from tests.kafka import pipes
from tests.kafka.broker import Broker
from tests.kafka.registry import CONTENT, SchemaRegistry

FIRST = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "time", "type": "long"},
        {"name": "name", "type": "string"},
    ],
}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "note", "type": ["null", "string"]}]}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as started:
        yield started


def register(registry: SchemaRegistry, schema: dict[str, Any]) -> int:
    """As a writer does it."""
    body = json.dumps({"schema": json.dumps(schema)}).encode()
    request = urllib.request.Request(
        f"{registry.url}/subjects/t-value/versions", body, {"Content-Type": CONTENT}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(json.load(answer)["id"])


def message(number: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    """Confluent's wire format: a zero byte, the id in four bytes, the record."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def test_each_message_is_read_with_the_schema_it_was_written_with(registry: SchemaRegistry) -> None:
    """Writers have gone on to a second schema; the columns stay what the resource says, and each id is asked once."""
    first, second = register(registry, FIRST), register(registry, SECOND)
    assert (register(registry, FIRST), second) == (first, first + 1)
    rows = pipes.rows(6)
    values = [
        message(first, FIRST, row) if row["id"] % 2 else message(second, SECOND, {**row, "note": None})
        for row in rows
    ]
    decoder = make_decoder("avro", parse_columns(pipes.COLUMNS), {"registry": registry.url + "/"})
    found = decode(decoder, values)
    assert (found.table.to_pylist(), dict(found.bad)) == (rows, {})
    assert registry.asked == {first: 1, second: 1}


def test_a_schema_that_nobody_registered_makes_the_message_bad(registry: SchemaRegistry) -> None:
    decoder = make_decoder("avro", parse_columns(pipes.COLUMNS), {"registry": registry.url})
    good = message(register(registry, FIRST), FIRST, pipes.rows(1)[0])
    found = decode(decoder, [good, message(77, FIRST, pipes.rows(1)[0])])
    assert found.table.num_rows == 1
    assert found.bad == {1: "the schema registry has no schema 77"}


@pytest.mark.parametrize("status", [401, 500, 503])
def test_a_registry_in_trouble_holds_the_batch_back_and_no_message_is_bad(
    registry: SchemaRegistry, status: int
) -> None:
    number = register(registry, FIRST)
    decoder = make_decoder("avro", parse_columns(pipes.COLUMNS), {"registry": registry.url})
    registry.refusal = status
    with pytest.raises(SourceError, match=f"schema registry {registry.url} answers {status}"):
        decode(decoder, [message(number, FIRST, pipes.rows(1)[0])])
    registry.refusal = None
    assert decode(decoder, [message(number, FIRST, pipes.rows(1)[0])]).table.num_rows == 1


def test_a_registry_that_is_away_holds_the_batch_back() -> None:
    with SchemaRegistry() as registry:
        number = register(registry, FIRST)
    lookup = Registry(registry.url)
    with pytest.raises(SourceError, match="does not answer"):
        lookup(message(number, FIRST, pipes.rows(1)[0]))
    with registry:
        assert lookup(message(number, FIRST, pipes.rows(1)[0]))[1] == 5


def test_what_the_registry_holds_must_be_avro(registry: SchemaRegistry) -> None:
    registry.schemas.append('syntax = "proto3";')
    with pytest.raises(DecodeError, match="schema 1 of the registry cannot be used"):
        Registry(registry.url)(message(1, FIRST, pipes.rows(1)[0]))


@pytest.mark.slow
def test_avro_from_topic_to_topic_with_a_registry_that_goes_away(
    broker: Broker, registry: SchemaRegistry, tmp_path: Path
) -> None:
    """The user sees which registry is waited for; the stream goes on when it is back, and the sink names its schema."""
    number = register(registry, FIRST)
    origin, target = broker.topic("avro-in"), broker.topic("avro-out")
    broker.send(origin, [message(number, FIRST, row) for row in pipes.rows(20)])
    source = pipes.source(
        broker,
        origin,
        until=broker.ends(origin),
        batch_rows=5,
        format="avro",
        avro={"registry": registry.url},
    )
    sink = pipes.sink(broker, target, format="avro", avro={"schema": FIRST, "id": number})
    registry.refusal = 503
    world = pipes.world(pipes.pipe(source, sink), tmp_path, "a")
    world.run(lambda e: any(registry.url in p for p in e.problems), limit=100_000)
    assert not world.engine.failed
    registry.refusal = None
    world.run(lambda e: e.done, limit=100_000)
    decoder = make_decoder("avro", parse_columns(pipes.COLUMNS), {"registry": registry.url})
    found = decode(decoder, [m.value() or b"" for m in broker.messages(target)])
    assert found.table.to_pylist() == pipes.rows(20)

"""Avro whose schemas are in a registry: over real HTTP, and from Kafka to Kafka on a real broker."""

from __future__ import annotations

import io
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import schema_registry

from reprise.spark_jobs.errors import DecodeError, SourceError, SpecError
from reprise.spark_jobs.kafka.decode import Decoder, decode, make_decoder, parse_columns
from reprise.spark_jobs.kafka.registry import NAMES, Registry
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


@pytest.mark.parametrize("status", [401, 404, 500, 503])
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


USER, PASSWORD = "reader", "s3cr3t"
CONFIG = {"basic.auth.user.info": {"env": "REGISTRY_USER"}}


def guarded(registry: SchemaRegistry, config: dict[str, Any] = CONFIG) -> Decoder:
    return make_decoder("avro", parse_columns(pipes.COLUMNS), {"registry": registry.url, "config": config})


def test_a_registry_that_asks_for_a_password_is_told_it(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = register(registry, FIRST)
    registry.user = (USER, PASSWORD)
    values = [message(number, FIRST, row) for row in pipes.rows(3)]
    plain = make_decoder("avro", parse_columns(pipes.COLUMNS), {"registry": registry.url})
    with pytest.raises(SourceError, match="answers 401"):
        decode(plain, values)
    monkeypatch.setenv("REGISTRY_USER", f"{USER}:{PASSWORD}")
    decoder = guarded(registry)
    for _ in range(2):
        assert decode(decoder, values).table.to_pylist() == pipes.rows(3)
    assert registry.asked == {number: 1}
    found = decode(decoder, [message(77, FIRST, pipes.rows(1)[0])])
    assert found.bad == {0: "the schema registry has no schema 77"}


def test_a_wrong_password_holds_the_batch_back_and_is_not_shown(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may be put right while the stream waits, and so may a registry that is away."""
    number = register(registry, FIRST)
    registry.user, secret = (USER, PASSWORD), tmp_path / "user"
    decoder = guarded(registry, {"basic.auth.user.info": {"file": str(secret)}})
    value = message(number, FIRST, pipes.rows(1)[0])
    with pytest.raises(SourceError, match=r"cannot be asked: setting basic\.auth\.user\.info: its reference"):
        decode(decoder, [value])
    secret.write_text(f"{USER}:wr0ng")
    with pytest.raises(SourceError, match=f"schema registry {registry.url} answers 401") as refused:
        decode(decoder, [value])
    assert "wr0ng" not in str(refused.value)
    secret.write_text(f"{USER}:{PASSWORD}")
    assert decode(decoder, [value]).table.num_rows == 1
    for status in (503, 404):
        registry.refusal = status
        with pytest.raises(SourceError, match=f"answers {status}"):
            decode(guarded(registry, {"basic.auth.user.info": {"file": str(secret)}}), [value])


@pytest.mark.parametrize("config", [None, CONFIG])
def test_a_page_in_place_of_an_answer_holds_the_batch_back(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any] | None
) -> None:
    monkeypatch.setenv("REGISTRY_USER", f"{USER}:{PASSWORD}")
    monkeypatch.setattr(registry, "answer", lambda *_: (200, {"title": "please log in"}))
    avro = {"registry": registry.url} | ({"config": config} if config else {})
    decoder = make_decoder("avro", parse_columns(pipes.COLUMNS), avro)
    with pytest.raises(SourceError, match=f"schema registry {registry.url}"):
        decode(decoder, [message(1, FIRST, pipes.rows(1)[0])])


def test_a_guarded_registry_that_is_away_holds_the_batch_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_USER", f"{USER}:{PASSWORD}")
    with SchemaRegistry() as registry:
        number = register(registry, FIRST)
    decoder, value = guarded(registry), message(number, FIRST, pipes.rows(1)[0])
    with pytest.raises(SourceError, match="does not answer") as away:
        decode(decoder, [value])
    assert PASSWORD not in str(away.value)
    registry.user = (USER, PASSWORD)
    with registry:
        assert decode(decoder, [value]).table.num_rows == 1


def test_another_kind_of_schema_is_named(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_USER", f"{USER}:{PASSWORD}")
    number = register(registry, FIRST)
    registry.kind = "PROTOBUF"
    found = decode(guarded(registry), [message(number, FIRST, pipes.rows(1)[0])])
    assert found.bad == {0: f"schema {number} of the registry cannot be used: it is PROTOBUF"}


@pytest.mark.parametrize(
    ("config", "field", "reason"),
    [
        ({}, "avro.config", "a mapping"),
        (
            {"basic.auth.user.info": "me:pw"},
            "avro.config.basic.auth.user.info",
            "is a secret: write a reference",
        ),
        ({"basic.auth.user": {"env": "A"}}, "avro.config.basic.auth.user", "is no setting"),
        ({"url": "http://x"}, "avro.config.url", "is no setting"),
    ],
)
def test_what_the_client_is_told_is_checked(config: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        make_decoder("avro", parse_columns(pipes.COLUMNS), {"registry": "http://r", "config": config})
    assert refused.value.field == field


def test_without_its_client_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(SpecError, match=r"pip install 'reprise-streams\[registry\]'") as refused:
        make_decoder("avro", parse_columns(pipes.COLUMNS), {"registry": "http://r", "config": CONFIG})
    assert refused.value.field == "avro.config"


def test_the_settings_are_those_that_the_client_knows() -> None:
    files = Path(schema_registry.__file__).parent.rglob("*.py")
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [name for name in NAMES if f"'{name}'" not in source] == []


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

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
import pyarrow as pa
import pytest
from confluent_kafka import schema_registry
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from reprise.spark_jobs.column_types import parse_columns
from reprise.spark_jobs.errors import DecodeError, SourceError, SpecError
from reprise.spark_jobs.kafka.decode import Decoder, avro_schema, decode, make_decoder
from reprise.spark_jobs.kafka.encode import make_encoder
from reprise.spark_jobs.kafka.protobuf import local_type
from reprise.spark_jobs.kafka.registry import NAMES, Plain, Registry
from tests.kafka import pipes
from tests.kafka.broker import Broker
from tests.kafka.registry import CONTENT, SchemaRegistry
from tests.support.descriptors import ROW, descriptor_file, text_of

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
    with urllib.request.urlopen(request, timeout=300) as answer:
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
    lookup = Registry(Plain(registry.url), "AVRO", avro_schema)
    with pytest.raises(SourceError, match="does not answer"):
        lookup(message(number, FIRST, pipes.rows(1)[0]))
    with registry:
        assert lookup(message(number, FIRST, pipes.rows(1)[0]))[1] == 5


def test_what_the_registry_holds_must_be_avro(registry: SchemaRegistry) -> None:
    registry.schemas.append('syntax = "proto3";')
    with pytest.raises(DecodeError, match="schema 1 of the registry cannot be used"):
        Registry(Plain(registry.url), "AVRO", avro_schema)(message(1, FIRST, pipes.rows(1)[0]))


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


# -- Protobuf and JSON Schema, written by Confluent's own clients


def context() -> SerializationContext:
    return SerializationContext("t", MessageField.VALUE)


@pytest.mark.parametrize("config", [None, CONFIG], ids=["urllib", "client"])
def test_protobuf_of_confluents_client_is_read_with_the_types_of_the_registry(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any] | None
) -> None:
    """A type that imports another file of the registry, one inside of another, and the types that every reader has."""
    monkeypatch.setenv("REGISTRY_USER", f"{USER}:{PASSWORD}")
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    outer = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["shop.proto"]
    )
    order = outer.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="row", number=2, type=11, label=1, type_name=".shop.Row")
    pool.Add(ROW)
    pool.Add(outer)
    client = SchemaRegistryClient({"url": registry.url})
    values = []
    for name in ("shop.Row", "shop.Row.Place", "shop.Order"):
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        message = kind(city="Kiel") if name.endswith("Place") else kind(id=len(values))
        serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        values.append(serializer(message, context()))
    given = {"registry": registry.url} | ({} if config is None else {"config": config})
    decoder = make_decoder("protobuf", parse_columns({"id": "int64", "city": "string"}), given)
    found = decode(decoder, values)
    assert (found.table.to_pylist(), dict(found.bad)) == (
        [{"id": 0, "city": None}, {"id": None, "city": "Kiel"}, {"id": 2, "city": None}],
        {},
    )
    assert len(registry.asked) == 2, "one file has the first two types"


def test_what_is_written_is_read_by_confluents_client(registry: SchemaRegistry, tmp_path: Path) -> None:
    given = {"schema": str(descriptor_file(tmp_path / "row.bin")), "message": "shop.Other"}
    client = SchemaRegistryClient({"url": registry.url})
    number = client.register_schema("t-value", Schema(text_of(ROW), "PROTOBUF"))
    (value,) = make_encoder("protobuf", {**given, "id": number}).values(pa.table({"id": [7]}))
    deserializer = ProtobufDeserializer(local_type(given), {"use.deprecated.format": False}, client)
    assert deserializer(value, context()).id == 7
    decoder = make_decoder("protobuf", parse_columns({"id": "int64"}), {"registry": registry.url})
    assert decode(decoder, [value]).table.to_pylist() == [{"id": 7}]


def test_json_by_json_schema_of_confluents_client_is_read_and_written(registry: SchemaRegistry) -> None:
    text = json.dumps({"title": "row", "type": "object", "properties": {"id": {"type": "integer"}}})
    client = SchemaRegistryClient({"url": registry.url})
    values = [JSONSerializer(text, client)(row, context()) for row in pipes.rows(3)]
    decoder = make_decoder("json", parse_columns(pipes.COLUMNS), {"registry": registry.url})
    bad = [b'{"id": 1}', b"\0\0\0\0\x09{}", b"\0" + (1).to_bytes(4, "big") + b"{"]
    found = decode(decoder, [*values, *bad])
    assert found.table.to_pylist() == pipes.rows(3)
    assert [found.bad[i].partition(":")[0] for i in (3, 4, 5)] == [
        "does not begin with the id of a schema in the registry",
        "the schema registry has no schema 9",
        "not JSON from character 2 on",
    ]
    assert make_encoder("json", {"id": 1}).values(pipes.table(pipes.rows(3))) == [
        value[:5] + json.dumps(row, separators=(",", ":")).encode()
        for value, row in zip(values, pipes.rows(3), strict=True)
    ]
    registry.kind = "AVRO"
    number = register(registry, FIRST)
    found = decode(decoder, [message(number, FIRST, pipes.rows(1)[0])])
    assert found.bad == {0: f"schema {number} of the registry cannot be used: it is AVRO"}


def importing(registry: SchemaRegistry) -> bytes:
    """A message of a type that is empty, and whose file imports one below the subject `shop`."""
    file = descriptor_pb2.FileDescriptorProto(dependency=["shop.proto"])
    file.message_type.add(name="Row")
    client = SchemaRegistryClient({"url": registry.url})
    reference = SchemaReference("shop.proto", "shop", 1)
    number = client.register_schema("t-value", Schema(text_of(file), "PROTOBUF", [reference]))
    return b"\0" + number.to_bytes(4, "big") + b"\0"


def protobuf_of(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any] | None
) -> Decoder:
    monkeypatch.setenv("REGISTRY_USER", f"{USER}:{PASSWORD}")
    given = {"registry": registry.url} | ({} if config is None else {"config": config})
    return make_decoder("protobuf", parse_columns({"id": "int64"}), given)


@pytest.mark.parametrize("config", [None, CONFIG], ids=["urllib", "client"])
def test_an_import_that_is_marked_as_deleted_is_still_read(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any] | None
) -> None:
    """So does Confluent's own reader: whoever marks a subject keeps the messages that need it."""
    value = importing(registry)
    SchemaRegistryClient({"url": registry.url}).register_schema("shop", Schema(text_of(ROW), "PROTOBUF"))
    registry.deleted.add("shop")
    assert decode(protobuf_of(registry, monkeypatch, config), [value]).table.to_pylist() == [{"id": None}]


@pytest.mark.parametrize("config", [None, CONFIG], ids=["urllib", "client"])
def test_a_registry_that_gives_no_descriptors_holds_the_batch_back(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any] | None
) -> None:
    """Until it does: what it said before is not kept."""
    value = importing(registry)
    SchemaRegistryClient({"url": registry.url}).register_schema("shop", Schema(text_of(ROW), "PROTOBUF"))
    decoder, registry.knows_form = protobuf_of(registry, monkeypatch, config), False
    for _ in range(2):
        with pytest.raises(SourceError, match=r"as a descriptor \(\?format=serialized\)"):
            decode(decoder, [value])
    registry.knows_form = True
    assert decode(decoder, [value]).table.to_pylist() == [{"id": None}]


@pytest.mark.parametrize("status", [404, 503])
def test_an_import_that_the_registry_does_not_give_now_holds_the_batch_back(
    registry: SchemaRegistry, status: int
) -> None:
    """A 404 as well: what is only marked as deleted is given, and what is not there may be registered again, so whether the
    message is read would depend on when that is done."""
    value = importing(registry)
    decoder = make_decoder("protobuf", parse_columns({"id": "int64"}), {"registry": registry.url})
    registry.refuse_versions = status
    with pytest.raises(SourceError, match=f"answers {status}"):
        decode(decoder, [value])
    registry.refuse_versions = None
    SchemaRegistryClient({"url": registry.url}).register_schema("shop", Schema(text_of(ROW), "PROTOBUF"))
    assert decode(decoder, [value]).table.to_pylist() == [{"id": None}]


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
    world.run(lambda e: any(registry.url in p for p in e.problems))
    assert not world.engine.failed
    registry.refusal = None
    world.run(lambda e: e.done)
    decoder = make_decoder("avro", parse_columns(pipes.COLUMNS), {"registry": registry.url})
    found = decode(decoder, [m.value() or b"" for m in broker.messages(target)])
    assert found.table.to_pylist() == pipes.rows(20)

"""Rows to messages: one line of JSON a row whatever the text, sizes of Arrow messages, keys, upserts and tombstones."""

from __future__ import annotations

import io
import json
import struct
import time
from datetime import UTC, date, datetime
from datetime import time as clock
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import EncodeError, SpecError
from reprise.spark_jobs.kafka import KafkaSink
from reprise.spark_jobs.kafka.encode import ARROW_BYTES, deletions, keys, make_encoder, upserts
from tests.support.examples import examples

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "long"}]}
RECORD = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


@examples(60)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=5))
def test_a_row_is_one_line_of_json_whatever_its_text(texts: list[str]) -> None:
    values = make_encoder("json", None).values(pa.table({"s": pa.array(texts, pa.string())}))
    assert [json.loads(value) for value in values] == [{"s": text} for text in texts]
    assert not any(b"\n" in value for value in values)


@examples(20)
@given(st.integers(0, 40), st.sampled_from([1, 10, 100_000, 300_000]))
def test_arrow_messages_hold_every_row_once_and_no_more_than_fits(count: int, width: int) -> None:
    table = pa.table(
        {"n": pa.array(range(count), pa.int64()), "s": pa.array(["x" * width] * count, pa.string())}
    )
    values = make_encoder("arrow", None).values(table)
    read = [pa.ipc.open_stream(value).read_all() for value in values]
    assert [n for part in read for n in part["n"].to_pylist()] == list(range(count))
    assert all(part.num_rows == 1 or part.nbytes <= ARROW_BYTES + 2 * width for part in read)
    assert len(values) <= 1 + 2 * table.nbytes // ARROW_BYTES + (width >= ARROW_BYTES // 2) * count


def test_the_same_rows_in_other_chunks_give_the_same_bytes() -> None:
    whole = pa.table({"id": [1, 2, 3]})
    pieces = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    for kind, avro in (("json", None), ("arrow", None), ("avro", {"schema": RECORD})):
        assert make_encoder(kind, avro).values(whole) == make_encoder(kind, avro).values(pieces)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1]), "column `value` holds int64; format raw writes text or bytes"),
        (pa.array(["a", None]), "column `value` has nulls"),
        (pa.array([["a"]]), "column `value` holds list<item: string>"),
    ],
    ids=str,
)
def test_what_cannot_be_written_raw_is_named(column: pa.Array, message: str) -> None:
    with pytest.raises(EncodeError, match=message):
        make_encoder("raw", None).values(pa.table({"value": column}))


@pytest.mark.parametrize("row", [{"id": None}, {"id": "x"}, {"other": 1}, {"id": 2**63}])
def test_a_row_that_does_not_fit_the_avro_schema_is_refused(row: dict[str, Any]) -> None:
    table = pa.table({k: pa.array([v], pa.uint64() if v == 2**63 else None) for k, v in row.items()})
    with pytest.raises(EncodeError, match="a row does not fit the Avro schema"):
        make_encoder("avro", {"schema": RECORD}).values(table)


@pytest.mark.parametrize(
    ("avro", "field"),
    [
        ({"schema": RECORD, "id": "7"}, "avro.id"),
        ({"schema": RECORD, "id": True}, "avro.id"),
        ({"schema": RECORD, "id": -1}, "avro.id"),
        ({"schema": RECORD, "id": 2**32}, "avro.id"),
        ({"schema": RECORD, "number": 1}, "avro"),
        ({"id": 1}, "avro"),
        ({"schema": 5}, "avro.schema"),
        ({"schema": "/nowhere/at/all.avsc"}, "avro.schema"),
        ("file.avsc", "avro"),
        (None, "avro"),
    ],
)
def test_what_is_no_avro_schema_is_refused_at_load(avro: Any, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        make_encoder("avro", avro)
    assert caught.value.field == field


@pytest.mark.parametrize("number", [0, 1, 2**32 - 1])
def test_the_id_of_a_schema_stands_before_the_record(number: int) -> None:
    (value,) = make_encoder("avro", {"schema": RECORD, "id": number}).values(pa.table({"id": [-1]}))
    assert value == b"\0" + number.to_bytes(4, "big") + b"\x01"


def test_keys_of_bytes_and_of_numbers() -> None:
    table = pa.table({"b": [b"\xff"], "n": [2**62], "f": [0.5], "t": pa.array([0], pa.timestamp("us"))})
    assert keys(table, ["b"]) == [b"\xff"]
    assert keys(table, ["n"]) == [b"4611686018427387904"]
    assert keys(table, ["n", "f", "t"]) == [b'[4611686018427387904,0.5,"1970-01-01 00:00:00"]']


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(1)])
def test_bytes_are_not_written_as_json(kind: pa.DataType, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EncodeError, match=r"cannot be written as jsonl \(columns b: \w*binary"):
        make_encoder("json", None).values(pa.table({"b": pa.array([b"a"], kind)}))
    assert "panicked" not in capfd.readouterr().err


NAN = struct.unpack("<d", b"\1\0\0\0\0\0\xf8\xff")[0]


@pytest.mark.parametrize(
    ("column", "alone", "in_list"),
    [
        (
            pa.array([0.0, -0.0, float("nan"), NAN, float("inf")]),
            [b"0.0", b"0.0", b"nan", b"nan", b"inf"],
            ["0.0", "0.0", '"nan"', '"nan"', '"inf"'],
        ),
        (pa.array([-0.0], pa.float32()).dictionary_encode(), [b"0.0"], ["0.0"]),
        (
            pa.array([1_001, 2_000], pa.timestamp("ns")),
            [b"1970-01-01 00:00:00.000001001", b"1970-01-01 00:00:00.000002000"],
            ['"1970-01-01 00:00:00.000001001"', '"1970-01-01 00:00:00.000002000"'],
        ),
        (pa.array([1], pa.time64("ns")), [b"00:00:00.000000001"], ['"00:00:00.000000001"']),
        (pa.array([1], pa.duration("ns")), [b"1"], ['"1"']),
        (pa.array([b"\xff", b"a", None]), [b"\xff", b"a", None], ['"/w=="', '"YQ=="', "null"]),
    ],
    ids=lambda given: str(getattr(given, "type", "")),
)
def test_equal_keys_have_equal_bytes_and_others_have_others(
    column: pa.Array, alone: list[bytes], in_list: list[str]
) -> None:
    table = pa.table({"k": column, "n": [1] * len(column)})
    assert keys(table, ["k"]) == alone
    assert keys(table, ["k", "n"]) == [f"[{text},1]".encode() for text in in_list]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([[1.0]]), "list<.*lists and structures cannot be keys"),
        (pa.array([{"x": 1}]), "struct<.*lists and structures cannot be keys"),
        (pa.array([2**60], pa.timestamp("us")), "a time beyond the years 1 to 9999"),
    ],
    ids=lambda given: str(getattr(given, "type", "")),
)
def test_a_key_without_a_text_is_refused(column: pa.Array, why: str) -> None:
    with pytest.raises(EncodeError, match=f"key column 'k' holds {why}"):
        keys(pa.table({"k": column}), ["k"])


@examples(60)
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b""]), st.binary(max_size=1), st.booleans())))
def test_who_applies_the_upserts_of_a_batch_holds_what_all_its_rows_make(
    rows: list[tuple[bytes, bytes, bool]],
) -> None:
    found = upserts([(key, value) for key, value, _ in rows], [gone for _, _, gone in rows])
    held: dict[bytes, bytes | None] = {}
    for key, value, gone in rows:
        held[key] = None if gone else value
    assert len(found) == len({key for key, _ in found})
    assert dict(found) == held


def test_an_upsert_without_a_key_is_refused_and_not_sent_again_and_again() -> None:
    sink = KafkaSink(brokers="127.0.0.1:1", topic="t", key=["id"], mode="upsert")
    with pytest.raises(EncodeError, match="a key is null; mode upsert needs a key in each row"):
        sink._encode(1, pa.table({"id": pa.array([1, None])}))


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pa.array([True, False, None]), [True, False, False]),
        (pa.array([1, 0, None]), [True, False, False]),
        (pa.nulls(2), [False, False]),
    ],
    ids=str,
)
def test_which_keys_are_deleted(column: pa.Array, told: list[bool]) -> None:
    assert deletions(pa.table({"gone": column}), "gone") == told


def test_text_in_the_delete_column_deletes_nothing() -> None:
    """`false` as text is true to Python: every key would go."""
    with pytest.raises(EncodeError, match="delete column 'gone' holds string; expected booleans"):
        deletions(pa.table({"gone": ["false"]}), "gone")
    with pytest.raises(
        EncodeError, match=r"delete column 'gone' is not in the output; its columns are \['id'\]"
    ):
        deletions(pa.table({"id": [1]}), "gone")


def avro_of(kind: Any, column: pa.Array) -> list[Any]:
    """The values of a column as readers of their Avro records find them."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    values = make_encoder("avro", {"schema": schema}).values(pa.table({"v": column}))
    parsed = fastavro.parse_schema(schema)
    return [fastavro.schemaless_reader(io.BytesIO(value), parsed, None)["v"] for value in values]  # type: ignore[index, call-overload]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_times_without_a_zone_are_utc_on_each_machine(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2024, 3, 10, 2, 30, 0, 123456)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        found = [avro_of(kind, pa.array([at], pa.timestamp("us"))) for kind in (MICROS, LOCAL)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == [[at.replace(tzinfo=UTC)], [at]]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("long", pa.array([1.5])),
        ("long", pa.array([Decimal("1.78")])),
        ("int", pa.array([2**40])),
        ("float", pa.array([16777217.0])),
        ("float", pa.array([1e300])),
        ("double", pa.array([2**53 + 1])),
        (MILLIS, pa.array([123456], pa.timestamp("us"))),
        ({"type": "int", "logicalType": "date"}, pa.array([123456], pa.timestamp("us"))),
        ("boolean", pa.array(["false"])),
        ("boolean", pa.array([None], pa.bool_())),
        (CENTS, pa.array([Decimal("0.001")])),
        ({"type": "string", "logicalType": "uuid"}, pa.array(["no uuid"])),
        ({"type": "array", "items": "long"}, pa.array([[1.5]])),
        ({"type": "array", "items": "boolean"}, pa.array([[True, None]])),
        ({"type": "array", "items": "float"}, pa.array([[0.1]])),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["B"])),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"abc"])),
        ({"type": "map", "values": "long"}, pa.array([{"x": 1}])),
        (INNER, pa.array([{"x": 1.5}])),
        (INNER, pa.array([{"x": 1, "y": 2}])),
        (INNER, pa.array([{}], pa.struct([]))),
        ({"type": "int", "logicalType": "timestamp-millis"}, pa.array([2**40], pa.timestamp("ms"))),
        (NANOS, pa.array([2**60], pa.timestamp("us"))),
        (LOCAL, pa.array([1], pa.timestamp("us", "UTC"))),
        (MICROS, pa.array([1])),
        ("long", pa.array([True])),
        ("string", pa.array([b"a"])),
        (["null", "float", "double"], pa.array([0.1])),
        ("null", pa.array([1])),
    ],
)
def test_a_value_that_an_avro_schema_would_cut_is_refused(kind: Any, column: pa.Array) -> None:
    with pytest.raises(
        EncodeError, match=r"a row does not fit the Avro schema|the Avro schema has no field 'v\.y'"
    ):
        avro_of(kind, column)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("double", pa.array([float("nan"), 0.1])),
        (["null", "long"], pa.array([None, 2**63 - 1])),
        (CENTS, pa.array([Decimal("1234567.80")])),
        (MICROS, pa.array([datetime(2024, 1, 1, tzinfo=UTC)])),
        ({"type": "int", "logicalType": "date"}, pa.array([date(2024, 1, 1)])),
        ({"type": "array", "items": "string"}, pa.array([["a"], []])),
        ({"type": "string", "logicalType": "uuid"}, pa.array(["00000000-0000-0000-0000-000000000005"])),
        ("bytes", pa.array([b"a"])),
        ({"type": "array", "items": MICROS}, pa.array([[datetime(2024, 1, 1, tzinfo=UTC)]])),
        (["null", MICROS], pa.array([None, datetime(2024, 1, 1, tzinfo=UTC)])),
        (["null", CENTS], pa.array([None, Decimal("1.50")])),
        (["null", {"type": "array", "items": ["null", "boolean"]}], pa.array([None, [True, None], []])),
        (["null", INNER], pa.array([None, {"x": 1}])),
        ("float", pa.array([0.5, float("nan"), -0.0])),
        ("double", pa.array([2**53])),
        ("string", pa.array(["a", "a"]).dictionary_encode()),
        (["null", "string", "long"], pa.nulls(2)),
        ({"type": "int", "logicalType": "time-millis"}, pa.array([clock(1, 2, 3, 4000)], pa.time64("us"))),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["A"])),
        ("null", pa.nulls(1)),
    ],
)
def test_what_an_avro_schema_holds_is_written_as_it_is(kind: Any, column: pa.Array) -> None:
    pairs = zip(avro_of(kind, column), column.to_pylist(), strict=True)
    assert all(found == value or str(found) == str(value) for found, value in pairs)


def test_a_column_that_an_avro_schema_lacks_is_refused() -> None:
    with pytest.raises(EncodeError, match="the Avro schema has no field 'Id'"):
        make_encoder("avro", {"schema": RECORD}).values(pa.table({"id": [1], "Id": [2]}))


def test_times_of_avro_may_be_finer_or_farther_than_those_of_python() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "v", "type": NANOS}, {"name": "w", "type": MICROS}],
    }
    table = pa.table(
        {"v": pa.array([-1_001], pa.timestamp("ns")), "w": pa.array([2**60], pa.timestamp("us"))}
    )
    (value,) = make_encoder("avro", {"schema": schema}).values(table)
    fastavro.schemaless_writer(out := io.BytesIO(), fastavro.parse_schema(schema), {"v": -1_001, "w": 2**60})
    assert value == out.getvalue()


@pytest.mark.parametrize(("default", "told"), [({"default": 7}, 7), ({}, None)])
def test_a_field_that_rows_lack_has_its_default(default: dict[str, int], told: int | None) -> None:
    more = {"name": "more", "type": "long" if told else ["null", "long"], **default}
    schema = {**RECORD, "fields": [*RECORD["fields"], more]}
    (value,) = make_encoder("avro", {"schema": schema}).values(pa.table({"id": [1]}))
    parsed = fastavro.parse_schema(schema)
    assert fastavro.schemaless_reader(io.BytesIO(value), parsed, None) == {"id": 1, "more": told}

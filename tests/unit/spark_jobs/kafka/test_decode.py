"""Messages that are wrong in every way: each is told from the good ones by itself, whatever stands beside it."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.column_types import parse_columns
from reprise.spark_jobs.errors import DecodeError, SpecError
from reprise.spark_jobs.kafka.decode import Decoded, Decoder, decode, make_decoder
from reprise.spark_jobs.kafka.encode import make_encoder
from tests.support.examples import examples

COLUMNS = parse_columns({"id": "int64", "name": "string", "share": "double", "ok": "boolean"})
RECORD = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "share", "type": ["null", "double"]},
        {"name": "ok", "type": ["null", "boolean"]},
    ],
}
AVRO = {"schema": RECORD}
KINDS: list[tuple[str, Any]] = [("json", None), ("avro", AVRO), ("arrow", None)]
row = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        "share": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "ok": st.none() | st.booleans(),
    }
)


def alone(decoder: Decoder, value: bytes) -> list[dict[str, Any]] | None:
    """The rows of a message that is decoded by itself; None when it is refused."""
    try:
        return decoder.table([value])[0].to_pylist()  # type: ignore[no-any-return]
    except DecodeError:
        return None


def check(decoder: Decoder, values: list[bytes]) -> Decoded:
    """Together each message gives what it gives by itself."""
    found = decode(decoder, values)
    each = [alone(decoder, value) for value in values]
    assert set(found.bad) == {i for i, rows in enumerate(each) if rows is None}
    assert found.rows.tolist() == [len(rows or ()) for rows in each]
    assert repr(found.table.to_pylist()) == repr(
        [r for rows in each for r in rows or ()]
    )  # NaN equals nothing
    assert all(found.bad.values())
    return found


@pytest.mark.parametrize(("kind", "avro"), KINDS)
@examples(50)
@given(rows=st.lists(row, max_size=5))
def test_every_row_comes_back_as_it_was_written(kind: str, avro: Any, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, COLUMNS)
    values = make_encoder(kind, avro).values(table)
    found = decode(make_decoder(kind, COLUMNS, avro), values)
    assert not found.bad
    assert found.table.equals(table)
    assert found.rows.sum() == len(rows)


ODD = [
    b"", b" ", b"{", b"}", b"{}", b" {} ", b"{} {}", b"{}{}", b'{"id": 1', b', "name": "x"}', b'{"id": {}', b"{}}",
    b'{"x": [{}', b"]}", b"null", b"1", b"[{}]", b'{"id": 9223372036854775808}', b'{"id": 1.5}', b'{"id": "1"}',
    b'{"name": "\xff"}', b'{"name": "\\ud800"}', b'{"other": "\xff"}', b'{"id":\n1}', b"{\n}\n{}", b"\n{}",
    b'{"name": "a\nb"}',
    b"\xef\xbb\xbf{}", '{"id": 1}'.encode("utf-16"), b'{"id": 1, "id": 2}', b'{"id": 1, "id":\n2}', b"{}\r{}", b"{}\0",
    b'{"share": NaN}', b'{"share": 1e999}', b'{"x":\n' + b"[" * 50_000 + b"]" * 50_000 + b"}",
]  # fmt: skip


@examples(80)
@given(st.lists(st.sampled_from(ODD) | row.map(lambda r: json.dumps(r).encode()), max_size=5))
def test_a_message_of_json_is_read_or_refused_by_itself(values: list[bytes]) -> None:
    check(make_decoder("json", COLUMNS, None), values)


def test_messages_do_not_run_into_each_other() -> None:
    """Three messages that read one after the other are three objects, though none of them is one."""
    found = check(
        make_decoder("json", COLUMNS, None), [b'{"id": 1', b', "name": "x"}', b'{"id": 3} {"id": 4}']
    )
    assert set(found.bad) == {0, 1, 2}
    assert set(check(make_decoder("json", COLUMNS, None), [b'{"id": 3} {"id": 4}', b" "]).bad) == {0, 1}


@pytest.mark.parametrize("value", [b"null", b" null ", b"null\n", b"[]", b"0", b'"x"', b"true"])
def test_json_that_is_no_object_is_refused_and_does_not_end_the_process(value: bytes) -> None:
    found = check(make_decoder("json", COLUMNS, None), [b"{}", value])
    assert "not a JSON object but" in found.bad[1]


def test_text_that_is_not_utf_8_is_refused_before_it_becomes_a_column() -> None:
    found = check(make_decoder("json", COLUMNS, None), [b'{"name": "\xe4"}', '{"name": "ä"}'.encode()])
    assert "not UTF-8" in found.bad[0]
    assert found.table["name"].to_pylist() == ["ä"]


@pytest.mark.parametrize(("kind", "avro"), KINDS)
@examples(80)
@given(data=st.data())
def test_a_message_with_damaged_bytes_is_refused_or_read_and_the_others_stay(
    kind: str, avro: Any, data: st.DataObject
) -> None:
    encoder, decoder = make_encoder(kind, avro), make_decoder(kind, COLUMNS, avro)
    good = encoder.values(
        pa.Table.from_pylist([{"id": 7, "name": "seven", "share": 0.5, "ok": True}], COLUMNS)
    )[0]
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    found = check(decoder, [good, bytes(damaged), good])
    assert {0, 2} & set(found.bad) == set()
    assert found.table["id"].to_pylist()[0] == found.table["id"].to_pylist()[-1] == 7


@pytest.mark.parametrize(("kind", "avro"), KINDS)
def test_a_message_that_was_cut_off_is_refused_at_every_length(kind: str, avro: Any) -> None:
    table = pa.Table.from_pylist([{"id": 7, "name": "seven", "share": 0.5, "ok": True}], COLUMNS)
    (good,) = make_encoder(kind, avro).values(table)
    decoder = make_decoder(kind, COLUMNS, avro)
    read = [n for n in range(len(good)) if (rows := alone(decoder, good[:n])) and rows != table.to_pylist()]
    assert read == []
    assert kind == "arrow" or not any(alone(decoder, good[:n]) for n in range(len(good)))


def test_arrow_messages_without_columns_have_those_of_the_first() -> None:
    encoder, decoder = make_encoder("arrow", None), make_decoder("arrow", None, None)
    (ints,) = encoder.values(pa.table({"id": [1]}))
    (texts,) = encoder.values(pa.table({"id": ["x"]}))
    assert decode(decoder, [ints, ints]).table.to_pylist() == [{"id": 1}, {"id": 1}]
    found = decode(decoder, [b"nonsense", ints, texts, ints])
    assert found.table.to_pylist() == [{"id": 1}, {"id": 1}]
    assert found.rows.tolist() == [0, 1, 0, 1]
    assert set(found.bad) == {0, 2}
    assert found.bad[2] == "columns ['id'] are not those of the messages before"


@pytest.mark.parametrize(
    "table",
    [pa.table({"id": [1]}), pa.table({"id": ["x"], "name": ["x"], "share": [0.5], "ok": [True]})],
    ids=["missing", "text"],
)
def test_arrow_messages_with_other_columns_are_refused(table: pa.Table) -> None:
    (value,) = make_encoder("arrow", None).values(table)
    assert set(check(make_decoder("arrow", COLUMNS, None), [value]).bad) == {0}
    nested = pa.table({"id": [[1]], "name": ["x"], "share": [0.5], "ok": [True]})
    (value,) = make_encoder("arrow", None).values(nested)
    assert set(check(make_decoder("arrow", COLUMNS, None), [value]).bad) == {0}


def test_an_arrow_message_with_text_that_is_not_utf_8_is_refused() -> None:
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    (value,) = make_encoder("arrow", None).values(pa.table({"name": text}))
    assert "damaged" in decode(make_decoder("arrow", None, None), [value]).bad[0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int8", 300), ("int32", 2**40), ("string", 5), ("timestamp[us]", "soon"), ("int16", 40_000)],
)
def test_avro_records_that_do_not_fit_the_columns_are_refused(kind: str, value: Any) -> None:
    name = {int: "long", str: "string", float: "double"}[type(value)]
    schema = {"schema": {"type": "record", "name": "R", "fields": [{"name": "id", "type": name}]}}
    (message,) = make_encoder("avro", schema).values(pa.table({"id": [value]}))
    found = decode(make_decoder("avro", parse_columns({"id": kind}), schema), [message])
    assert "the record does not fit the columns" in found.bad[0]


def of_avro(kind: Any, value: Any, column: str) -> Any:
    """The value of a record's only field in a column of this type; the reason where it is refused."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    fastavro.schemaless_writer(out := io.BytesIO(), fastavro.parse_schema(schema), {"x": value})
    decoder = make_decoder("avro", parse_columns({"x": column}), {"schema": schema})
    found = decode(decoder, [out.getvalue()])
    return found.bad[0] if found.bad else found.table["x"].to_pylist()[0]


LOGICAL = {
    "uuid": {"type": "string", "logicalType": "uuid"},
    "money": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "date": {"type": "int", "logicalType": "date"},
}


def nanos(local: str = "") -> dict[str, str]:
    return {"type": "long", "logicalType": f"{local}timestamp-nanos"}


@pytest.mark.parametrize(
    ("kind", "value", "column", "told"),
    [
        (LOGICAL["uuid"], UUID(int=5), "string", "00000000-0000-0000-0000-000000000005"),
        (LOGICAL["uuid"], UUID(int=5), "binary", bytes(15) + b"\x05"),
        (["null", LOGICAL["uuid"]], None, "string", None),
        ({"type": "array", "items": LOGICAL["uuid"]}, [UUID(int=5)], "list<string>", [str(UUID(int=5))]),
        (LOGICAL["money"], Decimal("12.30"), "decimal(10, 2)", Decimal("12.30")),
        (LOGICAL["money"], Decimal("12.30"), "decimal(38, 4)", Decimal("12.3000")),
        (
            LOGICAL["micros"],
            datetime(2025, 1, 1, 0, 0, 1, 5, UTC),
            "timestamp[us]",
            datetime(2025, 1, 1, 0, 0, 1, 5),
        ),
        (
            LOGICAL["micros"],
            datetime(2025, 1, 1, 0, 0, 1, 0, UTC),
            "timestamp[s]",
            datetime(2025, 1, 1, 0, 0, 1),
        ),
        (nanos(), 1_000_000_007_000, "timestamp[us]", datetime(1970, 1, 1, 0, 16, 40, 7)),
        (nanos("local-"), 10**12, "timestamp[s]", datetime(1970, 1, 1, 0, 16, 40)),
        (["null", nanos()], None, "timestamp[ns]", None),
        (nanos(), 7, "int64", 7),
        (
            {"type": "array", "items": nanos()},
            [10**12],
            "list<timestamp[s]>",
            [datetime(1970, 1, 1, 0, 16, 40)],
        ),
        (LOGICAL["date"], date(2024, 2, 29), "timestamp[ms]", datetime(2024, 2, 29)),
        (LOGICAL["date"], date(2024, 2, 29), "date32", date(2024, 2, 29)),
        ("double", 0.1, "double", 0.1),
        ("float", 1.5, "float", 1.5),
        ("int", 7, "int64", 7),
    ],
)
def test_values_of_avro_are_read_as_they_are(kind: Any, value: Any, column: str, told: Any) -> None:
    found = of_avro(kind, value, column)
    assert (found, type(found)) == (told, type(told))


@pytest.mark.parametrize(
    ("kind", "value", "column"),
    [
        (LOGICAL["money"], Decimal("12.30"), "int64"),
        (LOGICAL["money"], Decimal("12.34"), "decimal(10, 1)"),
        ("float", 1.5, "int64"),
        ("double", 1.0, "int64"),
        ("boolean", True, "int64"),
        ("double", 0.1, "float"),
        ("long", 2**53 + 1, "double"),
        ({"type": "array", "items": "double"}, [1.5], "list<int64>"),
        (LOGICAL["micros"], datetime(2025, 1, 1, 0, 0, 1, 5, UTC), "timestamp[ms]"),
        (LOGICAL["micros"], datetime(2025, 1, 1, 0, 0, 1, 0, UTC), "date32"),
        (LOGICAL["time"], time(1, 2, 3, 4), "time32[ms]"),
        (LOGICAL["date"], date(2024, 2, 29), "time64[us]"),
        (nanos(), 1_001, "timestamp[us]"),
        (nanos(), 0, "date32"),
        (nanos(), 0, "double"),
        (nanos(), -(2**63), "timestamp[ns]"),
        ("string", "5", "int64"),
        ("string", "ab", "list<string>"),
        ("bytes", b"ab", "list<int64>"),
        ("boolean", True, "double"),
    ],
)
def test_a_value_of_avro_that_a_column_would_change_is_refused(kind: Any, value: Any, column: str) -> None:
    assert "the record does not fit the columns: 'x': " in str(of_avro(kind, value, column))


def test_an_avro_message_that_is_no_record_is_refused() -> None:
    found = decode(make_decoder("avro", COLUMNS, {"schema": {"type": "long"}}), [b"\x02"])
    assert set(found.bad) == {0}


def test_times_of_avro_records_keep_their_microseconds() -> None:
    field = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
    schema = {"schema": {"type": "record", "name": "R", "fields": [field]}}
    at = datetime(2026, 11, 22, 1, 2, 3, 456789, UTC)
    values = make_encoder("avro", schema).values(
        pa.table({"at": pa.array([at], pa.timestamp("us", tz="UTC"))})
    )
    found = decode(make_decoder("avro", parse_columns({"at": "timestamp[us]"}), schema), values)
    assert found.table["at"].cast(pa.int64()).to_pylist() == [round(at.timestamp() * 1_000_000)]


def test_columns_have_arrows_types_or_their_short_names() -> None:
    found = parse_columns({"a": "long", "b": "int", "c": "timestamp[ms]", "d": "boolean", "e": "double"})
    assert found is not None
    assert found.types == [pa.int64(), pa.int32(), pa.timestamp("ms"), pa.bool_(), pa.float64()]
    assert parse_columns(None) is None
    for unknown in ("list<", "string_view"):
        with pytest.raises(SpecError, match=f"there is no type '{unknown}'") as caught:
            parse_columns({"a": "long", "b": unknown})
        assert caught.value.field == "columns.b"
    for wrong in ({}, ["id"], "id", 5):
        with pytest.raises(SpecError, match="expected a mapping from column to type"):
            parse_columns(wrong)


def test_numbers_that_json_has_no_word_for_are_read_as_arrow_reads_them() -> None:
    (value,) = decode(make_decoder("json", COLUMNS, None), [b'{"share": NaN}']).table["share"].to_pylist()
    assert math.isnan(value)


@given(st.binary(min_size=1, max_size=3))
def test_bytes_behind_an_avro_record_mean_another_schema(more: bytes) -> None:
    (good,) = make_encoder("avro", AVRO).values(pa.Table.from_pylist([{"id": 1}], COLUMNS))
    found = decode(make_decoder("avro", COLUMNS, AVRO), [good, good + more])
    assert found.bad == {1: "bytes are left behind the Avro record: it has another schema"}


@pytest.mark.parametrize(
    ("held", "column"),
    [
        (pa.array([0.1]), "float"),
        (pa.array([1.0]), "int64"),
        (pa.array([datetime(2024, 1, 1, 5)], pa.timestamp("us")), "date32"),
        (pa.array([datetime(2024, 1, 1, 5, tzinfo=UTC)]), "timestamp[us]"),
        (pa.array([Decimal("1.5")]), "double"),
    ],
)
def test_a_column_of_arrow_that_would_be_cut_is_refused(held: pa.Array, column: str) -> None:
    (value,) = make_encoder("arrow", None).values(pa.table({"x": held}))
    found = decode(make_decoder("arrow", parse_columns({"x": column}), None), [value])
    assert "'x' holds" in found.bad[0]
    assert "is to be" in found.bad[0]


def test_a_value_of_arrow_that_a_column_does_not_hold_is_in_the_reason() -> None:
    (value,) = make_encoder("arrow", None).values(pa.table({"x": [1, 300]}))
    reasons = [
        decode(make_decoder("arrow", parse_columns({name: "int8"}), None), [value]).bad[0] for name in "xy"
    ]
    assert reasons == [
        "column 'x' holds int64, and is to be int8, which does not hold 300",
        "not one column 'y'; the columns are ['x']",
    ]


@pytest.mark.parametrize("kind", ["date32", "date64"])
def test_a_date_of_json_is_text(kind: str) -> None:
    texts = ['"2024-02-29"', "null", '"2024-02-29T05:00:00"', "19000", '"soon"']
    values = [b'{"x": %s, "y": [%s]}' % ((text.encode(),) * 2) for text in texts]
    found = decode(make_decoder("json", parse_columns({"x": kind, "y": f"list<{kind}>"}), None), values)
    assert set(found.bad) == {2, 3, 4}
    assert found.table["x"].to_pylist() == [date(2024, 2, 29), None]
    assert found.table["y"].to_pylist() == [[date(2024, 2, 29)], [None]]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("decimal(38, 38)", "0.5", "-11.5"),
        ("decimal(10, 2)", '"-11.50"', "1e9"),
        ("decimal(38, 0)", "1e2", "1e300"),
        ("list<decimal(4, 1)>", "[1.50]", "[0.55]"),
        ("float", "0.5", "1e39"),
        ("list<float>", "[0.5]", "[-1e39]"),
        ("int8", "-128", "128"),
        ("timestamp[us]", '"2024-02-29T05:00:00"', '"soon"'),
        ("date32", '"2024-02-29"', '"2024-02-30"'),
        ("list<int64>", "[1]", '["1"]'),
        ("string", '"x"', "true"),
    ],
)
def test_a_number_of_json_is_read_exactly_or_refused_with_its_column(kind: str, good: str, bad: str) -> None:
    decoder = make_decoder("json", parse_columns({"x": kind, "other": "boolean"}), None)
    found = decode(decoder, [b'{"x": %s}' % text.encode() for text in (good, bad)])
    assert found.bad.keys() == {1}
    assert "column 'x'" in found.bad[1]
    expected = pa.array([json.loads(good)]).cast(pa.string() if "list" not in kind else pa.list_(pa.string()))
    assert found.table["x"].to_pylist() == expected.cast(found.table["x"].type).to_pylist()


def test_a_bad_message_does_not_make_each_other_one_a_table() -> None:
    decoder, read = make_decoder("json", COLUMNS, None), list[int]()
    table = decoder.table
    decoder.table = lambda values: (read.append(len(values)), table(values))[1]  # type: ignore[method-assign]
    assert decode(decoder, [*[b"{}"] * 500, b"{", *[b"{}"] * 500]).bad.keys() == {500}
    assert len(read) < 40


def test_a_type_that_json_has_no_values_of_is_refused_at_load() -> None:
    with pytest.raises(SpecError, match="JSON has no values of duration") as caught:
        make_decoder("json", parse_columns({"id": "int64", "took": "duration[us]"}), None)
    assert caught.value.field == "columns.took"


def test_text_and_bytes_of_arrow_have_one_type_whoever_has_written_them() -> None:
    encoder, decoder = make_encoder("arrow", None), make_decoder("arrow", None, None)
    row = {"s": "a", "b": b"b", "l": ["c"], "m": {"x": "d"}}
    laid_out = [
        (pa.string(), pa.binary()), (pa.string_view(), pa.binary_view()), (pa.large_string(), pa.large_binary()),
    ]  # fmt: skip
    schemas = [
        pa.schema([("s", text), ("b", held), ("l", pa.list_(text)), ("m", pa.struct([("x", text)]))])
        for text, held in laid_out
    ]
    tables = [pa.Table.from_pylist([row], schema) for schema in schemas]
    found = decode(decoder, [value for table in tables for value in encoder.values(table)])
    assert not found.bad
    assert found.table.schema == schemas[0]
    assert found.table.to_pylist() == [row] * 3

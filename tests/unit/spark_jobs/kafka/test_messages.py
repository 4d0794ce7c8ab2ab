"""Messages to rows and rows to messages, without a broker."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.column_types import parse_columns
from reprise.spark_jobs.errors import DecodeError, SpecError
from reprise.spark_jobs.kafka.decode import avro_schema, decode, make_decoder
from reprise.spark_jobs.kafka.encode import EncodeError, keys, make_encoder, upserts
from reprise.spark_jobs.kafka.registry import Plain, Registry
from tests.support.examples import examples

COLUMNS = parse_columns({"id": "int64", "name": "string", "share": "double"})
RECORD = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "share", "type": "double"},
    ],
}
AVRO = {"schema": RECORD}
TABLE = pa.table({"id": [1, 2], "name": ["a", None], "share": [0.5, 1.0]}, schema=COLUMNS)


@pytest.mark.parametrize(("kind", "avro"), [("json", None), ("avro", AVRO), ("arrow", None)])
def test_what_a_sink_writes_a_source_reads(kind: str, avro: Any) -> None:
    values = make_encoder(kind, avro).values(TABLE)
    found = decode(make_decoder(kind, COLUMNS, avro), values)
    assert found.table.equals(TABLE)
    assert not found.bad
    assert int(found.rows.sum()) == 2


@examples(25)
@given(
    st.lists(
        st.one_of(
            st.fixed_dictionaries({"id": st.integers(-(2**60), 2**60), "name": st.text()}).map(
                lambda r: json.dumps(r).encode()
            ),
            st.sampled_from(
                [b"", b"{", b"{} {}", b"1", b"\xff", b'{"id": "x"}', b'{\n"id": 3\n}', b"{}\n{}"]
            ),
        ),
        max_size=4,
    )
)
def test_bad_json_is_told_from_good_and_order_is_kept(values: list[bytes]) -> None:
    found = decode(make_decoder("json", COLUMNS, None), values)
    assert found.table.schema.equals(COLUMNS)
    expected = []
    for index, value in enumerate(values):
        if index in found.bad:
            assert found.rows[index] == 0
        else:
            expected.append(json.loads(value).get("id"))
    assert found.table["id"].to_pylist() == expected
    assert all(
        i in found.bad for i, v in enumerate(values) if v in (b"", b"{", b"1", b"\xff", b'{"id": "x"}')
    )


def test_every_batch_has_the_same_columns() -> None:
    decoder = make_decoder("json", COLUMNS, None)
    one, other = decode(decoder, [b'{"id": 1, "more": [1, 2]}']), decode(decoder, [b'{"name": "x"}'])
    assert one.table.schema == other.table.schema
    assert other.table.to_pylist() == [{"id": None, "name": "x", "share": None}]
    assert decode(decoder, []).table.schema == one.table.schema


@pytest.mark.parametrize("value", [b"", b"\x02", b"\x02\x02\x02abcdefgh!!", b"\x00\x00"])
def test_bytes_that_are_no_avro_record_are_bad(value: bytes) -> None:
    assert list(decode(make_decoder("avro", COLUMNS, AVRO), [value]).bad) == [0]


def test_a_message_without_the_id_of_a_schema_is_bad() -> None:
    with pytest.raises(DecodeError, match="id of a schema"):
        Registry(Plain("http://127.0.0.1:1"), "AVRO", avro_schema)(b"\x01\x00")


def test_arrow_messages_may_hold_many_rows() -> None:
    values = [
        *make_encoder("arrow", None).values(TABLE),
        b"nonsense",
        *make_encoder("arrow", None).values(TABLE.slice(1)),
    ]
    found = decode(make_decoder("arrow", COLUMNS, None), values)
    assert found.rows.tolist() == [2, 0, 1]
    assert found.table["id"].to_pylist() == [1, 2, 2]
    assert list(found.bad) == [1]


def test_raw_messages_are_bytes() -> None:
    assert decode(make_decoder("raw", None, None), [b"a", b""]).table.to_pylist() == [
        {"value": b"a"},
        {"value": b""},
    ]
    assert make_encoder("raw", None).values(pa.table({"value": ["a", "b"]})) == [b"a", b"b"]
    with pytest.raises(EncodeError, match="column `value`"):
        make_encoder("raw", None).values(TABLE)


def test_keys_are_text_or_a_list() -> None:
    assert keys(TABLE, ["name"]) == [b"a", None]
    assert keys(TABLE, ["id", "name"]) == [b'[1,"a"]', b"[2,null]"]
    with pytest.raises(EncodeError, match="key column 'nobody'"):
        keys(TABLE, ["nobody"])


def test_an_upsert_keeps_the_last_of_each_key() -> None:
    found: list[tuple[bytes | None, bytes | None]] = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", b"4")]
    assert upserts(found, [False, False, False, True]) == [(b"a", b"3"), (b"b", None)]


@pytest.mark.parametrize(
    ("kind", "columns", "avro", "field"),
    [
        ("json", None, None, "columns"),
        ("avro", {"id": "int64"}, None, "avro"),
        ("avro", {"id": "int64"}, {"schema": {"type": "nothing"}}, "avro.schema"),
        ("avro", {"id": "int64"}, {"registry": "nowhere"}, "avro.registry"),
        ("json", {"id": "int65"}, None, "columns.id"),
        ("json", {"id": "int64"}, AVRO, "json"),
        ("json", {"id": "int64"}, {"registry": 5}, "json.registry"),
        ("raw", {"id": "int64"}, None, "columns"),
    ],
)
def test_what_cannot_be_decoded_is_refused_at_load(kind: str, columns: Any, avro: Any, field: str) -> None:
    with pytest.raises(SpecError) as error:
        make_decoder(kind, parse_columns(columns), avro)
    assert error.value.field == field

"""Types of columns as a resource writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from reprise.spark_jobs.column_types import parse_type, type_name
from reprise.spark_jobs.errors import SpecError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int64", pa.int64()),
        ("uint64", pa.uint64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("bool", pa.bool_()),
        ("date32", pa.date32()),
        ("timestamp[us]", pa.timestamp("us")),
        ("timestamp[ms, UTC]", pa.timestamp("ms", "UTC")),
        ("timestamp[us, Europe/Berlin]", pa.timestamp("us", "Europe/Berlin")),
        ("decimal(18, 2)", pa.decimal128(18, 2)),
        ("list<string>", pa.list_(pa.string())),
        ("list<list<decimal(5, 0)>>", pa.list_(pa.list_(pa.decimal128(5, 0)))),
    ],
)
def test_a_type_is_read_as_it_is_printed(text: str, kind: pa.DataType) -> None:
    assert parse_type(text, "f") == kind
    assert parse_type(type_name(kind), "f") == kind
    assert type_name(kind) == text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("long", pa.int64()),
        ("boolean", pa.bool_()),
        ("decimal128(10,2)", pa.decimal128(10, 2)),
        ("decimal(5)", pa.decimal128(5, 0)),
        (" timestamp[us,tz=UTC] ", pa.timestamp("us", "UTC")),
    ],
)
def test_other_ways_to_write_a_type(text: str, kind: pa.DataType) -> None:
    assert parse_type(text, "f") == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "number",
        "null",
        "timestamp[us, Mars/Base]",
        "timestamp[us, +05:30]",
        "list<>",
        "decimal(77, 2)",
        "decimal",
        "timestamp[h]",
    ],
)
def test_what_is_no_type_is_refused_with_examples(text: str) -> None:
    with pytest.raises(SpecError, match=r"there is no type .*examples: int64, .*decimal\(18, 2\)") as caught:
        parse_type(text, "columns.a")
    assert caught.value.field == "columns.a"

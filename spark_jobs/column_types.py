"""Types of columns as a resource writes them, alike for all sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from reprise.spark_jobs.errors import SpecError

NAMES = {
    "string": pa.string(),
    "double": pa.float64(),
    "float": pa.float32(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
}
"""Names of types beside Arrow's own (`int64`, `timestamp[us]`, `date32`, ...)."""
_DECIMAL = re.compile(r"decimal(?:128)?\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)")
_ZONED = re.compile(r"timestamp\[\s*(s|ms|us|ns)\s*,\s*(?:tz\s*=\s*)?([\w+:/-]+)\s*\]")
_LIST = re.compile(r"list<(.+)>")


def parse_columns(value: Any) -> pa.Schema | None:
    """`{name: type}` as an Arrow schema.  SpecError names the column."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise SpecError("columns", "expected a mapping from column to type, e.g. {id: int64, name: string}")
    return pa.schema(
        [pa.field(str(name), parse_type(str(kind), f"columns.{name}")) for name, kind in value.items()]
    )


def parse_type(text: str, field: str) -> pa.DataType:
    """`int64`, `string`, `decimal(18, 2)`, `timestamp[us, UTC]`, `list<string>`, ...  SpecError names `field`."""
    text = text.strip()
    try:
        if found := _DECIMAL.fullmatch(text):
            return pa.decimal128(int(found[1]), int(found[2] or 0))
        if found := _ZONED.fullmatch(text):
            return pa.timestamp(found[1], ZoneInfo(found[2]).key)  # of an offset alone polars knows nothing
        if found := _LIST.fullmatch(text):
            return pa.list_(parse_type(found[1], field))
        if text == "null" or text.endswith("_view"):  # Arrow has no take and no filter for views
            raise ValueError
        return NAMES.get(text) or pa.type_for_alias(text)
    except (ValueError, KeyError):
        raise SpecError(
            field,
            f"there is no type {text!r}; examples: int64, double, string, boolean, date32, timestamp[us, UTC], "
            "timestamp[us, Europe/Berlin], decimal(18, 2), list<string>",
        ) from None


def type_name(kind: pa.DataType) -> str:
    """A type as a resource declares it: the inverse of `parse_type`, for the types that has."""
    if pa.types.is_list(kind):
        return f"list<{type_name(kind.value_type)}>"
    text = str(kind).replace("decimal128", "decimal").replace("tz=", "")
    return text.replace("date32[day]", "date32").replace("date64[ms]", "date64")

"""Columns of Arrow as fields of an Avro schema: each column is checked once, and not each record.

Invariant: a reader of a record finds what the row held.  A column that its field would cut or round, or that has no field,
is refused.  Times become the numbers that Avro writes, so neither the machine's zone nor the years of Python matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.errors import EncodeError
from reprise.spark_jobs.operators.frames import is_bytes, is_text

of = pa.types
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
Takes = Callable[[pa.DataType], bool]


def rows_for(table: pa.Table, schema: Any) -> list[Any]:
    """The rows as fastavro writes them without a change.  EncodeError names the column that a schema does not hold."""
    rows = table.to_struct_array().combine_chunks()
    named = schema.get("__named_schemas", {}) if isinstance(schema, Mapping) else {}
    exact = _fit(rows, schema, named, "")
    return rows.cast(exact).cast(_stored(exact)).to_pylist()  # type: ignore[no-any-return]


def _fit(column: pa.Array, avro: Any, named: Mapping[str, Any], place: str) -> pa.DataType:
    """The type to which a column is cast for a type of Avro, which keeps each of its values."""
    branches = avro if isinstance(avro, list) else [avro]
    some = column.drop_null()
    if len(some) < len(column) and "null" not in branches:
        raise _unfit(place, "is null or missing, and its type has no null")
    if not len(some):
        return column.type
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        raise _unfit(place, "has values; give it one type, or a union of null and one type")
    one = named.get(others[0], others[0]) if isinstance(others[0], str) else others[0]
    kind = one if isinstance(one, str) else one["type"]
    if kind == "record" and of.is_struct(column.type):
        return _fit_fields(some, one, named, place and f"{place}.")
    if kind == "array" and (of.is_list(column.type) or of.is_large_list(column.type)):
        return pa.list_(_fit(some.flatten(), one["items"], named, place))
    return _fit_values(some, kind, {} if isinstance(one, str) else one, place)


def _fit_fields(rows: Any, record: Mapping[str, Any], named: Mapping[str, Any], place: str) -> pa.DataType:
    there = [field.name for field in rows.type]
    for field in record["fields"]:
        if field["name"] not in there and "default" not in field:
            _fit(pa.nulls(1), field["type"], named, f"{place}{field['name']}")
    types = {field["name"]: field["type"] for field in record["fields"]}
    if lacking := [name for name in there if name not in types]:
        raise EncodeError(f"the Avro schema has no field {place + lacking[0]!r}")
    return pa.struct([(n, _fit(rows.field(n), types[n], named, f"{place}{n}")) for n in there])


def _fit_values(some: pa.Array, kind: str, avro: Mapping[str, Any], place: str) -> pa.DataType:
    held = some.type.value_type if of.is_dictionary(some.type) else some.type
    logical = f"{kind}-{avro.get('logicalType')}"
    kind = logical if logical in _TYPES else kind  # what Avro does not know is to be ignored
    takes, target = _TYPES.get(kind, (_nothing, pa.null()))
    if not takes(held):
        raise _unfit(place, f"holds {held}, and the schema {kind}")
    if of.is_decimal(held):
        target = pa.decimal256(min(avro["precision"], 76), avro.get("scale", 0))
    try:
        kept = some.cast(target)
    except pa.ArrowException:
        raise _unfit(place, f"has a value of {held} that {kind} would cut") from None
    if target == pa.float32() and of.is_float64(held):
        same = pc.or_(pc.equal(kept.cast(held), some), pc.is_nan(some))
    else:
        same = pc.match_substring_regex(kept, _UUID) if kind == "string-uuid" else pa.scalar(True)
    if not pc.all(same).as_py():
        raise _unfit(place, f"has a value of {held} that {kind} does not hold")
    return target


def _unfit(place: str, why: str) -> EncodeError:
    return EncodeError(f"a row does not fit the Avro schema: {place or 'the row'!r} {why}")


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type with numbers for times."""
    if of.is_date(kind) or of.is_time(kind) or of.is_timestamp(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if of.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    if of.is_struct(kind):
        fields: Any = kind
        return pa.struct([field.with_type(_stored(field.type)) for field in fields])
    return kind


def _nothing(_kind: pa.DataType) -> bool:
    return False


def _number(kind: pa.DataType) -> bool:
    return bool(of.is_integer(kind) or of.is_floating(kind))


def _local(kind: pa.DataType) -> bool:
    return bool(of.is_timestamp(kind) and kind.tz is None)


_TYPES: Mapping[str, tuple[Takes, pa.DataType]] = {
    "int": (of.is_integer, pa.int32()),
    "long": (of.is_integer, pa.int64()),
    "float": (_number, pa.float32()),
    "double": (_number, pa.float64()),
    "boolean": (of.is_boolean, pa.bool_()),
    **dict.fromkeys(("string", "enum", "string-uuid"), (is_text, pa.string())),
    **dict.fromkeys(("bytes", "fixed"), (is_bytes, pa.binary())),
    **dict.fromkeys(("bytes-decimal", "fixed-decimal"), (of.is_decimal, pa.null())),
    "int-date": (of.is_date, pa.date32()),
    "int-time-millis": (of.is_time, pa.time32("ms")),
    "long-time-micros": (of.is_time, pa.time64("us")),
    **{f"long-timestamp-{name}": (of.is_timestamp, pa.timestamp(unit)) for name, unit in _UNITS.items()},
    **{f"long-local-timestamp-{name}": (_local, pa.timestamp(unit)) for name, unit in _UNITS.items()},
}
"""By type of Avro, with its logical type: which columns it takes, and the type of Arrow that has its values."""

"""Reads the bytes of messages as rows with fixed columns: JSON, Avro, Protobuf (`protobuf.py`), Arrow IPC and raw.

Every batch must have the same columns and types, whatever its messages hold, so JSON, Avro and Protobuf need `columns`.
A decoder takes all values at once, which is fast; when it refuses, smaller and smaller parts are tried, and each message
that cannot be read has its reason.  Invariant: rows come out in the order of the messages.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from reprise.spark_jobs.column_types import parse_columns, type_name
from reprise.spark_jobs.errors import DecodeError, SpecError
from reprise.spark_jobs.kafka.registry import Fetch, Found, Registry, make_fetch
from reprise.spark_jobs.operators.frames import ColumnError, as_schema, canonical
from reprise.spark_jobs.operators.parameters import choice
from reprise.spark_jobs.sources import json_values
from reprise.spark_jobs.sources.text_types import require_finite, shown

__all__ = ["Decoded", "Decoder", "avro_schema", "decode", "given_for", "make_decoder", "parse_columns"]

for _name in (
    "long-timestamp-nanos",
    "long-local-timestamp-nanos",
):  # fastavro leaves them numbers without a unit
    fastavro.read.LOGICAL_READERS[_name] = lambda value, *_schemas: np.datetime64(value, "ns")
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
FORMATS = ("json", "avro", "protobuf", "arrow", "raw")
Counts = npt.NDArray[np.int64]


class Decoder(ABC):
    """Decodes values that are not null."""

    @abstractmethod
    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        """All rows, and how many each value gave.  DecodeError when any value is wrong."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """`rows[i]` is how many rows value i gave; `bad` names the values that could not be read (they gave none)."""

    table: pa.Table
    rows: Counts
    bad: Mapping[int, str]


def decode(decoder: Decoder, values: Sequence[bytes]) -> Decoded:
    """All good values, and the reasons for the bad ones."""
    tables: list[pa.Table] = []
    counts, bad, parts = np.zeros(len(values), np.int64), dict[int, str](), [(0, len(values))]
    while parts:
        begin, end = parts.pop()
        try:
            table, rows = decoder.table(values[begin:end])
        except DecodeError as error:
            if end - begin == 1:
                bad[begin] = str(error)
            else:
                step = max(1, (end - begin) // 8)
                parts += [(at, min(at + step, end)) for at in reversed(range(begin, end, step))]
            continue
        if tables and not table.schema.equals(tables[0].schema):
            other = f"columns {table.column_names} are not those of the messages before"
            bad |= dict.fromkeys(range(begin, end), other)
            continue
        tables.append(table)
        counts[begin:end] = rows
    return Decoded(pa.concat_tables(tables) if tables else decoder.table([])[0], counts, bad)


class Raw(Decoder):
    """One column `value` of bytes."""

    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        return pa.table({"value": pa.array(values, pa.binary())}), np.ones(len(values), np.int64)


class Json(Decoder):
    """One object a message; fields that are not columns are left aside, columns that are missing are null."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._decimals = [field for field in schema if "decimal" in str(field.type)]
        self._floats = [field for field in schema if "float" in str(field.type)]
        read = pa.schema([f.with_type(_of_json(f.type)) for f in schema if f not in self._decimals])
        self._options = pa.json.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore")
        for field in read:
            try:
                pa.json.read_json(io.BytesIO(b"{}"), None, pa.json.ParseOptions(pa.schema([field])))
            except pa.ArrowNotImplementedError:
                raise SpecError(
                    f"columns.{field.name}", f"JSON has no values of {field.type}: declare another type"
                ) from None

    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        if not values:
            return self._schema.empty_table(), np.zeros(0, np.int64)
        # Arrow reads objects, not lines.  Where every line begins and ends with a brace no object goes over the end of a
        # line, so each line has at least one, and as many rows as lines means one each.
        joined = b"\n".join(values)
        ends = len(values) - 1
        plain = joined.count(b"\n") == joined.count(b"}\n{") == ends
        if not (plain and joined[:1] == b"{" and joined[-1:] == b"}"):
            joined = b"\n".join(map(_one_line, values))
        block = pa.json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(joined) + 1))
        try:
            table = pa.json.read_json(io.BytesIO(joined), block, self._options)
            table.validate(full=True)  # Arrow's reader takes text that is not UTF-8
            if table.num_rows != len(values):
                raise DecodeError("not one JSON object")
            rows = [_object(value) for value in values] if self._decimals else []
            for field in self._decimals:  # Arrow wraps digits that have no room
                column = json_values.converted([row.get(field.name) for row in rows], field.type, field.name)
                table = table.append_column(field.name, column)
            found = table.select(self._schema.names).cast(self._schema)
            for field in self._floats:
                were = pc.is_inf(_flat(table[field.name]))
                require_finite(_flat(found[field.name]), were, field.type, field.name)
        except ColumnError as error:
            raise DecodeError(str(error)) from None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DecodeError(self._why(str(error))) from None
        return found, np.ones(len(values), np.int64)

    def _why(self, text: str) -> str:
        """What Arrow has against a message, with the column."""
        if kind := re.search(r"Column\(/(.+?)(/\[\])*\) changed from .+ to (\w+)", text):
            wanted = type_name(self._schema.field(kind[1]).type)
            return f"column {kind[1]!r} is {wanted}, and the message has a value of kind {kind[3]}"
        if value := re.search(
            r"JSON to (?P<kind>.+), couldn't parse:(?P<text>.*)", text, re.DOTALL
        ) or re.search(r"string: '(?P<text>.*)' as a scalar of type (?P<kind>.+)", text, re.DOTALL):
            alike = [
                f"{f.name!r} ({type_name(f.type)})" for f in self._schema if value["kind"] in str(f.type)
            ]
            return f"{shown(value['text'])} does not fit column {' or '.join(alike or self._schema.names)}"
        if "UTF8" in text:
            return "it is not UTF-8 text"
        return "not JSON of these columns" + (": a name is there twice" if "twice" in text else "")


def _of_json(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow reads values of a column: it takes no text for dates, and makes infinite floats."""
    if pa.types.is_list(kind):
        return pa.list_(_of_json(kind.value_type))
    if pa.types.is_float32(kind):
        return pa.float64()
    return pa.string() if pa.types.is_date(kind) else kind


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return _flat(pc.list_flatten(column)) if pa.types.is_list(column.type) else column


def _object(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value.decode(), parse_float=Decimal, object_pairs_hook=json_values.row)
    except json.JSONDecodeError as error:
        raise DecodeError(f"not JSON from character {error.pos + 1} on") from None
    except UnicodeDecodeError:
        raise DecodeError("it is not UTF-8 text") from None
    except (ValueError, RecursionError, ArithmeticError):
        raise DecodeError(
            "not JSON that can be read: a name is there twice, values are nested too deeply, or a number is too long"
        ) from None
    if not isinstance(found, dict):  # `null` alone ends the process inside Arrow
        raise DecodeError(f"not a JSON object but {shown(found)}")
    return found


def _one_line(value: bytes) -> bytes:
    if value[:1] == b"{" and value[-1:] == b"}" and b"\n" not in value:
        return value
    return json.dumps(_object(value), separators=(",", ":"), default=float).encode()


class Arrow(Decoder):
    """An Arrow IPC stream a message, of any number of rows."""

    def __init__(self, schema: pa.Schema | None) -> None:
        self._schema = schema

    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        tables = [self._one(value) for value in values]
        empty = [] if self._schema is None else [self._schema.empty_table()]
        try:
            table = pa.concat_tables([*empty, *tables]) if empty or tables else pa.table({})
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            raise DecodeError("columns differ from message to message") from None
        return table, np.array([t.num_rows for t in tables], np.int64)

    def _one(self, value: bytes) -> pa.Table:
        try:
            with pa.ipc.open_stream(value) as reader:
                table = reader.read_all()
            table.validate(full=True)
        except (ValueError, TypeError, OSError, pa.ArrowException):
            raise DecodeError("not an Arrow stream, or damaged") from None
        if self._schema is None:
            return canonical(table)
        if lacking := [name for name in self._schema.names if table.column_names.count(name) != 1]:
            raise DecodeError(f"not one column {lacking[0]!r}; the columns are {table.column_names}")
        try:
            return as_schema(table, self._schema)
        except ColumnError as error:
            raise DecodeError(str(error)) from None


class Avro(Decoder):
    """One record a message, written with a schema that `writer_of` finds; it also says where the record begins."""

    def __init__(self, schema: pa.Schema, writer_of: Callable[[bytes], tuple[Any, int]]) -> None:
        self._schema, self._writer_of = schema, writer_of

    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        records = []
        for value in values:
            writer, begin = self._writer_of(value)
            stream = io.BytesIO(value[begin:])
            try:
                record = fastavro.schemaless_reader(stream, writer, None)
            except (
                Exception
            ):  # whatever fastavro meets in wrong bytes: EOFError, IndexError, UnicodeDecodeError
                raise DecodeError(
                    "not an Avro record of this schema with times of the years 1 to 9999"
                ) from None
            if stream.read(1):
                raise DecodeError("bytes are left behind the Avro record: it has another schema")
            if not isinstance(record, Mapping):
                raise DecodeError(f"the record does not fit the columns: it is {type(record).__name__}")
            records.append(record)
        columns = [_column(records, field) for field in self._schema]
        return pa.Table.from_arrays(columns, schema=self._schema), np.ones(len(values), np.int64)


def _column(records: Sequence[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    """One field of Avro records.  DecodeError where the column's type would change a value."""
    try:
        return pa.array([_fitting(record.get(field.name), field.type) for record in records], field.type)
    except (pa.ArrowException, TypeError, AttributeError, OverflowError):
        reason = f"a value is no {field.type}"
    except ValueError as error:
        reason = str(error)
    raise DecodeError(f"the record does not fit the columns: {field.name!r}: {reason}")


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """A value of fastavro as Arrow takes it for this type.  ValueError where Arrow would cut or round it."""
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_fitting(item, kind.value_type) for item in value]
    if isinstance(value, UUID):
        return value.bytes if pa.types.is_binary(kind) else str(value)
    if isinstance(value, np.datetime64) and (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
        unit = value.astype(f"datetime64[{getattr(kind, 'unit', 'ns')}]")
        if fits := bool(unit == value):
            value = int(unit.astype(np.int64))
    elif pa.types.is_timestamp(kind) and type(value) is date:
        return datetime(value.year, value.month, value.day)
    elif pa.types.is_integer(kind):
        fits = type(value) in (int, NoneType)
    elif pa.types.is_floating(kind) and kind.bit_width < 64 and isinstance(value, float):
        with np.errstate(over="ignore"):
            narrow = kind.to_pandas_dtype()(value)
        fits = math.isnan(value) or float(narrow) == value
    elif pa.types.is_date(kind):
        fits = not isinstance(value, datetime | np.datetime64)
    elif pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        if isinstance(value, int):
            raise ValueError(
                f"{value} is a number whose unit nobody knows: declare int64, and say the unit of an event time in `time`"
            )
        fits = getattr(value, "microsecond", 0) % _MICROSECONDS[kind.unit] == 0
    else:  # Arrow makes lists of the letters of text, and numbers of truth values
        fits = not (isinstance(value, bool) and pa.types.is_floating(kind)) and (
            value is None or not pa.types.is_list(kind)
        )
    if not fits:
        raise ValueError(f"{value} of type {type(value).__name__} would be changed in a column of {kind}")
    return value


class Headed(Decoder):
    """Values that a registry's head precedes, which says nothing that is needed to read them."""

    def __init__(self, begin_of: Callable[[bytes], tuple[Any, int]], decoder: Decoder) -> None:
        self._begin_of, self._decoder = begin_of, decoder

    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        return self._decoder.table([value[self._begin_of(value)[1] :] for value in values])


def local_schema(schema: Any) -> Callable[[bytes], tuple[Any, int]]:
    """Every message was written with this schema (a file, or the schema itself); nothing precedes the record."""
    try:
        raw = json.loads(Path(schema).read_text(encoding="utf-8")) if isinstance(schema, str) else schema
        parsed = fastavro.parse_schema(raw)
    except (OSError, ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise SpecError("avro.schema", f"is not an Avro schema or a file with one: {error}") from None
    return lambda _value: (parsed, 0)


def avro_schema(found: Found, _fetch: Fetch) -> Any:
    """A schema of a registry.  ValueError says why it cannot be used."""
    try:
        return fastavro.parse_schema(json.loads(found.text))
    except (KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(str(error)) from None


def given_for(kind: str, schemas: Mapping[str, Any]) -> Any:
    """What a resource says of the schemas of messages of this format, of what it says by format; None: nothing.  SpecError
    where there is no such format, or something is said of another one."""
    choice(kind, "format", FORMATS)
    for name, value in schemas.items():
        if value is not None and name != kind:
            raise SpecError(name, f"is for format {name}, not {kind}")
    return schemas.get(kind)


def make_decoder(kind: str, columns: pa.Schema | None, given: Any) -> Decoder:
    """The decoder of a resource; `given`: what it says of the schemas of messages.  SpecError names the parameter."""
    if kind in ("json", "avro", "protobuf") and columns is None:
        raise SpecError("columns", f"is required for {kind}: every batch must have the same columns")
    if kind == "raw" and columns is not None:
        raise SpecError("columns", "format raw has one column, `value`")
    if kind == "arrow":
        return Arrow(columns)
    if columns is None:  # the others have some
        return Raw()
    if kind == "json" and given is None:
        return Json(columns)
    return _BY_SCHEMA[kind](columns, given)


def _avro(columns: pa.Schema, given: Any) -> Decoder:
    if _is_of_registry(given):
        return Avro(
            columns, Registry(make_fetch(given["registry"], given.get("config"), "avro"), "AVRO", avro_schema)
        )
    if not isinstance(given, Mapping) or set(given) != {"schema"}:
        raise SpecError("avro", f"expected {{schema: FILE or SCHEMA}} or {_OF_REGISTRY}")
    return Avro(columns, local_schema(given["schema"]))


def _json(columns: pa.Schema, given: Any) -> Decoder:
    """Reads JSON behind the id of a JSON Schema.  Its writer holds to that; here the columns say what a message may be."""
    if not _is_of_registry(given):
        raise SpecError(
            "json", f"expected {_OF_REGISTRY}; leave it out where no id of a schema precedes messages"
        )
    fetch = make_fetch(given["registry"], given.get("config"), "json")
    return Headed(Registry(fetch, "JSON", lambda _found, _fetch: None), Json(columns))


def _protobuf(columns: pa.Schema, given: Any) -> Decoder:
    protobuf = protobuf_of("protobuf")
    if _is_of_registry(given):
        fetch = make_fetch(given["registry"], given.get("config"), "protobuf")
        registry = Registry(fetch, "PROTOBUF", protobuf.Types, protobuf.SERIALIZED)
        return protobuf.Protobuf(columns, protobuf.type_of(registry))  # type: ignore[no-any-return]
    if not isinstance(given, Mapping) or set(given) != {"schema", "message"}:
        raise SpecError("protobuf", f"expected {{schema: FILE, message: NAME}} or {_OF_REGISTRY}")
    return protobuf.local(columns, given)  # type: ignore[no-any-return]


_BY_SCHEMA: Mapping[str, Callable[[pa.Schema, Any], Decoder]] = {
    "avro": _avro,
    "json": _json,
    "protobuf": _protobuf,
}
_OF_REGISTRY = "{registry: URL}, the latter with `config` where it asks who one is"


def _is_of_registry(given: Any) -> bool:
    return isinstance(given, Mapping) and set(given) in ({"registry"}, {"registry", "config"})


def protobuf_of(place: str) -> Any:
    """The module for Protobuf.  SpecError where its package is not installed."""
    try:
        return importlib.import_module("reprise.spark_jobs.kafka.protobuf")
    except ImportError as error:
        raise SpecError(place, f"needs Protobuf: pip install 'reprise-streams[protobuf]' ({error})") from None

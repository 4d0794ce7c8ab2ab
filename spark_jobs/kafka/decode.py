"""Reads the bytes of messages as rows with fixed columns: JSON, Avro, Arrow IPC and raw.

Every batch must have the same columns and types, whatever its messages hold, so JSON and Avro need `columns`.  A decoder
takes all values at once, which is fast; when it refuses, each message is tried by itself, and those that cannot be read are
told from the others with the reason.  Invariant: rows come out in the order of the messages.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from reprise.spark_jobs.errors import DecodeError, SpecError
from reprise.spark_jobs.kafka.registry import make_registry

Counts = npt.NDArray[np.int64]
TYPES = {
    "string": pa.string(),
    "double": pa.float64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
}
"""Names of types beside Arrow's own (`int64`, `timestamp[us]`, `date32`, ...)."""


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
    try:
        table, rows = decoder.table(values)
        return Decoded(table, rows, {})
    except DecodeError:
        pass
    tables: list[pa.Table] = []
    counts, bad = np.zeros(len(values), np.int64), dict[int, str]()
    for index, value in enumerate(values):
        try:
            table, rows = decoder.table([value])
        except DecodeError as error:
            bad[index] = str(error)
            continue
        if tables and not table.schema.equals(tables[0].schema):
            bad[index] = f"columns {table.column_names} are not those of the messages before"
            continue
        tables.append(table)
        counts[index] = rows[0]
    return Decoded(pa.concat_tables(tables) if tables else decoder.table([])[0], counts, bad)


class Raw(Decoder):
    """One column `value` of bytes."""

    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        return pa.table({"value": pa.array(values, pa.binary())}), np.ones(len(values), np.int64)


class Json(Decoder):
    """One object a message; fields that are not columns are left aside, columns that are missing are null."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        if not values:
            return self._schema.empty_table(), np.zeros(0, np.int64)
        # Arrow reads objects, not lines.  Where every line begins and ends with a brace no object goes over the end of a
        # line, so each line has at least one, and as many rows as lines means one each.
        joined = b"\n".join(
            value if value[:1] == b"{" and value[-1:] == b"}" and b"\n" not in value else _one_line(value)
            for value in values
        )
        block = pa.json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(joined) + 1))
        try:
            table = pa.json.read_json(io.BytesIO(joined), block, self._options)
            table.validate(full=True)  # Arrow's reader takes text that is not UTF-8
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DecodeError(f"not JSON with these columns: {error}") from None
        if table.num_rows != len(values):
            raise DecodeError("not one JSON object")
        return table.select(self._schema.names).cast(self._schema), np.ones(len(values), np.int64)


def _one_line(value: bytes) -> bytes:
    try:
        found = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from None
    if not isinstance(found, dict):  # `null` alone ends the process inside Arrow
        raise DecodeError(f"not a JSON object but {type(found).__name__}")
    return json.dumps(found, separators=(",", ":")).encode()


class Arrow(Decoder):
    """An Arrow IPC stream a message, of any number of rows."""

    def __init__(self, schema: pa.Schema | None) -> None:
        self._schema = schema

    def table(self, values: Sequence[bytes]) -> tuple[pa.Table, Counts]:
        tables = [self._one(value) for value in values]
        empty = [] if self._schema is None else [self._schema.empty_table()]
        try:
            table = pa.concat_tables([*empty, *tables]) if empty or tables else pa.table({})
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DecodeError(f"columns differ from message to message: {error}") from None
        return table, np.array([t.num_rows for t in tables], np.int64)

    def _one(self, value: bytes) -> pa.Table:
        try:
            with pa.ipc.open_stream(value) as reader:
                table = reader.read_all()
            table.validate(full=True)
            return table if self._schema is None else table.select(self._schema.names).cast(self._schema)
        except (ValueError, TypeError, LookupError, OSError, pa.ArrowNotImplementedError) as error:
            raise DecodeError(f"not an Arrow stream with these columns: {error}") from None


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
            ) as error:  # whatever fastavro meets in wrong bytes: EOFError, IndexError, UnicodeDecodeError
                raise DecodeError(
                    f"not an Avro record of this schema: {type(error).__name__}: {error}"
                ) from None
            if stream.read(1):
                raise DecodeError("bytes are left behind the Avro record: it has another schema")
            records.append(record)
        try:
            table = pa.Table.from_pylist(records, schema=self._schema)
        except (ValueError, TypeError, AttributeError, OverflowError, pa.ArrowNotImplementedError) as error:
            raise DecodeError(f"the record does not fit the columns: {error}") from None
        return table, np.ones(len(values), np.int64)


def local_schema(schema: Any) -> Callable[[bytes], tuple[Any, int]]:
    """Every message was written with this schema (a file, or the schema itself); nothing precedes the record."""
    try:
        raw = json.loads(Path(schema).read_text(encoding="utf-8")) if isinstance(schema, str) else schema
        parsed = fastavro.parse_schema(raw)
    except (OSError, ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise SpecError("avro.schema", f"is not an Avro schema or a file with one: {error}") from None
    return lambda _value: (parsed, 0)


def parse_columns(value: Any) -> pa.Schema | None:
    """`{name: type}` as an Arrow schema.  SpecError names the column."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise SpecError("columns", "expected a mapping from column to type, e.g. {id: int64, name: string}")
    fields = []
    for name, kind in value.items():
        try:
            fields.append(pa.field(str(name), TYPES.get(kind) or pa.type_for_alias(str(kind))))
        except ValueError:
            raise SpecError(f"columns.{name}", f"there is no Arrow type {kind!r}") from None
    return pa.schema(fields)


def make_decoder(kind: str, columns: pa.Schema | None, avro: Any) -> Decoder:
    """The decoder of a resource.  SpecError names the parameter."""
    if avro is not None and kind != "avro":
        raise SpecError("avro", f"is for format avro, not {kind}")
    if kind in ("json", "avro") and columns is None:
        raise SpecError("columns", f"is required for {kind}: every batch must have the same columns")
    if kind == "raw" and columns is not None:
        raise SpecError("columns", "format raw has one column, `value`")
    if kind == "arrow":
        return Arrow(columns)
    if columns is None:  # the others have some
        return Raw()
    return Json(columns) if kind == "json" else Avro(columns, _writers(avro))


def _writers(avro: Any) -> Callable[[bytes], tuple[Any, int]]:
    if not isinstance(avro, Mapping) or set(avro) not in ({"schema"}, {"registry"}, {"registry", "config"}):
        raise SpecError(
            "avro",
            "expected {schema: FILE or SCHEMA} or {registry: URL}, the latter with `config` where it asks who one is",
        )
    if "schema" in avro:
        return local_schema(avro["schema"])
    return make_registry(avro["registry"], avro.get("config"))

"""Writes rows as keys and values of messages: JSON, Avro, Protobuf (`protobuf.py`), Arrow IPC and raw.

Invariant: the same table gives the same bytes in the same order, in every process: a replay is recognised by them.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import fastavro
import pyarrow as pa

from reprise.spark_jobs.errors import EncodeError, SpecError
from reprise.spark_jobs.kafka.avro_columns import rows_for
from reprise.spark_jobs.kafka.decode import local_schema, protobuf_of
from reprise.spark_jobs.kafka.registry import head
from reprise.spark_jobs.operators.frames import plain
from reprise.spark_jobs.operators.parameters import whole
from reprise.spark_jobs.sinks.files import encoded

Keyed = list[tuple[bytes | None, bytes | None]]
ARROW_BYTES = 500_000
"""Rows go into one Arrow message up to about this size; librdkafka takes messages of 1 MB by default."""


class Encoder(ABC):
    """Values of a table's rows."""

    whole_rows = True
    """One value a row; otherwise values hold several rows and cannot have keys."""

    @abstractmethod
    def values(self, table: pa.Table) -> Sequence[bytes]:
        """EncodeError says what does not fit."""


class Json(Encoder):
    """One object a row; columns in order; with `number` behind the head that registries' readers want."""

    def __init__(self, number: int | None = None) -> None:
        self._head = b"" if number is None else head(number)

    def values(self, table: pa.Table) -> Sequence[bytes]:
        found = encoded("jsonl", table).splitlines()
        return [self._head + line for line in found] if self._head else found


class Raw(Encoder):
    """The bytes or text of column `value`."""

    def values(self, table: pa.Table) -> Sequence[bytes]:
        if "value" not in table.column_names:
            raise EncodeError(f"format raw writes column `value`; there are {table.column_names}")
        column = table["value"]
        if column.null_count:
            raise EncodeError("column `value` has nulls")
        try:
            found: list[bytes] = column.cast(pa.binary()).to_pylist()
        except pa.ArrowNotImplementedError:
            raise EncodeError(
                f"column `value` holds {column.type}; format raw writes text or bytes"
            ) from None
        return found


class Arrow(Encoder):
    """Arrow IPC streams of many rows each."""

    whole_rows = False

    def values(self, table: pa.Table) -> Sequence[bytes]:
        rows = max(1, table.num_rows * ARROW_BYTES // max(1, table.nbytes))
        found = []
        for begin in range(0, table.num_rows, rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.slice(begin, rows).combine_chunks())
            found.append(bytes(sink.getvalue()))
        return found


class Avro(Encoder):
    """One record a row; with `number` behind the head that schema registries want.  Times without a zone are UTC."""

    def __init__(self, schema: Any, number: int | None) -> None:
        self._schema, _ = local_schema(schema)(b"")
        self._head = b"" if number is None else head(number)

    def values(self, table: pa.Table) -> Sequence[bytes]:
        found = []
        for row in rows_for(table, self._schema):
            stream = io.BytesIO(self._head)
            stream.seek(len(self._head))
            try:
                fastavro.schemaless_writer(stream, self._schema, row)
            except Exception:  # whatever fastavro meets in the text of an enum, or the size of a fixed
                raise EncodeError(
                    "a row does not fit the Avro schema: an enum lacks a symbol, or a fixed has another size"
                ) from None
            found.append(stream.getvalue())
        return found


def make_encoder(kind: str, given: Any) -> Encoder:
    """The encoder of a resource; `given`: what it says of the schemas of messages.  SpecError names the parameter."""
    if given is None and kind not in _FIELDS:
        plain: dict[str, Callable[[], Encoder]] = {"json": Json, "raw": Raw, "arrow": Arrow}
        return plain[kind]()
    needed, text = _FIELDS.get(kind, (frozenset(), "{id: NUMBER in a registry}"))
    if not isinstance(given, Mapping) or not given or not needed <= set(given) <= {*needed, "id"}:
        raise SpecError(kind, f"expected {text}")
    number = given.get("id")
    if number is not None and whole(number, f"{kind}.id", least=0) >= 1 << 32:
        raise SpecError(f"{kind}.id", f"ids of a registry have 32 bits, found {number}")
    if kind == "protobuf":
        protobuf = protobuf_of("protobuf")
        return protobuf.ToProtobuf(protobuf.local_type(given), number)  # type: ignore[no-any-return]
    return Avro(given["schema"], number) if kind == "avro" else Json(number)


_FIELDS: Mapping[str, tuple[frozenset[str], str]] = {
    "avro": (frozenset({"schema"}), "{schema: FILE or SCHEMA, id: NUMBER in a registry}"),
    "protobuf": (frozenset({"schema", "message"}), "{schema: FILE, message: NAME, id: NUMBER in a registry}"),
}
"""What has to be said by format, and how that is written."""


def keys(table: pa.Table, columns: Sequence[str]) -> Sequence[bytes | None]:
    """A key a row: the text of one column, or a JSON list of several, where bytes are base64 and NaN is text."""
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise EncodeError(
            f"key column {missing[0]!r} is not in the output; its columns are {table.column_names}"
        )
    values = [_keyed(plain(table[name].combine_chunks()), name) for name in columns]
    if len(columns) == 1:
        return [v if v is None or isinstance(v, bytes) else str(v).encode() for v in values[0]]
    rows = zip(*values, strict=True)
    return [json.dumps(row, separators=(",", ":"), default=_in_list).encode() for row in rows]


def _keyed(column: pa.Array, name: str) -> list[Any]:
    """The values of a key column, equal where they are one key: all NaN are, and 0.0 and -0.0."""
    if pa.types.is_nested(column.type):
        raise EncodeError(f"key column {name!r} holds {column.type}; lists and structures cannot be keys")
    if getattr(column.type, "unit", None) == "ns":  # Python has no times so fine
        column = column.cast(pa.string())
    try:
        found = column.to_pylist()
    except (OverflowError, ValueError):
        raise EncodeError(f"key column {name!r} holds a time beyond the years 1 to 9999") from None
    return [(v + 0.0 if isfinite(v) else str(v)) if isinstance(v, float) else v for v in found]


def _in_list(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def deletions(table: pa.Table, name: str) -> list[bool]:
    """Which rows say that their key is deleted; null does not.  EncodeError unless the column holds booleans."""
    if name not in table.column_names:
        raise EncodeError(
            f"delete column {name!r} is not in the output; its columns are {table.column_names}"
        )
    kind = table[name].type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise EncodeError(f"delete column {name!r} holds {kind}; expected booleans")
    return [bool(value) for value in table[name].to_pylist()]


def upserts(found: Keyed, deleted: Sequence[bool]) -> Keyed:
    """The last message of each key, where the last one stood; a deleted key's value is null, a tombstone.

    EncodeError for a row without a key: brokers refuse it in a compacted topic, and would each time.
    """
    if any(key is None for key, _ in found):
        raise EncodeError("a key is null; mode upsert needs a key in each row")
    last = {key: index for index, (key, _) in enumerate(found)}
    return [(key, None if deleted[i] else value) for i, (key, value) in enumerate(found) if last[key] == i]

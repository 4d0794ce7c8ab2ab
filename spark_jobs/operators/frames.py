"""Arrow tables in and out of polars and numpy with one canonical type for each kind of column.

polars hands strings back as large or view strings, sources as plain or dictionary ones.  State that outlives
a batch must not depend on which library touched the rows last; so all string columns become `string`, within lists and
structures too, where a library operator takes or gives rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.contract import Inbox
from reprise.spark_jobs.errors import DataPlaneError
from reprise.spark_jobs.polars_frames import frame_of

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)? ?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
"""ISO 8601, as it is written in text: a date, or a date and a time with or without an offset."""
ZONED = r":[0-9]{2}[0-9:.]* ?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
REFUSED = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""Polars panics where it has not thought of something, as at `least()`; that is no `Exception`."""
END_OF_TIME = 1 << 62
"""Watermark of a source that has ended: every window closes."""


FARTHEST = 1 << 60
"""Microseconds: times are nearer than 36,000 years, so that sums of a time and a duration stay within 64 bits."""
_FAR = "more than 36,000 years from 1970; are these nanoseconds?"
IDLE = END_OF_TIME + 1
"""Watermark of a partition that waits for no rows just now: it holds nobody back, and goes on where it was later."""


def least(marks: Iterable[int | None]) -> int | None:
    """The watermark of who reads inputs with these: None until each has one, `IDLE` where none holds it back and not all
    have ended."""
    found = list(marks)
    known = [mark for mark in found if mark != IDLE]
    if None in known:
        return None
    lowest = min((mark for mark in known if mark is not None), default=IDLE)
    return IDLE if lowest == END_OF_TIME and len(known) < len(found) else lowest


class ColumnError(DataPlaneError):
    """Rows that do not have the columns, or the types, that an operator was told to expect."""


def canonical(table: pa.Table) -> pa.Table:
    """The same rows with one type for all ways to lay out the same values; free of charge when there is nothing to do."""
    schema = pa.schema([field.with_type(_canonical(field.type)) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def _canonical(kind: pa.DataType) -> pa.DataType:
    of = pa.types
    if of.is_dictionary(kind):
        return _canonical(kind.value_type)
    if of.is_struct(kind):
        parts = map(kind.field, range(kind.num_fields))
        return pa.struct([part.with_type(_canonical(part.type)) for part in parts])
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        part = kind.value_field.with_type(_canonical(kind.value_type))
        return pa.list_(part, kind.list_size if of.is_fixed_size_list(kind) else -1)
    if of.is_decimal32(kind) or of.is_decimal64(kind):
        kind = pa.decimal128(kind.precision, kind.scale)
    elif of.is_large_binary(kind) or of.is_binary_view(kind):
        kind = pa.binary()
    elif of.is_timestamp(kind) and (kind.tz or "").startswith(("+", "-")):
        kind = pa.timestamp(kind.unit, "UTC")  # the same instants; polars does not know offsets
    return pa.string() if is_text(kind) else kind


def to_polars(table: pa.Table) -> pl.DataFrame:
    """A frame over the same rows.  ColumnError for a column of a type that polars has not."""
    try:
        return frame_of(table)
    except REFUSED:
        names = table.column_names
    for at, name in enumerate(names):
        try:
            frame_of(table.select([at]))
        except REFUSED:
            kind = table.schema.field(at).type
            raise ColumnError(
                f"column {name!r} holds {kind}, which this operator does not take; CAST or leave it out at the source"
            ) from None
    raise ColumnError(f"several columns of the input have one name; its columns are {', '.join(names)}")


def to_arrow(frame: pl.DataFrame) -> pa.Table:
    """A table over the same rows, in canonical types, without polars metadata."""
    return canonical(frame.to_arrow(compat_level=pl.CompatLevel.oldest()))


def column(table: pa.Table, name: str) -> pa.Array:
    """One column as one contiguous array; ColumnError when the table has none of this name."""
    if name not in table.column_names:
        raise ColumnError(
            f"column {name!r} is not in the input; its columns are {', '.join(table.column_names)}"
        )
    chunked = table.column(name)
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    return pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], chunked.type)


def select(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Some columns of a table, each once; ColumnError for one that is not there."""
    return pa.table({name: column(table, name) for name in names})


def times(table: pa.Table, name: str) -> Ints:
    """Event times of a column in microseconds since the epoch; ColumnError unless integers, timestamps, dates or ISO text,
    without nulls."""
    array = plain(column(table, name))
    if array.null_count:
        raise ColumnError(
            f"time column {name!r} has no time in {array.null_count} rows: drop them, or fill them in"
        )
    if pa.types.is_null(array.type):
        return np.zeros(0, np.int64)
    if not pa.types.is_integer(array.type):
        return microseconds(array, name)
    try:
        values: Ints = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        raise ColumnError(f"time column {name!r} holds a time {_FAR}") from None
    return _near(values, name)


def _near(values: Ints, name: str) -> Ints:
    """The times.  ColumnError for one that is too far away."""
    wrong = values[(values <= -FARTHEST) | (values >= FARTHEST)]
    if len(wrong):
        raise ColumnError(f"time column {name!r} holds {wrong[0]} microseconds, {_FAR}")
    return values


def plain(array: pa.Array) -> pa.Array:
    """An array without a dictionary."""
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def microseconds(array: pa.Array, name: str) -> Ints:
    """Timestamps, dates (their midnight) or ISO text without nulls as microseconds since the epoch, rounded down; without a
    zone they are UTC.  ColumnError for another type, and for a time that 64 bits do not hold."""
    if is_text(array.type):
        array = instants(array.cast(pa.string()), name)
    if not (pa.types.is_timestamp(array.type) or pa.types.is_date(array.type)):
        raise ColumnError(
            f"time column {name!r} holds {array.type}; expected integer microseconds, timestamps, dates or ISO text"
        )
    nanoseconds = pa.types.is_timestamp(array.type) and array.type.unit == "ns"
    try:
        array = array if nanoseconds else array.cast(pa.timestamp("us", getattr(array.type, "tz", None)))
    except pa.ArrowInvalid:
        raise ColumnError(f"time column {name!r} holds a time {_FAR}") from None
    values: Ints = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values // 1000 if nanoseconds else _near(values, name)


def instants(texts: Any, name: str, unit: str = "us") -> Any:
    """ISO 8601 text, an array or chunks, as timestamps in UTC; what has no offset is UTC, and parts of a microsecond are cut
    off, downwards, where that is the unit.  ColumnError names the column and a value that is none."""
    wrong = texts.filter(pc.invert(pc.match_substring_regex(texts, INSTANT)))
    if len(wrong):
        raise ColumnError(f"column {name!r}: {wrong[0].as_py()!r} is no time of ISO 8601")
    texts = pc.replace_substring_regex(texts, r" (Z|[+-][0-9:]+)$", r"\1")
    if unit == "us":
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    try:
        return _in_utc(texts, unit)
    except pa.ArrowInvalid:
        value = first_wrong(texts, lambda part: _in_utc(part, unit)).as_py()
        hold = " that nanoseconds hold (years 1678 to 2261)" if unit == "ns" else " of ISO 8601"
        raise ColumnError(f"column {name!r}: {value!r} is no time{hold}") from None


def _in_utc(texts: Any, unit: str) -> Any:
    zoned, none = pc.match_substring_regex(texts, ZONED), pa.scalar(None, pa.string())
    given = pc.if_else(zoned, texts, none).cast(pa.timestamp(unit, "UTC"))
    naive = pc.if_else(zoned, none, texts).cast(pa.timestamp(unit))
    return pc.coalesce(given, naive.cast(pa.int64()).cast(pa.timestamp(unit, "UTC")))


def first_wrong(values: Any, convert: Callable[[Any], object]) -> Any:
    """A value of an array that this conversion refuses, by halves: messages of Arrow do not always have it."""
    while len(values) > 1:
        half = values[: len(values) // 2]
        try:
            convert(half)
            values = values[len(half) :]
        except (pa.ArrowException, ArithmeticError):
            values = half
    return values[0]


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's for text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's for bytes."""
    of = pa.types
    return bool(of.is_binary(kind) or of.is_large_binary(kind) or of.is_fixed_size_binary(kind))


def keeps_values(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a safe cast to the other type, of the same kind of values, either keeps each value or is refused."""
    of = pa.types
    if kind.equals(other) or of.is_null(kind):
        return True
    lists = [of.is_list(each) or of.is_large_list(each) for each in (kind, other)]
    if of.is_dictionary(kind) or of.is_dictionary(other) or all(lists):
        return keeps_values(getattr(kind, "value_type", kind), getattr(other, "value_type", other))
    if of.is_struct(kind) and of.is_struct(other):
        parts = [pa.schema([each.field(at) for at in range(each.num_fields)]) for each in (kind, other)]
        return parts[0].names == parts[1].names and all(map(keeps_values, *(each.types for each in parts)))
    if of.is_timestamp(other):
        return bool(of.is_date(kind) or (of.is_timestamp(kind) and _zone(kind) == _zone(other)))
    if of.is_floating(other):
        return bool(of.is_integer(kind) or (of.is_floating(kind) and kind.bit_width <= other.bit_width))
    of_one_kind = (of.is_integer, of.is_decimal, of.is_time, of.is_duration, is_text, is_bytes)
    return any(is_one(kind) and is_one(other) for is_one in of_one_kind)


def are_one_key(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether equal keys of both types go to one partition, and are found as one key."""
    of = pa.types
    if of.is_null(kind) or of.is_null(other) or (of.is_floating(kind) and of.is_floating(other)):
        return True
    if of.is_decimal(kind) and of.is_decimal(other):
        return bool(kind.scale == other.scale)
    if of.is_time(kind) or of.is_duration(kind):
        return bool(kind.equals(other))
    return keeps_values(kind, other) and keeps_values(other, kind)


def require_one_key(kinds: pa.Schema, others: pa.Schema, names: Iterable[str]) -> None:
    """ColumnError for a key column of two types that are not one key."""
    for name in names:
        kind, other = kinds.field(name).type, others.field(name).type
        if not are_one_key(kind, other):
            raise ColumnError(
                f"key column {name!r} holds {kind} in some rows and {other} in others; CAST it in a Map"
            )


def typed(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """The table with these columns as these types.  ColumnError for values that are none of the type."""
    for name, kind in types.items():
        at = table.column_names.index(name)
        held = table.column(at)
        if held.type.equals(kind):
            continue
        wrong = f"column {name!r} holds {held.type}, and is to be {kind}"
        if not keeps_values(held.type, kind):
            raise ColumnError(f"{wrong}, which would change values; cast it before")
        try:
            table = table.set_column(at, name, held.cast(kind))
        except pa.ArrowException:
            value = first_wrong(held, methodcaller("cast", kind)).as_py()
            raise ColumnError(f"{wrong}, which does not hold {value!r}") from None
    return table


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, as it has them.  ColumnError: one is missing, or a value would change."""
    if table.schema.equals(schema):
        return table
    return typed(select(table, schema.names), {field.name: field.type for field in schema}).cast(schema)


def _zone(kind: pa.DataType) -> str | None:
    return "UTC" if kind.tz in ("UTC", "Etc/UTC", "+00:00") else kind.tz


def one_form(table: pa.Table, keys: Iterable[str]) -> pa.Table:
    """The table with equal bits in equal keys: NaN has many forms (x86 computes 0/0 with another sign than the constant
    has), zero has two, and categories of data frames are a dictionary of numbers.  ColumnError: a key is missing."""
    for name in keys:
        held = column(table, name)
        array = plain(held)
        if pa.types.is_floating(array.type):
            wide = array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
            nan, zero = pa.array([np.nan, 0.0]).cast(array.type)
            array = pc.if_else(pc.equal(wide, 0.0), zero, pc.if_else(pc.is_nan(wide), nan, array))
        if array is not held:
            table = table.set_column(table.column_names.index(name), name, array)
    return table


def inbox_table(inbox: Inbox, operator: str | None = None, keys: Iterable[str] = ()) -> pa.Table | None:
    """The inbox's rows in order (of one upstream, or of all), in canonical types and with one form of each key; None when
    there are none.

    A column that some upstreams do not send is null in their rows.  ColumnError for one that has another type.
    """
    tables = [canonical(i.table) for i in inbox.inputs if operator in (None, i.operator) and i.table.num_rows]
    if len(tables) <= 1:
        return one_form(tables[0], keys) if tables else None
    return one_form(together(tables, "inputs have different columns"), keys)


def together(tables: Sequence[pa.Table], what: str) -> pa.Table:
    """The rows one after the other; a column that a table lacks is null in its rows.  ColumnError, which begins with `what`:
    a column has two types."""
    try:
        return pa.concat_tables(tables, promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        fields = [field for table in tables for field in table.schema if not pa.types.is_null(field.type)]
    for field in fields:
        other = next((f.type for f in fields if f.name == field.name and not f.type.equals(field.type)), None)
        if other is not None:
            raise ColumnError(
                f"{what}: column {field.name!r} holds {field.type} in some rows and {other} in others; CAST it in a Map"
            )
    raise ColumnError(f"{what}: two columns of one table have one name; rename one")


def without_nulls(table: pa.Table | None, keys: Iterable[str]) -> pa.Table | None:
    """The rows that have all of these columns; None where there are none."""
    if table is None:
        return None
    for name in keys:
        if (values := column(table, name)).null_count:
            table = table.filter(values.is_valid())
    return table if table.num_rows else None


def in_time(table: pa.Table | None, name: str, closed: int | None) -> tuple[pa.Table | None, int]:
    """The rows that are not before a time, by their time column, and how many others there are.  None where there are none,
    or where there were none."""
    if table is None or closed is None:
        return table, 0
    keep = times(table, name) >= closed
    late = int(len(keep) - np.count_nonzero(keep))
    if not late:
        return table, 0
    return (table.filter(pa.array(keep)) if late < len(keep) else None), late


def rows(columns: dict[str, Any]) -> pa.Table | None:
    """A table of named arrays; None when it would have no rows."""
    table = pa.table(columns)
    return table if table.num_rows else None


def concat(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    """The rows of several outputs one after the other; None when there are none.  ColumnError when their columns
    differ; one of nulls alone takes the type of the others."""
    some = [t for t in tables if t is not None and t.num_rows]
    if len(some) <= 1:
        return some[0] if some else None
    names = some[0].column_names
    if other := next((t.column_names for t in some if t.column_names != names), None):
        raise ColumnError(f"columns changed between batches: from {names} to {other}")
    return together(some, "columns changed between batches").combine_chunks()


def later(before: int | None, now: int) -> int:
    """The later of two event times, the first of which may not be known yet."""
    return now if before is None else max(before, now)


def one_row(table: pa.Table) -> dict[str, Any]:
    """The single row of a table as Python values."""
    (row,) = table.to_pylist()
    return dict(row)


def split_rows(table: pa.Table, sizes: Sequence[int]) -> list[pa.Table]:
    """Consecutive slices of a table with the given numbers of rows."""
    ends = np.cumsum([0, *sizes])
    return [table.slice(int(start), size) for start, size in zip(ends, sizes, strict=False)]

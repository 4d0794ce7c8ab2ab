"""Which partition of the downstream operator gets which rows of an output table.

Problem: a replayed batch must reach the same partitions with the same rows in the same order, on any machine,
process and library version; so the hash is our own (crc32 for bytes, splitmix64 for numbers) and not
Python's, Arrow's or polars'. Invariant: the tables of a split, put together, hold the rows of the input, each
once, in input order within each target; rows with equal keys go to one target, whatever the width of an
integer or the encoding of a string.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.errors import DataPlaneError
from reprise.spark_jobs.topology.resource import Grouping, Mode

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_GAMMA, _MIX1, _MIX2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)


class RoutingError(DataPlaneError):
    """Rows that cannot be routed: a key column is missing or of a type that has no hash."""


def route(table: pa.Table, grouping: Grouping, parallelism: int, index: int) -> dict[int, pa.Table]:
    """Rows by target index for one edge; `index` is that of the sending partition.  Targets without rows are
    left out."""
    if table.num_rows == 0:
        return {}
    match grouping.mode:
        case Mode.SINGLE:
            return {0: table}
        case Mode.FORWARD:
            return {index: table}
        case Mode.BROADCAST:
            return dict.fromkeys(range(parallelism), table)
        case Mode.KEYS:
            return split(table, grouping.by, parallelism)


def split(table: pa.Table, by: Sequence[str], parallelism: int) -> dict[int, pa.Table]:
    """Rows by target index, 0 <= index < parallelism, for a grouping by key columns; row order is kept.

    RoutingError when a column of `by` is missing or holds nested values.
    """
    if table.num_rows == 0:
        return {}
    if parallelism == 1:
        _require(table, by)
        return {0: table}
    targets = (hash_rows(table, by) % np.uint64(parallelism)).astype(np.uint16)
    counts = np.bincount(targets, minlength=parallelism)
    if np.count_nonzero(counts) == 1:
        return {int(targets[0]): table}
    # uint16 keys make the stable sort a radix sort; one take, then slices that share its buffers.
    ordered = table.combine_chunks().take(pa.array(np.argsort(targets, kind="stable")))
    ends = np.cumsum(counts)
    return {
        target: ordered.slice(int(ends[target] - counts[target]), int(counts[target]))
        for target in range(parallelism)
        if counts[target]
    }


def hash_rows(table: pa.Table, by: Sequence[str]) -> Hashes:
    """A stable 64-bit hash a row over the columns `by`; the order of the columns counts."""
    _require(table, by)
    total: Hashes = np.zeros(table.num_rows, dtype=np.uint64)
    for name in by:
        total = _splitmix64(total * np.uint64(31) + _hash_column(name, table.column(name).combine_chunks()))
    return total


def _require(table: pa.Table, by: Sequence[str]) -> None:
    for name in by:
        if name not in table.column_names:
            raise RoutingError(
                f"key column {name!r} is not in the output; its columns are {table.column_names}"
            )


def _splitmix64(x: Hashes) -> Hashes:
    x = x + _GAMMA
    x = (x ^ (x >> _SHIFTS[0])) * _MIX1
    x = (x ^ (x >> _SHIFTS[1])) * _MIX2
    return x ^ (x >> _SHIFTS[2])


def _hash_column(name: str, column: pa.Array) -> Hashes:
    if isinstance(column, pa.ChunkedArray):  # combine_chunks of no chunk
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    kind = column.type
    if isinstance(column, pa.DictionaryArray):
        return _hash_dictionary(name, column)
    if _is_bytes(kind):
        return _hash_dictionary(name, column.dictionary_encode())
    if pa.types.is_decimal(kind):
        return _hash_dictionary(name, column.cast(pa.string()).dictionary_encode())
    numbers = _as_integers(name, column)
    hashes = _splitmix64(numbers.view(np.uint64))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (
        "is_string",
        "is_large_string",
        "is_string_view",
        "is_binary",
        "is_large_binary",
        "is_fixed_size_binary",
    )
    return any(getattr(pa.types, test)(kind) for test in tests)


def _hash_dictionary(name: str, column: pa.DictionaryArray) -> Hashes:
    values = column.dictionary
    if _is_bytes(values.type):
        raw = values.cast(pa.binary()).fill_null(b"").to_pylist()
        crc = np.fromiter(map(zlib.crc32, raw), dtype=np.uint64, count=len(raw))
        of_value = _splitmix64(crc)
        if values.null_count:
            of_value[values.is_null().to_numpy(zero_copy_only=False)] = _NULL
    else:
        of_value = _hash_column(name, values)
    # One more entry for rows that are null.
    of_value = np.append(of_value, _NULL)
    indices = column.indices.cast(pa.int64()).fill_null(len(of_value) - 1)
    hashes: Hashes = of_value[indices.to_numpy(zero_copy_only=False)]
    return hashes


def _as_integers(name: str, column: pa.Array) -> npt.NDArray[np.int64]:
    kind = column.type
    if pa.types.is_floating(kind):
        floats = (
            column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        )  # -0.0 becomes 0.0
        return np.where(np.isnan(floats), np.nan, floats).view(np.int64)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_timestamp(kind):
        # One unit and one zone: equal instants hash alike; finer parts do not take part.
        column = column.cast(pa.timestamp("us", tz=kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_null(kind):
        return np.zeros(len(column), dtype=np.int64)
    if not pa.types.is_integer(column.type):
        raise RoutingError(
            f"cannot group by column {name!r}: it holds {kind}; use strings, numbers, times or booleans"
        )
    filled = pc.fill_null(column, 0)
    if pa.types.is_uint64(column.type):
        return _numpy(filled).view(np.int64)
    return _numpy(filled.cast(pa.int64()))


def _numpy(column: pa.Array) -> npt.NDArray[np.int64]:
    array: npt.NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return array

"""Output that is stored with the state of the partition that made it, for targets that have not stored what it led to.

A partition that stores itself by its own clock may be stored further than those that read it.  What they still need of it is
then in its snapshot, as it is in its buffers: encoded once, and not decoded here.  Invariant: what a snapshot says of a
channel is what is there, without a gap up to the snapshot's position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import pyarrow as pa

from reprise.spark_jobs.node.buffers import EdgeBuffer

CHANNELS = "runtime/channels"
"""The checkpointed table that holds the output of all channels."""


class Row(NamedTuple):
    """Output of one batch for one target, encoded."""

    target: str
    batch: int
    watermark: int | None
    body: bytes
    header: bytes = b""


_FIELDS = [
    pa.field("target", pa.string()),
    pa.field("batch", pa.int64()),
    pa.field("watermark", pa.int64()),
    pa.field("body", pa.large_binary()),
]
SCHEMA = pa.schema(_FIELDS)
HEADER = "header"
"""Its column of what messages say beside rows, where they say anything."""
WITH_HEADERS = pa.schema([*_FIELDS, pa.field(HEADER, pa.dictionary(pa.int32(), pa.large_binary()))])
"""A batch says the same to all targets, so a header is stored once.  Snapshots of before have it as `pa.large_binary()`."""


def held(buffer: EdgeBuffer, first: int, last: int) -> list[Row]:
    """Output of batches first <= b <= last, oldest first; where one is not here, only what follows it.

    LostOutputError: what was spilled is gone.  OSError: it cannot be read now.
    """
    begin = last + 1
    while begin > first and begin - 1 in buffer.entries:
        begin -= 1
    batches, entries = range(begin, last + 1), buffer.entries
    return [Row(buffer.target, b, entries[b].watermark, buffer.body(b), entries[b].header) for b in batches]


def table_of(rows: Sequence[Row]) -> pa.Table:
    """The form in which a snapshot holds them."""
    columns = [[getattr(row, field.name) for row in rows] for field in _FIELDS]
    table = pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )
    if not any(row.header for row in rows):
        return table
    numbers: dict[bytes, int] = {}
    chosen = [numbers.setdefault(row.header, len(numbers)) for row in rows]
    header = pa.DictionaryArray.from_arrays(
        pa.array(chosen, pa.int32()), pa.array(list(numbers), pa.large_binary())
    )
    return table.append_column(WITH_HEADERS.field(HEADER), header)


def put_back(buffers: Mapping[str, EdgeBuffer], table: pa.Table) -> None:
    """Give buffers that were just made what a snapshot has of their channels.  A buffer takes it also on a full node: what
    has to be sent cannot be made again."""
    columns = [table[field.name].to_pylist() for field in _FIELDS]
    headers = _headers(table[HEADER]) if HEADER in table.schema.names else [b""] * table.num_rows
    for target, batch, watermark, body, header in zip(*columns, headers, strict=True):
        if (buffer := buffers.get(target)) is None:
            continue  # it is not read by this operator any more
        buffer.floor, buffer.cursor = min(buffer.floor, batch), min(buffer.cursor, batch)
        buffer.put(batch, watermark, body, force=True, header=header)


def _headers(column: pa.ChunkedArray) -> list[bytes]:
    """What each row says; rows that say the same share one object."""
    if not pa.types.is_dictionary(column.type):
        known: dict[bytes, bytes] = {}
        return [known.setdefault(header, header) for chunk in column.chunks for header in chunk.to_pylist()]
    found: list[bytes] = []
    for chunk in column.chunks:
        coded = cast(pa.DictionaryArray, chunk)
        said = coded.dictionary.to_pylist()
        found += [said[k] for k in coded.indices.to_pylist()]
    return found

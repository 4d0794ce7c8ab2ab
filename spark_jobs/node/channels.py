"""Output that is stored with the state of the partition that made it, for targets that have not stored what it led to.

A partition that stores itself by its own clock may be stored further than those that read it.  What they still need of it is
then in its snapshot, as it is in its buffers: encoded once, and not decoded here.  Invariant: what a snapshot says of a
channel is what is there, without a gap up to the snapshot's position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
WITH_HEADERS = pa.schema([*_FIELDS, pa.field("header", pa.large_binary())])


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
    schema = WITH_HEADERS if any(row.header for row in rows) else SCHEMA
    columns = [[getattr(row, name) for row in rows] for name in schema.names]
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )


def put_back(buffers: Mapping[str, EdgeBuffer], table: pa.Table) -> None:
    """Give buffers that were just made what a snapshot has of their channels.  A buffer takes it also on a full node: what
    has to be sent cannot be made again."""
    for target, batch, watermark, body, *header in zip(
        *(column.to_pylist() for column in table.columns), strict=True
    ):
        if (buffer := buffers.get(target)) is None:
            continue  # it is not read by this operator any more
        buffer.floor, buffer.cursor = min(buffer.floor, batch), min(buffer.cursor, batch)
        buffer.put(batch, watermark, body, force=True, header=b"".join(header))

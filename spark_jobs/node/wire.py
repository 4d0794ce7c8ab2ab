"""Messages between partitions, and the bundles in which Spark's shuffle carries them from slot to slot.

A message is everything one partition sends another in one batch: an Arrow table (or no rows) and the watermark that rides on
the batch's barrier.  A message without rows is still sent: it is the barrier.  A bundle is one slot's messages for another
slot in one stage: a JSON header with lengths, then Arrow IPC streams; nothing in it is pickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.errors import WireError

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Message:
    """What partition `source` sends partition `target` for `batch`; `table` None means the barrier alone."""

    source: str
    target: str
    batch: int
    watermark: int | None
    table: pa.Table | None


def encode_table(table: pa.Table | None) -> bytes:
    """An Arrow IPC stream; empty bytes for no rows."""
    if table is None or table.num_rows == 0:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def decode_table(data: bytes | memoryview) -> pa.Table | None:
    """The inverse of `encode_table`."""
    if len(data) == 0:
        return None
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def pack(messages: Iterable[tuple[Message, bytes]]) -> bytes:
    """One bundle out of messages with their already encoded tables."""
    header: list[list[Any]] = []
    bodies: list[bytes] = []
    for message, body in messages:
        header.append([message.source, message.target, message.batch, message.watermark, len(body)])
        bodies.append(body)
    head = json.dumps(header, separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *bodies])


def unpack(bundle: bytes) -> Iterator[Message]:
    """The messages of a bundle.  Raises WireError for bytes that are not one."""
    try:
        (size,) = _LENGTH.unpack_from(bundle)
        header = json.loads(bundle[_LENGTH.size : _LENGTH.size + size])
        if not isinstance(header, list):
            raise ValueError("its header is no list")
        view, at = memoryview(bundle), _LENGTH.size + size
        lengths = [length for *_, length in header]
        if min(lengths, default=0) < 0 or at + sum(lengths) != len(bundle):
            # A table that was cut off reads as one with fewer rows, or as a barrier without any.
            raise ValueError(f"{len(bundle)} bytes where {at + sum(lengths)} were packed")
        for source, target, batch, watermark, length in header:
            yield Message(source, target, batch, watermark, decode_table(view[at : at + length]))
            at += length
    except (struct.error, ValueError, TypeError, LookupError, OSError, pa.ArrowNotImplementedError) as error:
        raise WireError(f"not a message bundle: {error}") from error

"""Messages between partitions, and the bundles in which Spark's shuffle carries them from slot to slot.

A message is everything one partition sends another in one batch: an Arrow table (or no rows) and the watermark that rides on
the batch's barrier.  A message without rows is still sent: it is the barrier.  A bundle is one slot's messages for another
slot in one stage: a JSON header with lengths, then Arrow IPC streams; nothing in it is pickled.  The header says what
messages have in common once: by edge of operators, then by what one partition of the first sends in one batch.  So where
two nodes have many partitions of an operator, most of a barrier is one number a target.  What communication-induced
checkpoints say with a message is the same for all that one partition sends in one batch, and so is packed once for them.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from reprise.spark_jobs.arrow_stream import from_stream, to_stream
from reprise.spark_jobs.errors import WireError

_FRAME = struct.Struct(">II")
"""Length and CRC-32 of the header: a number in it that is another one would be a barrier for somebody else."""


@dataclass(frozen=True, slots=True)
class Message:
    """What partition `source` sends partition `target` for `batch`; `table` None means the barrier alone."""

    source: str
    target: str
    batch: int
    watermark: int | None
    table: pa.Table | None
    header: bytes = b""
    """What communication-induced checkpoints say with it (`reprise.spark_jobs.node.induced`); else nothing."""


HeaderKey = tuple[str, str, int]


def header_key(message: Message) -> HeaderKey:
    """Messages in one bundle of which this is the same have one header together."""
    return message.source, message.target.rpartition(".")[0], message.batch


def encode_table(table: pa.Table | None) -> bytes:
    """An Arrow IPC stream; empty bytes for no rows."""
    if table is None or table.num_rows == 0:
        return b""
    return bytes(to_stream(table.combine_chunks()))


def decode_table(data: bytes | memoryview) -> pa.Table | None:
    """The inverse of `encode_table`."""
    return from_stream(data) if len(data) else None


def pack(messages: Iterable[tuple[Message, bytes]]) -> bytes:
    """One bundle out of messages with their already encoded tables."""
    edges: dict[tuple[str, str], dict[tuple[str, int, int | None, bytes], list[tuple[int, bytes]]]] = {}
    for message, body in messages:
        (origin, _, source), (reader, _, target) = (
            message.source.rpartition("."),
            message.target.rpartition("."),
        )
        sent = edges.setdefault((origin, reader), {})
        key = (source, message.batch, message.watermark, message.header)
        sent.setdefault(key, []).append((int(target), body))
    header = [
        [
            *edge,
            [
                [
                    int(source),
                    batch,
                    watermark,
                    [[t, len(b)] if b else t for t, b in to],
                    *([len(h)] if h else []),
                ]
                for (source, batch, watermark, h), to in sent.items()
            ],
        ]
        for edge, sent in edges.items()
    ]
    head = json.dumps(header, separators=(",", ":")).encode()
    parts = [_FRAME.pack(len(head), zlib.crc32(head)), head]
    for sent in edges.values():
        for (*_, said), to in sent.items():
            parts += [said, *(body for _, body in to)]
    return b"".join(parts)


def unpack(bundle: bytes) -> Iterator[Message]:
    """The messages of a bundle.  Raises WireError for bytes that are not one."""
    try:
        size, check = _FRAME.unpack_from(bundle)
        head = bundle[_FRAME.size : _FRAME.size + size]
        if zlib.crc32(head) != check:
            raise ValueError("its header is damaged")
        header = json.loads(head)
        if not isinstance(header, list):
            raise ValueError("its header is no list")
        view, at = memoryview(bundle), _FRAME.size + size
        groups = list(_groups(header))
        lengths = [
            length for group in groups for length in (group.said, *(size for _, size in group.targets))
        ]
        if min(lengths, default=0) < 0 or at + sum(lengths) != len(bundle):
            # A table that was cut off reads as one with fewer rows, or as a barrier without any.
            raise ValueError(f"{len(bundle)} bytes where {at + sum(lengths)} were packed")
        for source, batch, watermark, said, targets in groups:
            header, at = bundle[at : at + said], at + said
            for target, length in targets:
                yield Message(source, target, batch, watermark, decode_table(view[at : at + length]), header)
                at += length
    except (struct.error, ValueError, TypeError, LookupError, OSError, pa.ArrowNotImplementedError) as error:
        raise WireError(f"not a message bundle: {error}") from error


class _Group(NamedTuple):
    """What a partition sends in a batch to those of one operator on a slot."""

    source: str
    batch: int
    watermark: int | None
    said: int
    """Bytes of the header of these messages."""
    targets: list[tuple[str, int]]
    """With the bytes of the table of each."""


def _groups(header: list[Any]) -> Iterator[_Group]:
    for origin, reader, sent in header:
        for source, batch, watermark, to, *said in sent:
            found = ((x, 0) if isinstance(x, int) else x for x in to)
            targets = [(f"{reader}.{target}", length) for target, length in found]
            yield _Group(f"{origin}.{source}", batch, watermark, sum(said), targets)

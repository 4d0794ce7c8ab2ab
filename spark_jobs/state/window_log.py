"""The log of a partition that is stored slot by slot: what was stored of each slot, when slots closed, and what was given.

A **slot** is a part of a state that changes on its own: a key, or a key in a window.  Its **footprint** is its state after
some batch.  The log holds footprints and closings in the order of batches; `reprise.spark_jobs.state.footprints` says
which are written, and what a recovery makes of them.

A log is a row of segments, each a file that is written once.  A segment is a row of records: length, kind, batch and CRC-32
before the body, the length once more behind it, so that it is read from its end backwards.  `end` closes a batch:
a batch without an intact `end` does not exist, so whatever is cut off the tail of a segment, what stays is whole batches.
The last record of a segment is its index, from batches to offsets; where it is missing it is made again by reading all.
`begin` says the version of what is in the records.

Source: Z. Sebepou, K. Magoutis, "CEC: Continuous Eventual Checkpointing for Data Stream Processing Operators", sections
II-B and IX.  It departs: there each tuple has its record; here a record holds the slots of one batch as one Arrow table,
as a batch is atomic.  There the index is a database beside the log.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from reprise.spark_jobs.errors import NewerVersionError

_HEAD = struct.Struct(">IBQI")
"""Bytes of the body, kind, batch, CRC-32 of kind, batch and body."""
_TAIL = struct.Struct(">I")
"""Bytes of the body once more."""
_CHECKED = struct.Struct(">BQ")
_AROUND = _HEAD.size + _TAIL.size


class RecordKind(IntEnum):
    """What a record holds."""

    BEGIN = 1  # JSON: the version, and the columns that name a slot, in this order
    CLOSED = 2  # a table of slots that closed in this batch
    OPEN = 3  # a table of slots that opened in this batch and are open after it, with their state
    CHECK = 4  # a table of slots that opened earlier, with their state after this batch
    OUTPUT = 5  # a table of what was given up to this batch and its readers may still ask for
    END = 6  # JSON: what the batch left beside slots, and how many are open
    INDEX = 7  # JSON: batch -> offset behind its END


class Record(NamedTuple):
    """One record; `batch` is that after which it was written."""

    kind: RecordKind
    batch: int
    body: bytes


@dataclass(frozen=True, slots=True)
class End:
    """What `end` says of a batch: how many slots are open, the watermark, and what the operator has beside its slots."""

    open_slots: int
    watermark: int | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    """Of accumulators: a slot that has closed may have set one, and no footprint says so."""

    def encode(self) -> bytes:
        """JSON bytes."""
        said = [self.open_slots, self.watermark, dict(self.rest), dict(self.types)]
        return json.dumps(said, separators=(",", ":")).encode()

    @staticmethod
    def decode(body: bytes) -> End:
        """The inverse of `encode`."""
        count, watermark, rest, types = json.loads(body)
        return End(int(count), watermark, rest, types)


LOG_VERSION = 1


def begin(columns: Sequence[str]) -> bytes:
    """The body of a `begin`: these columns name a slot."""
    return json.dumps({"version": LOG_VERSION, "columns": list(columns)}).encode()


def columns_of(body: bytes) -> tuple[str, ...]:
    """The inverse.  NewerVersionError: the segment says what this version does not know."""
    said = json.loads(body)
    if (version := int(said["version"])) > LOG_VERSION:
        raise NewerVersionError(
            f"a segment has version {version}; this Reprise reads versions up to {LOG_VERSION}: it was written by a newer "
            "version"
        )
    return tuple(said["columns"])


MOST = 2**32 - 1
"""Bytes of a record's body."""


def encode_record(record: Record) -> bytes:
    """The bytes of a record in a segment.  ValueError: its body is larger than lengths can say."""
    kind, batch, body = record
    if len(body) > MOST:
        raise ValueError(
            f"a record of {len(body):,} bytes ({kind.name}, batch {batch}) is larger than {MOST:,}"
        )
    head = _HEAD.pack(len(body), kind, batch, _check(kind, batch, body))
    return b"".join((head, body, _TAIL.pack(len(body))))


def encode_segment(records: list[Record]) -> bytes:
    """The bytes of a segment of these records, which end with an `end`, and its index."""
    pieces, ends, at = list[bytes](), list[tuple[int, int]](), 0
    for record in records:
        pieces.append(encode_record(record))
        at += len(pieces[-1])
        if record.kind is RecordKind.END:
            ends.append((record.batch, at))
    index = json.dumps(ends, separators=(",", ":")).encode()
    return b"".join((*pieces, encode_record(Record(RecordKind.INDEX, ends[-1][0], index))))


def _check(kind: int, batch: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(_CHECKED.pack(kind, batch)))


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes of a segment, which may be cut off at its end; `ends`: batch -> offset behind its intact `end`."""

    data: bytes
    ends: Mapping[int, int]
    whole: bool
    """Whether its index is there, so that nothing was cut off."""

    @staticmethod
    def read(data: bytes) -> Segment:
        """What bytes hold, from the index or, where that is not intact, by reading all up to the first broken record."""
        index = _record_before(data, len(data))
        if index is not None and index.kind is RecordKind.INDEX:
            return Segment(data, {int(batch): int(at) for batch, at in json.loads(index.body)}, True)
        ends, at = dict[int, int](), 0
        while (found := _record_at(data, at)) is not None:
            at += _AROUND + len(found.body)
            if found.kind is RecordKind.END:
                ends[found.batch] = at
        return Segment(data, ends, False)

    @property
    def last(self) -> int | None:
        """The newest batch that exists; None: there is none."""
        return max(self.ends, default=None)

    def backwards(self, upto: int) -> Iterator[Record]:
        """Records up to the newest `end` at or before batch `upto`, newest first.  ValueError: one is damaged."""
        at = max((offset for batch, offset in self.ends.items() if batch <= upto), default=0)
        while at > 0:
            found = _record_before(self.data, at)
            if found is None:
                raise ValueError(f"the record that ends at byte {at} is damaged")
            at -= _AROUND + len(found.body)
            yield found


def _record_at(data: bytes, at: int) -> Record | None:
    """The record that begins there; None where none is intact."""
    if at + _AROUND > len(data):
        return None
    size, kind, batch, check = _HEAD.unpack_from(data, at)
    end = at + _HEAD.size + size
    if end + _TAIL.size > len(data) or _TAIL.unpack_from(data, end)[0] != size:
        return None
    body = data[at + _HEAD.size : end]
    if kind not in frozenset(RecordKind) or _check(kind, batch, body) != check:
        return None
    return Record(RecordKind(kind), batch, body)


def _record_before(data: bytes, at: int) -> Record | None:
    """The record that ends there; None where none is intact."""
    if at < _AROUND:
        return None
    begin = at - _AROUND - int(_TAIL.unpack_from(data, at - _TAIL.size)[0])
    found = _record_at(data, begin) if begin >= 0 else None
    return found if found is not None and begin + _AROUND + len(found.body) == at else None

"""What a partition sends to its passive standby: how its state, and the output that it keeps, differ from what is there.

A delta says of which position it is and what it was made against, its base.  Where an operator offers its state in pages
(`reprise.spark_jobs.pages`) only those go that are not as they were at the base; other tables go whole.  Output goes as it
was encoded for its targets, of the batches behind the base.  The base is always a position that the standby is known to
have, so a delta that is lost, or comes twice, needs nothing undone: what it held is in the next one, too.

A delta travels as a message of the partition to itself: an Arrow table of one column, whose first row is a checksum and
a description in JSON, and whose other rows are the bytes that it speaks of.  Nothing in it is pickled.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.arrow_stream import from_stream, to_stream
from reprise.spark_jobs.errors import DataPlaneError, WireError
from reprise.spark_jobs.pages import Frozen, Ints, Parts, StoredPages, assembled, pieces

MOST_BYTES = 256 * 2**20
"""A delta that is larger is not sent: it travels as one message, and Spark holds that in memory more than once."""

_COLUMN = "bytes"


class DeltaTooLargeError(DataPlaneError):
    """A delta has more bytes than a message may have."""


class Entry(NamedTuple):
    """Output of one batch for one target, encoded; empty bytes: no rows."""

    batch: int
    watermark: int | None
    body: bytes


class Outputs(NamedTuple):
    """What a partition keeps of its output for one target: nothing before batch `floor` is there any more."""

    floor: int
    entries: Sequence[Entry]


Seen = Mapping[tuple[str, int], tuple[StoredPages, Ints]]
"""Section of a state, by table and number: the pages that it consists of, and their versions."""


@dataclass(slots=True)
class Delta:
    """`base`: the position that it was made against; None: it holds everything."""

    installation: str
    """Of the standby that it is for."""
    base: int | None
    position: int
    outputs: Mapping[str, Outputs]
    """By target."""
    tables: list[tuple[str, list[dict[str, Any]]]] | None = None
    """Descriptions of the pieces of each table, which name their bytes by number; None: there is no state."""
    blobs: list[bytes | memoryview] = field(default_factory=list)

    def encode(self) -> pa.Table:
        """The table that travels.  DeltaTooLargeError."""
        blobs = list(self.blobs)
        numbers: dict[int, int] = {}  # several targets have the same bytes
        outputs = {}
        for target, (floor, entries) in self.outputs.items():
            said = []
            for batch, watermark, body in entries:
                if id(body) not in numbers:
                    numbers[id(body)] = len(blobs)
                    blobs.append(body)
                said.append([batch, watermark, numbers[id(body)]])
            outputs[target] = [floor, said]
        if (size := sum(map(len, blobs))) > MOST_BYTES:
            raise DeltaTooLargeError(f"{size} bytes, and a message to a standby has at most {MOST_BYTES}")
        head = json.dumps(
            {
                "installation": self.installation,
                "base": self.base,
                "position": self.position,
                "tables": self.tables,
                "outputs": outputs,
            }
        ).encode()
        check = _check([head, *blobs]).to_bytes(4, "big")
        rows = pa.array([check + head, *(bytes(blob) for blob in blobs)], pa.large_binary())
        return pa.table({_COLUMN: rows})

    @staticmethod
    def decode(table: pa.Table | None) -> Delta:
        """The inverse of `encode`.  WireError: it is none, or some of it is not as it was sent."""
        try:
            if table is None:
                raise ValueError("it has no rows")
            first, *blobs = table[_COLUMN].to_pylist()
            if int.from_bytes(first[:4], "big") != _check([first[4:], *blobs]):
                raise ValueError("it does not have its checksum")
            raw = json.loads(first[4:])
            outputs = {
                target: Outputs(floor, [Entry(batch, mark, blobs[at]) for batch, mark, at in entries])
                for target, (floor, entries) in raw["outputs"].items()
            }
            return Delta(raw["installation"], raw["base"], raw["position"], outputs, raw["tables"], blobs)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise WireError(f"not a delta: {error}") from error


def _check(parts: Sequence[bytes | memoryview]) -> int:
    found = 0
    for part in parts:
        found = zlib.crc32(part, zlib.crc32(len(part).to_bytes(8, "big"), found))
    return found


def describe(delta: Delta, parts: Parts, seen: Seen | None) -> Seen:
    """Put a frozen state into a delta: of its pages those that are not as they were `seen`; None: all.  Returns the pages as
    they are now; whatever was frozen is released."""
    now: dict[tuple[str, int], tuple[StoredPages, Ints]] = {}
    delta.tables = []
    sections = [(name, n, piece) for name, part in parts.items() for n, piece in enumerate(pieces(part))]
    described: dict[str, list[dict[str, Any]]] = {name: [] for name in parts}
    try:
        for name, number, piece in sections:
            at = len(delta.blobs)
            if not isinstance(piece, Frozen):
                delta.blobs.append(to_stream(piece))
                described[name].append({"at": at})
                continue
            before = seen.get((name, number)) if seen is not None else None
            known = np.zeros(len(piece.versions), np.bool_)
            if before is not None and before[0] is piece.stored:
                both = min(len(before[1]), len(known))
                known[:both] = piece.versions[:both] == before[1][:both]
            changed = np.flatnonzero(~known).tolist()
            delta.blobs += [piece.page(page) for page in changed]
            described[name].append(
                {"at": at, "pages": changed, "count": len(known), "section": piece.describe()}
            )
            now[name, number] = (piece.stored, piece.versions)
    finally:
        for _, _, piece in sections:
            if isinstance(piece, Frozen):
                piece.release()
    delta.tables = list(described.items())
    return now


@dataclass(slots=True)
class _Section:
    """One section of a table in pages, as a standby holds it."""

    described: Mapping[str, Any]
    pages: list[bytes]


@dataclass(slots=True)
class StateCopy:
    """The state of a partition at a position, as its standby holds it: bytes that are decoded when it is promoted."""

    position: int = -1
    """-1: nothing is here yet."""
    _tables: dict[str, list[bytes | _Section]] | None = None

    def fits(self, delta: Delta) -> bool:
        """Whether a delta brings this copy further: it holds all that differs, and is not older."""
        if delta.position < self.position:
            return False
        return delta.base is None or 0 <= delta.base <= self.position

    def take(self, delta: Delta) -> None:
        """Bring the copy to the position of a delta that fits.  WireError: pages that it builds on are not here; then
        nothing has changed."""
        if delta.tables is None:
            self.position, self._tables = delta.position, None
            return
        try:
            found = {
                name: [self._piece(delta, name, number, piece) for number, piece in enumerate(described)]
                for name, described in delta.tables
            }
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise WireError(f"a delta of batch {delta.position} does not fit: {error!r}") from error
        self.position, self._tables = delta.position, found

    def _piece(self, delta: Delta, name: str, number: int, raw: Mapping[str, Any]) -> bytes | _Section:
        at = raw["at"]
        if "section" not in raw:
            return bytes(delta.blobs[at])
        fresh = {page: bytes(delta.blobs[at + i]) for i, page in enumerate(raw["pages"])}
        old: Sequence[bytes] = ()
        if len(fresh) < raw["count"]:
            before = (self._tables or {})[name][number]
            if not isinstance(before, _Section):
                raise ValueError(f"{name} was not in pages")
            old = before.pages
        pages = [fresh[page] if page in fresh else old[page] for page in range(raw["count"])]
        return _Section(raw["section"], pages)

    @property
    def names(self) -> frozenset[str]:
        """Names of the tables of the state."""
        return frozenset(self._tables or ())

    def tables(self) -> dict[str, pa.Table] | None:
        """The state in the form that `Operator.restore` takes; None: there is none."""
        if self._tables is None:
            return None
        return {name: _whole(parts) for name, parts in self._tables.items()}

    @property
    def size(self) -> int:
        """Bytes of it."""
        every = [part for parts in (self._tables or {}).values() for part in parts]
        return sum(sum(map(len, part.pages)) if isinstance(part, _Section) else len(part) for part in every)


def _whole(parts: Sequence[bytes | _Section]) -> pa.Table:
    found = [
        assembled(part.described, part.pages) if isinstance(part, _Section) else from_stream(part)
        for part in parts
    ]
    return found[0] if len(found) == 1 else pa.concat_tables(found).combine_chunks()

"""Pages of a state: which of them changed since they were stored, and what they held when a snapshot was taken.

Problem: a state of gigabytes of which little changes between two snapshots.  Copying all of it when it is written next, and
storing all of it, costs as much as the state is large.  Here it is divided into pages of `PAGE_ROWS` rows; freezing copies a
few bytes a page, and while a snapshot is being stored the contents of a page are copied aside when it is written for the
first time ("copy on write": Kwon, Balazinska and Greenberg, "Fault-tolerant Stream Processing using a Distributed,
Replicated File System", sections 4.1 and 4.4).  They clone the page that is written and leave the old one to the
checkpoint; here the old contents are the copy, so that the arrays of an operator stay contiguous and numpy's
scatter and gather stay as fast as they are.

Each page has a version, which changes when its contents do.  A version that is stored in some file need not be stored
again: that is all that "dirty" means here.  So a snapshot that is given up, or whose storing fails, needs nothing undone.

Invariant: what a frozen section gives for a page never changes, whatever is written since, from whichever thread it is
asked for.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reprise.spark_jobs.arrow_stream import from_stream, to_stream
from reprise.spark_jobs.spill import SpillStore

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SHIFT = 10
PAGE_ROWS = 1 << SHIFT
"""Rows of a page of accumulators: 8 KiB a column, the smaller of the two sizes of Kwon et al. (section 6.1), as few keys are
touched between snapshots where pages pay at all."""
CHUNK_ROWS = 4096
"""Rows of a page of an append-only table, which is stored once when it is full: each costs a few hundred bytes more than its
rows."""

HOLD = 64
"""Pages that are put together between two looks at how much is in memory."""

ENTRY = np.dtype([("file", "<i4"), ("offset", "<i8"), ("length", "<i8"), ("crc", "<u4")])
"""Where a page is stored: the number of the file in a list beside it, bytes within, and the CRC-32 of its contents."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file that has pages: its path relative to the store, and bytes of all pages that were written to it."""

    path: str
    size: int


@dataclass(slots=True)
class StoredPages:
    """Where the contents of one section's pages were stored last.  Only the thread that stores snapshots uses it."""

    files: list[PageFile] = field(default_factory=list)
    entries: Array = field(default_factory=lambda: np.zeros(0, ENTRY))
    versions: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    encoded: int = -1
    """Position of the newest snapshot that was encoded.  In one before it that is stored later no pages are looked for: the
    newest may be complete without it, and then its file may go."""

    def known(self, versions: Ints) -> Bools:
        """Which pages are stored as they are in these versions."""
        found = np.zeros(len(versions), np.bool_)
        both = min(len(versions), len(self.versions))
        found[:both] = self.versions[:both] == versions[:both]
        return found


class Frozen(ABC):
    """One section of a frozen state: a table, or consecutive rows of one, in pages."""

    stored: StoredPages
    versions: Ints
    """Of each page."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """What `assembled` needs beside the pages, as plain JSON values."""

    @abstractmethod
    def page(self, number: int) -> bytes | memoryview:
        """The contents of a page as they were, any number of times.  LookupError: after `release`."""

    def release(self) -> None:  # noqa: B027
        """No further page is asked for."""


Part = pa.Table | Sequence[pa.Table | Frozen]
"""A table of a state: as it is, or the pieces of which it consists, one after the other."""
Parts = Mapping[str, Part]
"""The tables of a state that checkpoints store."""


def pieces(part: Part) -> Sequence[pa.Table | Frozen]:
    """What a table consists of."""
    return [part] if isinstance(part, pa.Table) else part


class PageSet:
    """The pages of named arrays, of which one thread writes the first `size` rows, and any thread reads snapshots.

    Who writes in place says so before (`touch`); who puts other arrays in the place of all of those says so as well
    (`replaced`).
    """

    __slots__ = ("_open", "_shared", "_version", "_versions", "keep", "lock", "stored")

    def __init__(self, size: int) -> None:
        self.lock = threading.Lock()
        self.keep: Callable[[bytes], bytes | memoryview] | None = None
        """Where the arrays are on disk (`reprise.spark_jobs.spill`): what puts the contents of a page there, too."""
        self._open: list[weakref.ref[FrozenColumns]] = []
        """Snapshots of the present arrays.  One that nobody holds any more needs nothing."""
        self._version = 1
        self._versions: Ints = np.zeros(0, np.int64)
        self._shared: Bools = np.zeros(0, np.bool_)
        """Pages whose contents a snapshot may need that has them nowhere else."""
        self.stored = StoredPages()
        self.extend(0, size)

    def touch(self, slots: Ints) -> None:
        """These rows are written next, in place."""
        pages = slots >> SHIFT
        self._versions[pages] = self._version
        if self._open:
            hit = np.zeros(len(self._shared), np.bool_)
            hit[pages] = True
            self._put_aside(hit)

    def extend(self, before: int, size: int) -> None:
        """There are `size` rows now, and there were `before`."""
        count = -(-size // PAGE_ROWS)
        if count > len(self._versions):
            more = max(count, 2 * len(self._versions)) - len(self._versions)
            self._versions = np.concatenate([self._versions, np.zeros(more, np.int64)])
            with self.lock:
                self._shared = np.concatenate([self._shared, np.zeros(more, np.bool_)])
        if size > before:  # also of the page that had fewer rows
            self._versions[before >> SHIFT : count] = self._version

    def replaced(self, changed: bool) -> None:
        """All rows are in other arrays from now on; snapshots keep those that were, which nobody writes any more.
        `changed`: the rows are not what they were, either."""
        with self.lock:
            self._open = []
            self._shared[:] = False
        if changed:
            self._versions[:] = self._version

    def freeze(self, columns: Mapping[str, Array], size: int) -> FrozenColumns:
        """The first `size` rows of the arrays as they are now."""
        count = -(-size // PAGE_ROWS)
        frozen = FrozenColumns(self, dict(columns), size, self._versions[:count].copy())
        with self.lock:
            self._open = [*(one for one in self._open if one() is not None), weakref.ref(frozen)]
            self._shared[:count] = True
        self._version += 1
        return frozen

    def _put_aside(self, hit: Bools) -> None:
        with self.lock:
            needing = [frozen for one in self._open if (frozen := one()) is not None]
            for number in np.flatnonzero(hit & self._shared).tolist():
                for frozen in needing:
                    frozen.put_aside(number)
                self._shared[number] = False

    def forget(self, gone: FrozenColumns) -> None:
        """A snapshot needs nothing any more.  Only under the lock."""
        self._open = [one for one in self._open if one() not in (None, gone)]
        self._shared[:] = False
        for one in self._open:
            if (frozen := one()) is not None:
                self._shared[: len(frozen.wanted)] |= frozen.wanted


class FrozenColumns(Frozen):
    """A snapshot of a `PageSet`.  A page: its rows of the first column, then those of the second, and so on."""

    def __init__(self, pages: PageSet, columns: Mapping[str, Array], size: int, versions: Ints) -> None:
        self._set, self._columns, self._size = pages, columns, size
        self._aside: dict[int, bytes | memoryview] = {}
        self.stored, self.versions = pages.stored, versions
        self.wanted: Bools = np.ones(len(versions), np.bool_)
        """Pages whose contents are in the arrays alone."""

    def describe(self) -> Mapping[str, Any]:
        columns = [[name, array.dtype.str] for name, array in self._columns.items()]
        return {"kind": "columns", "rows": self._size, "page": PAGE_ROWS, "columns": columns}

    def page(self, number: int) -> bytes | memoryview:
        with self._set.lock:
            if self._set.keep is None:
                self.put_aside(number)
            elif self.wanted[
                number
            ]:  # it is read again where it is asked for again, and takes no memory until then
                return self._contents(number)
            data = self._aside.get(number)
        if data is None:
            raise LookupError(f"page {number} of a snapshot that was released")
        return data

    def _contents(self, number: int) -> bytes:
        rows = slice(number * PAGE_ROWS, min((number + 1) * PAGE_ROWS, self._size))
        return b"".join([array[rows].data for array in self._columns.values()])

    def put_aside(self, number: int) -> None:
        """Keep a page's contents as they are, where that is not done yet.  Only under the lock of the set."""
        if number < len(self.wanted) and self.wanted[number]:
            data = self._contents(number)
            self._aside[number] = data if self._set.keep is None else self._set.keep(data)
            self.wanted[number] = False

    def release(self) -> None:
        with self._set.lock:
            self.wanted[:] = False
            self._set.forget(self)
            self._aside.clear()


class FrozenRows(Frozen):
    """The rows of a table to which rows are only ever appended.  A page: an Arrow IPC stream of its rows."""

    def __init__(self, chunks: Sequence[pa.Table], size: int, stored: StoredPages) -> None:
        self._chunks, self._size, self.stored = tuple(chunks), size, stored
        count = -(-size // CHUNK_ROWS)
        self.versions = np.minimum(np.full(count, CHUNK_ROWS), size - np.arange(count) * CHUNK_ROWS)
        """How many rows a page has: those that it has stay as they are."""

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "rows", "rows": self._size}

    def page(self, number: int) -> memoryview:
        rows = pa.concat_tables(self._chunks).slice(number * CHUNK_ROWS, CHUNK_ROWS).combine_chunks()
        return to_stream(rows)


def assembled(
    described: Mapping[str, Any], pages: Sequence[bytes | memoryview], spilled: SpillStore | None = None
) -> pa.Table:
    """The rows of a section; in files of `spilled`, where they may be larger than memory.  ValueError, KeyError: the pages
    are not those that were described."""
    if described["kind"] == "rows":
        return pa.concat_tables([from_stream(page) for page in pages])
    if described["kind"] != "columns":
        raise ValueError(f"pages of kind {described['kind']!r} are not known")
    rows, step = int(described["rows"]), int(described["page"])
    make: Callable[[int, np.dtype[Any]], Array] = np.empty if spilled is None else spilled.array
    columns = {name: make(rows, np.dtype(kind)) for name, kind in described["columns"]}
    for number, page in enumerate(pages):
        first = number * step
        count, at = min(step, rows - first), 0
        for array in columns.values():
            array[first : first + count] = np.frombuffer(page, array.dtype, count, at)
            at += count * array.itemsize
        if spilled is not None and number % HOLD == 0:
            spilled.hold()
    return pa.table(columns)

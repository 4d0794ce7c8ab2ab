"""The bytes of a state file in pages: those that changed since they were stored last, and where the others are.

Layout: a magic number, the pages and the small tables, each at a multiple of 64 bytes, an index for each section (which page
is where: file, offset, length, CRC-32), a footer in JSON, its length, and the magic number again.  File 0 of an index is
the file itself, the others are in the footer by their paths.  A page is the same bytes in memory and in the file.
Nothing in it is pickled.

Kwon, Balazinska and Greenberg ("Fault-tolerant Stream Processing using a Distributed, Replicated File System", section
4.4) write all pages of a checkpoint; that only what changed is written, and which file has the rest, is new here.
So that not ever more files are needed, pages of files of which little is still needed are written again with the next
snapshot, from memory (`_to_rewrite`).

Invariants: all pages that a file names are in files which the same installation of the partition has stored before; and
snapshots are encoded in the order of their positions.  What a driver removes relies on both
(docs/decisions/0034-states-in-pages.md).
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.arrow_stream import from_stream, to_stream
from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.errors import DataPlaneError
from reprise.spark_jobs.pages import (
    ENTRY,
    Array,
    Bools,
    Frozen,
    PageFile,
    Parts,
    assembled,
    pieces,
)
from reprise.spark_jobs.spill import SpillStore

MAGIC = b"REPRISE-PAGES-1\n"
T = TypeVar("T", bytes, memoryview)
ALIGN = 64
BUDGET = 0.25
"""Pages that are written again: so many of the bytes of a snapshot's own pages at most."""
MOST_FILES = 64
"""A state is in no more files, whatever it costs to write pages again: at most a 64th of the state with each snapshot."""
GAP = 256 * 1024
"""Pages with no more bytes between them are read at once."""


class OvertakenError(DataPlaneError):
    """A later snapshot of the same partition was encoded: this one is not needed any more."""


@dataclass(slots=True)
class PagedState:
    """A state that is to be stored as one file."""

    path: str
    position: int
    chunks: list[bytes | memoryview]
    others: tuple[str, ...]
    """Paths of the files that have its other pages."""
    state_bytes: int
    """Of all of its pages and tables."""
    own: PageFile
    sections: list[_Section]

    def is_stored(self) -> None:
        """Later snapshots of the partition need not store these pages again; unless one was encoded meanwhile."""
        for section in self.sections:
            stored = section.frozen.stored
            if stored.encoded != self.position:
                continue
            used = sorted({int(n) for n in section.entries["file"]})
            files = [*stored.files, self.own]
            renumbered = np.zeros(len(files), np.int32)
            renumbered[used] = np.arange(len(used))
            section.entries["file"] = renumbered[section.entries["file"]]
            stored.files, stored.entries = [files[n] for n in used], section.entries
            stored.versions = section.frozen.versions


class _Section:
    """One section while it is encoded.  `entries["file"]`: a number in its `stored.files`, one more: the new file."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen = frozen
        known = frozen.stored.known(frozen.versions)
        self.keeps: Bools = known
        """Pages that stay where they are."""
        self.entries: Array = np.zeros(len(known), ENTRY)
        self.entries[known] = frozen.stored.entries[: len(known)][known[: len(frozen.stored.entries)]]

    def needed(self) -> dict[PageFile, int]:
        """Bytes of pages that stay, by file."""
        files, kept = self.frozen.stored.files, self.entries[self.keeps]
        sums = np.bincount(kept["file"], weights=kept["length"], minlength=len(files)).tolist()
        return {file: int(size) for file, size in zip(files, sums, strict=True) if size}

    def of(self, file: PageFile) -> Array:
        """Numbers of the pages that stay in a file."""
        number = self.frozen.stored.files.index(file)
        return np.flatnonzero(self.keeps & (self.entries["file"] == number))


def tables_alone(parts: Parts) -> Tables | None:
    """A state of which nothing is in pages; else None."""
    tables = {name: part for name, part in parts.items() if isinstance(part, pa.Table)}
    return tables if len(tables) == len(parts) else None


Keep = Callable[[bytes | memoryview], bytes | memoryview]
"""Puts bytes where they take no memory; the same bytes."""


def encode_pages(parts: Parts, path: str, position: int, keep: Keep | None = None) -> PagedState:
    """A state as the file `path`, in the order of the partition's snapshots: OvertakenError for one that comes late.
    `keep`: where the bytes of the file wait until they are stored, if not in memory."""
    sections = {
        id(piece): _Section(piece)
        for part in parts.values()
        for piece in pieces(part)
        if isinstance(piece, Frozen)
    }
    newest = max((s.frozen.stored.encoded for s in sections.values()), default=-1)
    if newest >= position:
        raise OvertakenError(f"the snapshot of batch {newest} was encoded before that of batch {position}")
    writer = _Writer(keep)
    for section in sections.values():
        writer.take(section, np.flatnonzero(~section.keeps))
    for section, numbers in _to_rewrite(list(sections.values()), int(writer.page_bytes * BUDGET)):
        section.keeps[numbers] = False
        writer.take(section, numbers)
    needed = [s.needed() for s in sections.values()]
    others = sorted({file.path for files in needed for file in files})
    footer: dict[str, Any] = {"others": others, "tables": []}
    for name, part in parts.items():
        described = [
            writer.section(sections[id(piece)], others)
            if isinstance(piece, Frozen)
            else {"kind": "table", **writer.put(to_stream(piece))}
            for piece in pieces(part)
        ]
        footer["tables"].append([name, described])
    end = json.dumps(footer).encode()
    writer.put(end)
    writer.chunks += [len(end).to_bytes(8, "little"), MAGIC]
    for section in sections.values():
        section.frozen.release()
        section.frozen.stored.encoded = position
    # Of what it was encoded against all files stay, also those that only an earlier snapshot needs: several that wait to be
    # stored may have the same base, and whichever is stored last becomes the base of the next ones.
    base = {file.path for section in sections.values() for file in section.frozen.stored.files}
    return PagedState(
        path,
        position,
        writer.chunks,
        tuple(sorted(base.union(others))),
        writer.at + sum(sum(files.values()) for files in needed),
        PageFile(path, writer.page_bytes),
        list(sections.values()),
    )


class _Writer:
    """The chunks of a file."""

    def __init__(self, keep: Keep | None) -> None:
        self._keep = keep
        self.chunks: list[bytes | memoryview] = [MAGIC]
        self.at = len(MAGIC)
        self.page_bytes = 0

    def put(self, data: bytes | memoryview) -> dict[str, int]:
        """Append bytes; where they are."""
        if gap := -self.at % ALIGN:
            self.chunks.append(bytes(gap))
        self.at += gap
        found = {"offset": self.at, "length": len(data)}
        self.chunks.append(data if self._keep is None else self._keep(data))
        self.at += len(data)
        return found

    def take(self, section: _Section, numbers: Array) -> None:
        """Append pages of a section."""
        here = len(section.frozen.stored.files)
        for number in numbers.tolist():
            data = section.frozen.page(number)
            where = self.put(data)
            section.entries[number] = (here, where["offset"], where["length"], zlib.crc32(data))
            self.page_bytes += len(data)

    def section(self, section: _Section, others: Sequence[str]) -> dict[str, Any]:
        """Append the index of a section; its description."""
        index = section.entries.copy()
        numbers = [
            *(others.index(f.path) + 1 if f.path in others else -1 for f in section.frozen.stored.files),
            0,
        ]
        index["file"] = np.array(numbers, np.int32)[section.entries["file"]]
        return {**section.frozen.describe(), "index": self.put(index.tobytes())}


def _to_rewrite(sections: Sequence[_Section], budget: int) -> list[tuple[_Section, Array]]:
    """Pages that are stored and are written again: `budget` bytes of files of which less than half is needed, those of the
    least share first, and whatever is in more than `MOST_FILES` files, those with the fewest bytes first."""
    by_section = [section.needed() for section in sections]
    needed: Counter[PageFile] = Counter()
    for files in by_section:
        needed.update(files)
    few = sorted((f for f, size in needed.items() if 2 * size < f.size), key=lambda f: needed[f] / f.size)
    crowd = set(sorted(needed, key=lambda f: needed[f])[: max(0, len(needed) - MOST_FILES + 1)])
    found = [(s, s.of(f)) for s, files in zip(sections, by_section, strict=True) for f in files if f in crowd]
    for file in few:
        for section, files in zip(sections, by_section, strict=True):
            if file in files and file not in crowd:
                numbers = section.of(file)
                sizes = np.cumsum(section.entries["length"][numbers])
                numbers = numbers[sizes <= budget]
                if len(numbers):
                    budget -= int(sizes[len(numbers) - 1])
                    found.append((section, numbers))
    return found


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Span:
    """Bytes of a file that are read at once, with the pages in them: offset in the file, length, CRC-32."""

    start: int
    end: int
    pages: list[tuple[int, int, int]]

    def whole(self, data: T) -> T:
        """The bytes; ValueError where a page is not what was stored."""
        for offset, length, crc in self.pages:
            page = memoryview(data)[offset - self.start : offset - self.start + length]
            if len(page) != length or zlib.crc32(page) != crc:
                raise ValueError(f"the page at byte {offset} does not have its checksum")
        return data


Fetch = Callable[[str, Span], bytes | memoryview]
"""Bytes of another file, found whole (`Span.whole`)."""


def decode_pages(
    data: bytes | memoryview, fetch: Fetch, spilled: SpillStore | None = None
) -> dict[str, pa.Table]:
    """The tables of a state from its file; in files of `spilled`, where they may be larger than memory.  ValueError: it is
    none, or a page of its own is damaged; what `fetch` raises."""
    footer = _footer(data)
    indexes = [
        (piece, _index(data, piece))
        for _, described in footer["tables"]
        for piece in described
        if piece["kind"] != "table"
    ]
    if spilled is not None:
        fetch = _kept(fetch, spilled)
    found = _pages(data, [index for _, index in indexes], footer["others"], fetch)
    sections = {
        id(piece): assembled(piece, pages, spilled) for (piece, _), pages in zip(indexes, found, strict=True)
    }
    tables = {}
    for name, described in footer["tables"]:
        parts = [
            from_stream(_slice(data, piece)) if piece["kind"] == "table" else sections[id(piece)]
            for piece in described
        ]
        whole = parts[0] if len(parts) == 1 else pa.concat_tables(parts)
        tables[name] = whole if len(parts) == 1 or spilled is not None else whole.combine_chunks()
    return tables


def _kept(fetch: Fetch, spilled: SpillStore) -> Fetch:
    """What is read of other files, in files of the node."""
    return lambda path, span: spilled.kept(fetch(path, span))


def _footer(data: bytes | memoryview) -> dict[str, Any]:
    end = len(data) - len(MAGIC) - 8
    if end < len(MAGIC) or data[: len(MAGIC)] != MAGIC or data[-len(MAGIC) :] != MAGIC:
        raise ValueError("it is no file of pages")
    length = int.from_bytes(data[end : end + 8], "little")
    found: dict[str, Any] = json.loads(bytes(data[end - length : end]))
    return found


def _slice(data: bytes | memoryview, where: dict[str, int]) -> memoryview:
    return memoryview(data)[where["offset"] : where["offset"] + where["length"]]


def _index(data: bytes | memoryview, piece: dict[str, Any]) -> Array:
    return np.frombuffer(_slice(data, piece["index"]), ENTRY)


def _pages(
    data: bytes | memoryview, indexes: Sequence[Array], others: Sequence[str], fetch: Fetch
) -> list[list[memoryview]]:
    """The contents of all pages of all sections."""
    every = np.concatenate([*indexes, np.zeros(0, ENTRY)])
    found: list[memoryview] = [memoryview(b"")] * len(every)
    order = np.lexsort((every["offset"], every["file"]))
    for group in np.split(order, np.flatnonzero(np.diff(every["file"][order])) + 1):
        for span, numbers in _spans(every, group.tolist()):
            file = int(every["file"][numbers[0]])
            if file == 0:
                read: bytes | memoryview = span.whole(memoryview(data)[span.start : span.end])
            else:
                read = fetch(others[file - 1], span)
            for number in numbers:
                first = int(every["offset"][number]) - span.start
                found[number] = memoryview(read)[first : first + int(every["length"][number])]
    ends = np.cumsum([0, *map(len, indexes)]).tolist()
    return [found[a:b] for a, b in pairwise(ends)]


def _spans(every: Array, numbers: Sequence[int]) -> list[tuple[Span, list[int]]]:
    """Pages of one file, sorted by offset, put together where little is between them."""
    found: list[tuple[Span, list[int]]] = []
    for number in numbers:
        _, offset, length, crc = every[number].tolist()
        if not found or offset - found[-1][0].end > GAP:
            found.append((Span(offset, offset, []), []))
        span, within = found[-1]
        span.end = max(span.end, offset + length)
        span.pages.append((offset, length, crc))
        within.append(number)
    return found

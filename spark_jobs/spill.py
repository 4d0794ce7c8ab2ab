"""States that are larger than the memory which they may take: what is hardly used of them is on the node's own disk.

Problem: accumulators and rows are arrays over which numpy and Arrow work, and a state of many gigabytes does not fit into
a node's memory.  Here such an array is put into a file of the node and mapped: it stays one array at one place, whoever
uses it notices nothing, and the kernel reads a page of it when somebody does.  What stays in memory is bounded by `hold`,
which counts the pages of all files that are there, and puts out those that nobody has used since it looked last.

How it is told what was used: `hold` goes over the files as the hand of a clock does (F. Corbato, "A Paging Experiment with
the Multics System").  Where it comes by, pages that are not mapped are dropped, and those that are mapped are unmapped; who
uses one of these again maps it again, which costs no reading.  So a page is dropped when nobody has used it between two
visits.

Invariants: a file has no name, so it ends with the process, however that ends; room on the disk is taken before anything is
written, so a full disk is an error here and never a signal in the middle of a batch; nothing is dropped that is not on the
disk; and a page that was put out is the same when it is read.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

LEAST = 1 << 20
"""Bytes of an array or table that is worth a file of its own; smaller ones stay in memory."""
BLOCK = 16 << 20
"""Bytes of a file for what is written once and soon forgotten, such as the contents of a page that a snapshot needs."""
SEGMENT = 64 << 20
"""Bytes of a file for tables, so that a state of many gigabytes has not as many files as tables."""
ALIGN = 64
"""Where Arrow wants its buffers to begin."""
STEP = 1 << 20
"""Bytes that the hand of the clock looks at together."""
ROOM = 0.75
"""Share of the limit down to which pages are dropped when there are too many, so that it is not done with each batch."""
COPY = 1 << 20
"""Bytes that are copied into a file between two looks at how much is in memory."""


class SpillFullError(OSError):
    """The node's disk, or what may be used of it, is full, or there cannot be more open files."""


class Spillable(Protocol):
    """Something of a state that can be put into files."""

    def spill(self, store: SpillStore, least: int) -> int:
        """Put what is in memory alone, in pieces of at least `least` bytes, into files; bytes that still are there.
        OSError: not all of it."""


class _File:
    """A file without a name, and all its mappings: those that a snapshot keeps may be shorter than the newest one."""

    __slots__ = ("__weakref__", "fd", "maps", "size")

    def __init__(self, fd: int) -> None:
        self.fd, self.size = fd, 0
        self.maps: list[weakref.ref[Any]] = []

    def living(self) -> list[Any]:
        """Mappings that somebody uses."""
        self.maps = [one for one in self.maps if one() is not None]
        return [found for one in self.maps if (found := one()) is not None]


_IN_NO_FILE = "what finds their keys, and what is smaller than 1 MiB, is in no file, and is more than that"
"""Without a figure that grows with them: each other text is said as another reason."""


@dataclass(slots=True)
class Seen:
    """What a store has done so far, in bytes."""

    resident: int = 0
    """Pages of files in memory, when they were counted last."""
    in_memory: int = 0
    """Of states that are in no file."""
    dropped: int = 0
    """Pages that were put out, each time."""
    problem: str = ""
    """Why not everything could be put out, where it could not."""


@dataclass(slots=True)
class _Block:
    mapped: Any
    used: int = 0


class SpillStore:
    """The files of one node.  `memory_limit`, `disk_limit`: bytes.  Any thread may use it."""

    def __init__(self, folder: Path, memory_limit: int, disk_limit: int) -> None:
        self._folder, self.memory_limit, self.disk_limit = folder, memory_limit, disk_limit
        self._lock = threading.RLock()
        self._looking = threading.Lock()
        self._files: dict[int, _File] = {}
        self._where: dict[int, tuple[int, int]] = {}
        """Where a mapping begins in memory -> its bytes, and the number of its file."""
        self._starts: list[int] | None = []
        self._made = 0
        self._blocks: dict[str, _Block] = {}
        self._segment = min(SEGMENT, max(LEAST, memory_limit))
        self._hand = (0, 0)
        """The number of a file, and bytes in it."""
        self.disk = 0
        """Bytes of all files."""
        self.seen = Seen()

    # -- what is in files ----------------------------------------------------------------------------------------------

    def array(self, rows: int, kind: npt.DTypeLike) -> Array:
        """An array of zeros in a file.  SpillFullError: there is no room for it."""
        size = rows * np.dtype(kind).itemsize
        return np.frombuffer(self._mapped(self._file(size), size), kind, rows)

    def moved(self, array: Array, rows: int | None = None) -> Array:
        """A copy of an array in a file, with room for so many `rows`.  SpillFullError: there is none."""
        found = self.array(len(array) if rows is None else rows, array.dtype)
        step = max(1, COPY // array.itemsize)
        for first in range(0, len(array), step):
            part = array[first : first + step]
            found[first : first + len(part)] = part
            self.hold()
        return found

    def longer(self, array: Array, rows: int) -> Array:
        """The array with more rows at its end, of zeros, in the same file: both look at the same memory from then on.
        SpillFullError: there is no room for it."""
        with self._lock:
            number = self._number(array.ctypes.data)
            if number is None:
                raise ValueError("the array is in no file")
            size = rows * array.itemsize
            self._grow(self._files[number], size)
            return np.frombuffer(self._mapped(number, size), array.dtype, rows)

    def table(self, table: pa.Table) -> pa.Table:
        """A copy of a table in a file, in record batches as the table has them.  SpillFullError: there is no room for it."""
        counted = pa.MockOutputStream()
        with pa.ipc.new_stream(counted, table.schema) as writer:
            writer.write_table(table)
        buffer = pa.py_buffer(self._part("tables", counted.size(), self._segment))
        with pa.ipc.new_stream(pa.FixedSizeBufferWriter(buffer), table.schema) as writer:
            writer.write_table(table)
        with pa.ipc.open_stream(buffer) as reader:
            return reader.read_all()

    def kept(self, data: bytes | memoryview) -> bytes | memoryview:
        """The same bytes in a file, if there is room, for as long as somebody holds what is returned."""
        try:
            view = self._part("bytes", len(data), BLOCK)
        except SpillFullError as error:
            self.seen.problem = str(error)
            return data
        view[:] = memoryview(data).cast("B")
        if self._blocks["bytes"].used % COPY < len(data):
            self.hold()
        return view.toreadonly()

    def _part(self, kind: str, size: int, block_size: int) -> memoryview:
        """A part of a file that has many: of one kind all are for about as long, so that no file stays for a few.
        SpillFullError: there is no room for it."""
        with self._lock:
            block = self._blocks.get(kind)
            if block is None or block.used + size > len(block.mapped):
                whole = max(block_size, size)
                block = self._blocks[kind] = _Block(self._mapped(self._file(whole), whole))
            view = memoryview(block.mapped)[block.used : block.used + size]
            block.used += -(-size // ALIGN) * ALIGN
            return view

    def room(self, size: int) -> memoryview:
        """So many bytes of a file, to be written once.  SpillFullError: there is no room for them."""
        return memoryview(self._mapped(self._file(size), size))[:size]

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Within it, whatever this thread makes of a state that was read puts itself here as it grows (`at_hand`)."""
        _HERE.store = self
        try:
            yield
        finally:
            _HERE.store = None

    def has(self, address: int) -> bool:
        """Whether what begins at this address is in a file."""
        with self._lock:
            return self._number(address) is not None

    def has_table(self, table: pa.Table) -> bool:
        """The same of a table: of its first column that has any rows in memory."""
        for column in table.columns:
            for chunk in column.chunks:
                for buffer in chunk.buffers():
                    if buffer is not None and buffer.size:
                        return self.has(buffer.address)
        return False

    # -- what stays in memory ------------------------------------------------------------------------------------------

    def resident(self) -> int:
        """Bytes of all files that are in memory now, whoever has read them."""
        with self._lock:
            self.seen.resident = sum(
                self._resident(file, 0, file.size) for file in list(self._files.values())
            )
            return self.seen.resident

    def bound(self, states: Iterable[Spillable]) -> None:
        """Bring what these states have in memory, and what is in files, within the limit: what is not in files is put there
        when it is too much together.  Where the disk is full it stays in memory, and `seen.problem` says so."""
        held = list(states)
        in_memory = sum(one.spill(self, NOTHING) for one in held)
        self.seen.problem = ""
        if in_memory + self.resident() > self.memory_limit:
            in_memory = 0
            for one in held:
                try:
                    in_memory += one.spill(self, LEAST)
                except OSError as error:
                    in_memory += one.spill(self, NOTHING)
                    self.seen.problem = str(error)
        self.seen.in_memory = in_memory
        if in_memory > self.memory_limit and not self.seen.problem:
            self.seen.problem = _IN_NO_FILE
        self.hold()

    def hold(self) -> None:
        """Drop pages until those that stay are within the limit, with what states have in memory alone."""
        if not self._looking.acquire(blocking=False):
            return  # another thread does so
        try:
            limit = max(0, self.memory_limit - self.seen.in_memory)
            if (resident := self.resident()) > limit:
                self._drop(resident, int(limit * ROOM))
        finally:
            self._looking.release()

    def _drop(self, resident: int, goal: int) -> None:
        """Three rounds: one in which all that is used is unmapped, one in which that is dropped, and what is between."""
        with self._lock:
            numbers = sorted(self._files)
            begin = bisect_right(numbers, self._hand[0] - 1)
            order = [*numbers[begin:], *numbers[:begin]] * 3
        first = self._hand[1] if order and order[0] == self._hand[0] else 0
        for number in order:
            with self._lock:
                file = self._files.get(number)
                if file is None:
                    first = 0
                    continue
                try:
                    keep, fd, size = file, os.dup(file.fd), file.size
                except OSError as error:
                    self.seen.problem = str(error)
                    return
            try:
                os.fdatasync(fd)
                for at in range(first, size, STEP):
                    length = min(STEP, size - at)
                    before = self._resident(keep, at, length)
                    if before:
                        os.posix_fadvise(fd, at, length, os.POSIX_FADV_DONTNEED)
                        freed = before - self._resident(keep, at, length)
                        for mapped in keep.living():
                            if at < len(mapped):
                                mapped.madvise(mmap.MADV_DONTNEED, at, min(length, len(mapped) - at))
                        resident -= freed
                        self.seen.dropped += freed
                        self.seen.resident = resident
                    self._hand = (number, at + length)
                    if resident <= goal:
                        return
            except OSError as error:
                self.seen.problem = str(error)
                return
            finally:
                os.close(fd)
            first = 0

    def _resident(self, file: _File, first: int, length: int) -> int:
        """Bytes of a part of a file that are in memory, by the kernel's page cache."""
        mapped = max(file.living(), key=len, default=None)
        if mapped is None:
            return 0
        length = min(length, len(mapped) - first)
        if length <= 0:
            return 0
        seen = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
        start = np.frombuffer(mapped, np.uint8, 1).ctypes.data + first
        asked = _LIBC.mincore(
            ctypes.c_void_p(start), ctypes.c_size_t(length), seen.ctypes.data_as(ctypes.c_void_p)
        )
        if asked != 0:
            raise OSError(ctypes.get_errno(), "mincore failed")
        return int(np.count_nonzero(seen & 1)) * mmap.PAGESIZE

    # -- files ---------------------------------------------------------------------------------------------------------

    def _file(self, size: int) -> int:
        """The number of a new file with so many bytes, of zeros."""
        with self._lock:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                fd, path = tempfile.mkstemp(prefix="state-", dir=self._folder)
                Path(path).unlink()
            except OSError as error:
                raise SpillFullError(error.errno, f"no file for states in {self._folder}: {error}") from error
            file = _File(fd)
            try:
                self._grow(file, size)
            except OSError:
                os.close(fd)
                raise
            self._made += 1
            self._files[self._made] = file
            return self._made

    def _grow(self, file: _File, size: int) -> None:
        size = max(mmap.PAGESIZE, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        more = size - file.size
        if more <= 0:
            return
        if self.disk + more > self.disk_limit:
            raise SpillFullError(
                f"states on the disk of this node take {self.disk} of {self.disk_limit} bytes (checkpoint.stateDisk), and "
                f"{more} more are needed"
            )
        try:
            os.posix_fallocate(file.fd, 0, size)
        except OSError as error:
            raise SpillFullError(
                error.errno, f"no room for {more} bytes of states in {self._folder}: {error}"
            ) from error
        file.size = size
        self.disk += more

    def _mapped(self, number: int, size: int) -> Any:
        """A new mapping of a file, which ends when nobody looks into it any more; with the last one ends the file."""
        with self._lock:
            file = self._files[number]
            try:
                mapped = mmap.mmap(file.fd, max(size, 1))
            except OSError as error:
                self._end(number)
                raise SpillFullError(error.errno, f"a file of states cannot be mapped: {error}") from error
            mapped.madvise(mmap.MADV_RANDOM)  # nothing is read beside what is asked for
            start = np.frombuffer(mapped, np.uint8, 1).ctypes.data
            file.maps.append(weakref.ref(mapped))
            self._where[start] = (size, number)
            self._starts = None
            weakref.finalize(mapped, self._unmapped, start, number).atexit = False
            return mapped

    def _unmapped(self, start: int, number: int) -> None:
        with self._lock:
            if self._where.get(start, (0, 0))[1] == number:
                del self._where[start]
                self._starts = None
            self._end(number)

    def _end(self, number: int) -> None:
        """Close a file that nobody looks into."""
        file = self._files.get(number)
        if file is not None and not file.living():
            del self._files[number]
            self.disk -= file.size
            os.close(file.fd)

    def _number(self, address: int) -> int | None:
        if self._starts is None:
            self._starts = sorted(self._where)
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        size, number = self._where[self._starts[at]]
        return number if address < self._starts[at] + size else None


class _Here(threading.local):
    store: SpillStore | None = None


_HERE = _Here()


def at_hand() -> SpillStore | None:
    """Where this thread puts what it makes of a state that is read, because all of it may be larger than memory; mostly
    None."""
    return _HERE.store


NOTHING = 1 << 62
"""As `least` of `Spillable.spill`: nothing is put anywhere."""
_LIBC = ctypes.CDLL(None, use_errno=True)

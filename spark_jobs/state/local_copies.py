"""Copies of state files on the node that wrote them: who goes back to a checkpoint there reads nothing from the store.

A copy counts for nothing by itself: it is handed out as the file that a checkpoint's manifest names, and only when its size
and SHA-256 are those that the manifest says.  One that is damaged or gone is forgotten, and the store is asked.  Invariants:
the copies take at most `limit` bytes of the node's disk, the oldest positions go first; and trouble with them is never
trouble of the file itself: a disk that is full costs a copy and no snapshot.

They are written without flushing: they are worth nothing after a loss of power, which ends the process that knows them.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reprise.spark_jobs.platform import write_new
from reprise.spark_jobs.state.snapshot import StateFile

log = logging.getLogger("reprise.checkpoints")


@dataclass(frozen=True, slots=True)
class _Copy:
    path: Path
    position: int


class LocalCopies:
    """The copies of one process, in a folder of its own; any thread may use them."""

    def __init__(
        self, folder: Path, write: Callable[[Path, Iterable[bytes | memoryview]], None] = write_new
    ) -> None:
        self._folder, self._write = folder, write
        self._lock = threading.Lock()
        self._copies: dict[StateFile, _Copy] = {}
        self._named: dict[str, StateFile] = {}
        self._made = 0
        self._limit = 0
        self.used = 0
        """Bytes that the copies take."""
        self.read_here = 0
        """States that were asked for and read here."""
        self.read_there = 0
        """States that were asked for and not here: they are read from the store."""

    def allow(self, limit: int) -> None:
        """Keep at most so many bytes; 0: none."""
        with self._lock:
            self._limit = limit
            self._make_room(0)

    def keep(self, file: StateFile, position: int, pieces: Sequence[bytes | memoryview]) -> None:
        """Keep a copy of a state file of a checkpoint, where there is room for it beside those that are no older.  Files of
        which it needs pages are as new as it is."""
        with self._lock:
            for other in filter(None, map(self._named.get, file.others)):
                self._copies[other] = replace(self._copies[other], position=position)
            if file.size > self._limit or file in self._copies:
                return
            self._make_room(file.size)
            self._made += 1
            path = self._folder / f"{self._made}.state"
            self.used += file.size  # until it is written, its room is taken
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._write(path, pieces)
        except OSError as error:
            log.warning("event=no-local-copy file=%s reason=%s", file.path, error)
            _remove(path)
            with self._lock:
                self.used -= file.size
            return
        with self._lock:
            self._copies[file] = _Copy(path, position)
            self._named[file.path] = file
            self._make_room(0)

    def read(self, file: StateFile) -> bytes | None:
        """The bytes that the manifest names; None: they are not here."""
        with self._lock:
            copy = self._copies.get(file)
        data = None if copy is None else _whole(copy.path, file)
        with self._lock:
            if data is not None:
                self.read_here += 1
                return data
            self.read_there += 1
            if copy is not None and self._copies.get(file) == copy:
                log.warning("event=local-copy-damaged file=%s", file.path)
                self._drop(file)
        return None

    def in_parts(self, file: StateFile, filled: Callable[[Callable[[int, int], bytes | None]], bool]) -> bool:
        """Have `filled` read a copy part by part, and say whether it is what the manifest names; False: it is not here."""
        with self._lock:
            here = file in self._copies
        if found := here and filled(lambda start, end: self.read_part(file.path, start, end)):
            self.read_here += 1
            return found
        with self._lock:
            self.read_there += 1
            if file in self._copies:
                log.warning("event=local-copy-damaged file=%s", file.path)
                self._drop(file)
        return False

    def read_named(self, path: str) -> bytes | None:
        """A whole file that a later one needs, as it was written here; None: it is not here.  It is no state of its own, and
        is not counted."""
        with self._lock:
            file = self._named.get(path)
            copy = None if file is None else self._copies.get(file)
        return None if file is None or copy is None else _whole(copy.path, file)

    def read_part(self, path: str, start: int, end: int) -> bytes | None:
        """Bytes start <= at < end of a copy, which the reader checks; None: it is not here."""
        with self._lock:
            copy = self._copies.get(self._named[path]) if path in self._named else None
        if copy is None:
            return None
        try:
            with copy.path.open("rb") as kept:
                kept.seek(start)
                return kept.read(end - start)
        except OSError:
            return None

    def forget(self, before: int) -> None:
        """No partition goes back further than to batch `before` any more."""
        with self._lock:
            for file in [f for f, copy in self._copies.items() if copy.position < before]:
                self._drop(file)

    def _make_room(self, size: int) -> None:
        oldest = sorted(self._copies, key=lambda f: self._copies[f].position)
        for file in oldest:
            if self.used + size <= self._limit:
                return
            self._drop(file)

    def _drop(self, file: StateFile) -> None:
        _remove(self._copies.pop(file).path)
        self._named.pop(file.path, None)
        self.used -= file.size


def _whole(path: Path, file: StateFile) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if len(data) == file.size and hashlib.sha256(data).hexdigest() == file.sha256 else None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("event=local-copy-stays path=%s reason=%s", path, error)

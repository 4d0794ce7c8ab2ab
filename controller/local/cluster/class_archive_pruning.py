"""Which class archives stay: the few that were used last.  Each clone and each virtual environment has one of 110 MB.

Whoever has made an archive removes what is too much.  Invariants: an archive that a living JVM was started with stays, as
JVMs that its cluster starts later map it, too; so does one that a start has chosen within the last hour, whose JVMs may not
be there yet or are not seen from here (another container with the same cache folder); and what somebody is making is left
alone, which the lock beside it says.  A JVM whose archive is gone all the same starts without, and slower.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

KEEP, KEEP_BYTES = 5, 640 * 2**20
"""At most so many archives, of so many bytes together, stay beside those that are in use."""
LATELY_S = 3600.0
OPTION = "-XX:SharedArchiveFile="


def prune(
    folder: Path, clock: Callable[[], float] = time.time, keep: int = KEEP, most: int = KEEP_BYTES
) -> list[str]:
    """Remove the archives of `folder` beyond the `keep` used last or `most` bytes, and what dead makers have left.

    `clock`: seconds since the epoch; an archive's mtime is when a start chose it last.  Returns the names of what is gone.
    """
    found = [(path, status) for path in folder.glob("classes-*.jsa") if (status := _status(path)) is not None]
    found.sort(key=lambda one: (-one[1].st_mtime, one[0].name))
    used, total, gone = _in_use(), 0, list[str]()
    for rank, (path, status) in enumerate(found, 1):
        total += status.st_size
        needed = status.st_mtime > clock() - LATELY_S or os.path.realpath(path) in used
        if (rank > keep or total > most) and not needed:
            gone += _remove(path)
    for path in folder.glob("classes-*.*"):
        if path.suffix[1:].isdigit():  # a maker's own, before it is renamed
            gone += _remove(path)
    return gone


def _remove(path: Path) -> list[str]:
    """Remove a file of the cache with its lock, unless somebody holds that."""
    lock = path.with_suffix(".lock")
    with contextlib.suppress(OSError), _held(lock):
        path.unlink()
        lock.unlink()
        return [path.name]
    return []


@contextlib.contextmanager
def _held(lock: Path) -> Iterator[None]:
    """The lock of an archive's maker.  BlockingIOError: it is making it."""
    with lock.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _status(path: Path) -> os.stat_result | None:
    """What the file system says of it, or None where somebody else has removed it meanwhile."""
    try:
        return path.stat()
    except OSError:
        return None


def _in_use() -> set[str]:
    """Archives on the command lines of all processes that can be seen."""
    found = set[str]()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = line.read_bytes().split(b"\0")
            found |= {
                os.path.realpath(os.fsdecode(w[len(OPTION) :]))
                for w in words
                if w.startswith(OPTION.encode())
            }
    return found

"""Durable files below one location: the one home of what a file system or object store can promise, and of how it is used.

Invariants, for everything that is written here: a reader never sees a half file; `create` never replaces what is there; and
on local and mounted file systems nobody is told of a file before its bytes and its name survive a loss of power.  Whoever
writes uses a temporary name of its own in a folder beside the files, which no other writer opens, so two hosts with equal
process ids cannot meet.  Such a name may be a second link to a visible file (its writer died between link and unlink):
left-overs are only ever unlinked, never opened.

What a store can do is known by its protocol (`WAYS`).  A protocol that is not known is taken for a file system that shows a
file while it grows: written under another name, then renamed; whether the name is taken is asked before, which two writers
at the same moment may both pass.  docs/decisions/0009-durable-files.md has the list with its sources.
"""

from __future__ import annotations

import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import fsspec

from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.storage import local_files as local
from reprise.spark_jobs.storage.answers import (
    are_credentials_refused,
    asked_to_wait_s,
    is_behind_the_end,
    is_connection_gone,
    is_taken,
    trouble_behind,
)
from reprise.spark_jobs.storage.clients import schemes

T = TypeVar("T")
Chunks = Sequence[bytes | memoryview]
PARTS = ".parts"
STALE_S = 3600.0
"""A temporary file that is older is nobody's any more."""
RENEWED_AFTER_S = 10.0
"""A store that refuses the credentials is asked with a new client, which takes time to make, at most so often."""


class Way(Enum):
    """How a file appears whole, and once."""

    LINK = "temporary file, fsync, hard link or exclusive rename"
    CONDITIONAL = "one upload, refused by the store where the name is taken"
    UPLOAD = "one upload; whether the name is taken is asked before"
    RENAME = "temporary file, rename; whether the name is taken is asked before"


WAYS = {
    **dict.fromkeys(("file", "local"), Way.LINK),
    **dict.fromkeys(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"), Way.CONDITIONAL),
    "oss": Way.UPLOAD,
}

_left_alone: dict[str, float] = {}
"""Servers that have asked for time, and until when, unix seconds: whoever in this process has heard it speaks for all."""
_passes_over: dict[str, bool] = {}
"""Places of object stores, and whether an upload there replaces what has its name though it asks to be refused: tried once
in a process, as older servers of S3's interface do so, and cannot be told by anything else."""
_READ_TO_KNOW = {"oss", "ftp"}
"""Whose clients list a whole folder to tell of one file; that of `ftp` shows an empty one where the server refused."""


_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"}
"""Whose clients share what they have listed among all threads that use one."""


def way_of(protocols: str | Collection[str]) -> Way:
    """How files are written on a file system of fsspec with these protocol names."""
    names = [protocols] if isinstance(protocols, str) else protocols
    return next((WAYS[name] for name in names if name in WAYS), Way.RENAME)


def without_password(location: str) -> str:
    """A location as it may be shown in a message."""
    return re.sub(r"//[^/:]*:[^/]*@", "//", location)


class Files:
    """Reads and writes files below `location` (a path or any fsspec URL) by their relative path.

    Every trouble of the store's client, whatever it raises, is a StoreError that names file and location.  `parts`: the
    folder of temporary files, in the same file system; `.parts` in the location if it is not given.
    """

    def __init__(self, location: str, parts: str | None = None) -> None:
        self.name = without_password(location)
        self._fs, root = _opened(location)
        self.root = root.rstrip("/")
        self._parts = (_opened(parts)[1] if parts else f"{self.root}/{PARTS}").rstrip("/")
        names = self._fs.protocol
        self._protocols = {names} if isinstance(names, str) else set(names)
        self.way = way_of(names)
        self._made: set[str] = set()
        self._location, self._lost, self._renewed = location, False, 0.0
        self._server = self.name.partition("://")[2].partition("/")[0] if self.way is not Way.LINK else ""

    def path(self, relative: str) -> str:
        """The path of a file, in the words of the file system."""
        return f"{self.root}/{relative}" if relative else self.root

    # -- reading -------------------------------------------------------------------------------------------------------

    def read(self, relative: str) -> bytes | None:
        """The bytes of a file; None when there is none of that name."""

        return self._tried("read", relative, lambda: self._bytes(self.path(relative)))

    def parsed(self, relative: str, parse: Callable[[bytes], T]) -> T | None:
        """What `parse` makes of a file; None when there is none of that name.  It is read again before what `parse` raises
        is believed: bytes can be damaged on their way, and not every client notices."""
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            return None if (data := self.read(relative)) is None else parse(data)
        return None if (data := self.read(relative)) is None else parse(data)

    def read_part(self, relative: str, start: int, end: int) -> bytes | None:
        """Bytes start <= at < end of a file, fewer where it is shorter; None when there is none of that name."""

        def part() -> bytes:
            try:
                return bytes(self._fs.cat_file(self.path(relative), start=start, end=end))
            except FileNotFoundError:
                raise
            except Exception as error:  # object stores refuse what begins behind the end
                if not is_behind_the_end(error):
                    raise
                return bytes(self._fs.cat_file(self.path(relative)))[start:end]

        return self._tried("read", relative, lambda: self._asked(part))

    def exists(self, relative: str) -> bool:
        """Whether there is a file of that name now."""
        return self._tried("look for", relative, lambda: self._exists(self.path(relative)))

    def names(self, relative: str = "") -> list[str]:
        """Names in a folder as they are now, without hidden ones; none when there is no such folder."""

        listed = self._tried("list", relative, lambda: self._listed(self.path(relative)))
        return sorted(name for name in listed if not name.startswith("."))

    # -- writing -------------------------------------------------------------------------------------------------------

    def create(self, relative: str, data: bytes | Chunks) -> bool:
        """Write a file unless there is one of that name; whether it is ours.  What is there is never changed, and is as
        durable afterwards as if it were ours.  A store that lost its own answer may call ours another's."""
        return self._tried("write", relative, lambda: self._create(self.path(relative), _chunks(data)))

    def replace(self, relative: str, data: bytes | Chunks) -> None:
        """Write a file; one of that name is replaced as a whole."""
        self._tried("write", relative, lambda: self._replace(self.path(relative), _chunks(data)))

    def passes_over_conditions(self) -> bool:
        """Whether two writers that create one name at the same moment may both succeed: the store cannot refuse the second,
        so `create` asks before whether the name is taken."""
        if self.way in (Way.UPLOAD, Way.RENAME):
            return True

        def passes_over() -> bool:
            if self.way is Way.CONDITIONAL:
                return self._passes_over()
            return not local.creates_exclusively(Path(self._parts))

        return self._tried("try", self._parts.rsplit("/", 1)[1], passes_over)

    def remove(self, relative: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing when it is not there."""

        def removed() -> None:
            path = self.path(relative)
            try:
                within = "ftp" not in self._protocols or self._bytes(path) is None  # it looks into files, too
                self._fs.rm(path, recursive=within)
            except FileNotFoundError:  # clients look for the file first, and may not be heard
                if self.way is not Way.LINK and (self._exists(path) or self._listed(path)):
                    raise
            else:  # clients that remove many files at once do not say which the store has kept
                if self.way is Way.CONDITIONAL and self._remains(path):
                    raise OSError("the store has not removed all of it")

        self._made.clear()
        self._tried("remove", relative, removed)

    def sweep(self, older_s: float = STALE_S) -> None:
        """Remove temporary files that were begun so long ago; whoever still writes one gets a StoreError and repeats."""
        before = time.time() - older_s

        def swept() -> None:
            with suppress(FileNotFoundError):
                for path in self._paths(self._parts):
                    began = re.match(r"(\d+)-", path.rsplit("/", 1)[-1])
                    if began and int(began[1]) <= before:
                        self._fs.rm_file(path)

        self._tried("sweep", self._parts.rsplit("/", 1)[1], swept)

    def _tried(self, verb: str, relative: str, action: Callable[[], T]) -> T:
        try:
            self._connect()
            return action()
        except StoreError:
            raise
        except Exception as error:  # a store's client raises what it likes
            self._note(error)
            raise StoreError(
                f"cannot {verb} {relative} in {self.name}: {type(error).__name__}: {error}"
            ) from error

    def _connect(self) -> None:
        """Anew where the connection was lost; StoreError while the server has asked not to be asked."""
        until = _left_alone.get(self._server, 0.0)
        if self._server and time.time() < until:
            at = datetime.fromtimestamp(until, UTC).strftime("%H:%M:%S")
            raise StoreError(
                f"{self.name} is not asked before {at} UTC: it is busy, and has said so (Retry-After)"
            )
        if self._lost:
            self._fs, _ = _opened(self._location)
            self._made.clear()
            self._lost = False

    def _note(self, error: Exception) -> None:
        """What trouble means for the next request; this one is not repeated here, as it may have been carried out."""
        if self.way is Way.LINK:
            return
        if (wait_s := asked_to_wait_s(error, time.time())) > 0:
            _left_alone[self._server] = time.time() + wait_s
        refused = are_credentials_refused(error) and time.time() >= self._renewed + RENEWED_AFTER_S
        if refused:  # a new client looks for them anew
            self._renewed = time.time()
        if refused or is_connection_gone(error):
            type(self._fs).clear_instance_cache()  # fsspec gives the same client to everybody in this thread
            self._lost = True

    def _asked(self, question: Callable[[], T]) -> T | None:
        """What the store answers; None where it says that there is no such file."""
        before = sys.exception()
        try:
            return question()
        except OSError as error:
            if (trouble := trouble_behind(error, before)) is error:
                raise
            if trouble is not None:
                raise trouble from None
            return None

    def _bytes(self, path: str) -> bytes | None:
        self._fs.invalidate_cache()  # clients ask for the size first, and call missing what an earlier listing has not
        return self._asked(lambda: bytes(self._fs.cat_file(path)))

    def _listed(self, folder: str) -> list[str]:
        def names() -> list[str]:
            self._fs.invalidate_cache()
            if self.way is Way.LINK:
                local.look_again(Path(folder))
                return [path.name for path in Path(folder).iterdir()]
            itself = str(self._fs._strip_protocol(folder)).rstrip("/")  # some stores keep a file for a folder
            found = [path.rsplit("/", 1)[-1] for path in self._paths(folder) if path != itself]
            if (
                not found
                and "ftp" in self._protocols
                and self._fs._strip_protocol(folder) not in self._fs.dircache
            ):
                raise OSError(
                    "the server did not list the folder"
                )  # what it listed is kept, an empty one too
            return found

        return self._asked(names) or []

    def _paths(self, folder: str) -> list[str]:
        """What is in a folder.  Asked with details, as some clients give names without their folder otherwise (ftp)."""
        return [str(found["name"]).rstrip("/") for found in self._fs.ls(folder, detail=True)]

    def _exists(self, path: str) -> bool:
        """Never by the client's own `exists`, which takes any trouble for an answer."""
        self._fs.invalidate_cache()
        if self._protocols & _READ_TO_KNOW:
            return self._bytes(path) is not None
        return self._asked(lambda: self._fs.info(path)) is not None

    def _remains(self, path: str) -> bool:
        """Whether there is a file of that name, or a folder with something in it."""
        self._fs.invalidate_cache()
        found = self._asked(lambda: self._fs.info(path))
        return found is not None and (found["type"] != "directory" or bool(self._listed(path)))

    def _create(self, final: str, chunks: Chunks) -> bool:
        if self.way is Way.CONDITIONAL and not self._passes_over():
            return self._uploaded(final, b"".join(chunks))
        if self._exists(final):
            if self.way is Way.LINK:
                local.flush(Path(final))
            return False
        if self.way is Way.LINK:
            return self._with_part(Path(final), chunks, local.link)
        self._replace(final, chunks)
        return True

    def _uploaded(self, final: str, data: bytes) -> bool:
        """Whether the store has taken a file, which it is to refuse where there is one of that name."""
        before = sys.exception()
        try:
            self._fs.pipe_file(final, data, mode="create")
        except Exception as error:
            if not is_taken(error, before):
                raise
            return False
        return True

    def _passes_over(self) -> bool:
        place = f"{min(self._protocols)}://{self._server}"
        if "memory" in self._protocols:
            return False
        if place not in _passes_over:
            part = self._part()
            found = self._uploaded(part, b"") and self._uploaded(part, b"")
            with suppress(FileNotFoundError):
                self._fs.rm_file(part)
            _passes_over[place] = found
        return _passes_over[place]

    def _replace(self, final: str, chunks: Chunks) -> None:
        if self.way in (Way.CONDITIONAL, Way.UPLOAD):
            self._fs.pipe_file(final, b"".join(chunks))
        elif self.way is Way.LINK:
            self._with_part(Path(final), chunks, local.rename)
        else:
            part = self._part()
            self._folder(final.rsplit("/", 1)[0])
            self._folder(self._parts)
            self._fs.pipe_file(part, b"".join(chunks))
            self._fs.mv(part, final)

    def _part(self) -> str:
        return f"{self._parts}/{int(time.time())}-{uuid.uuid4().hex}.part"

    def _with_part(self, final: Path, chunks: Chunks, show: Callable[[Path, Path], bool]) -> bool:
        """Local: bytes on disk under a temporary name, then `show`, then the name on disk."""
        part = Path(self._part())
        for folder in (part.parent, final.parent):
            if not folder.is_dir():
                local.make_folders(folder)
        try:
            with part.open("xb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            ours = show(part, final)
        finally:
            part.unlink(missing_ok=True)
        local.flush(final.parent if ours else final)
        return ours

    def _folder(self, folder: str) -> None:
        """Once; others may make the same one, or its parents, at the same moment."""
        for last in (False, False, True):
            if folder in self._made:
                return
            try:
                self._fs.makedirs(folder, exist_ok=True)
                self._made.add(folder)
            except Exception:
                if last:
                    raise
                self._fs.invalidate_cache()


def _opened(location: str) -> tuple[Any, str]:
    """The client, which remembers no listing where others write beside it, and the path in its words."""
    stores = [scheme for scheme in schemes(location) if scheme in _OBJECT_STORES]
    forgetful: dict[str, Any] = {"use_listings_cache": False} if stores else {}
    if "::" in location:  # then each client of the chain has options of its own
        forgetful = {scheme: dict(forgetful) for scheme in stores}
    try:
        fs, root = fsspec.core.url_to_fs(location, **forgetful)
    except Exception as error:
        raise StoreError(f"location {without_password(location)}: {type(error).__name__}: {error}") from error
    return fs, str(root)


def _chunks(data: bytes | Chunks) -> Chunks:
    return [data] if isinstance(data, bytes) else data

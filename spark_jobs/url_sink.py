"""Sink files below a URL that fsspec understands: object stores, HDFS, WebDAV.

The same promise as `FileSink`: a batch's file appears whole, once, and is never answered twice.  What that rests on differs.
An object store shows an object when its upload is complete, and refuses a second one where it knows conditional writes (S3,
GCS, Azure).  File systems with paths show a file while it grows, so there it is written under another name and renamed.
Where a store can do neither, a zombie and its successor may both write; their bytes are the same (invariant E1), so the
answer is.
"""

from __future__ import annotations

import uuid
from typing import Any

import fsspec

from spark_jobs.contract import Place
from spark_jobs.errors import SinkError
from spark_jobs.sinks import BatchFiles, FileSink, Sink, differs

_RENAMING = {
    "abfs-hns",
    "arrow_hdfs",
    "dav",
    "ftp",
    "hdfs",
    "http+dav",
    "sftp",
    "smb",
    "ssh",
    "webdav",
    "webhdfs",
}
"""Protocols of file systems that show a file before it is whole, and rename it in one step."""


def file_sink(root: str, place: Place, fmt: str) -> Sink:
    """Files below `root`, a folder or URL; `fmt`: a key of ENCODERS.  SinkError: a URL that no installed package knows."""
    try:
        fs, path = fsspec.core.url_to_fs(root)
    except (ImportError, ValueError) as error:
        raise SinkError(f"sink location {root}: {error}") from error
    if "file" in _protocols(fs):
        return FileSink(path, place, fmt)
    return UrlSink(fs, path, place, fmt, renames=bool(_protocols(fs) & _RENAMING))


def _protocols(fs: Any) -> set[str]:
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)


class UrlSink(BatchFiles):
    """Writes one output partition's batches below a path of a file system of fsspec."""

    def __init__(self, fs: Any, root: str, place: Place, fmt: str, *, renames: bool) -> None:
        super().__init__(fmt)
        self._fs = fs
        self.folder = f"{root.rstrip('/')}/{place.operator}/{place.index}"
        self._renames = renames
        self._made = False

    def path(self, batch: int) -> str:
        """The file of a batch."""
        return f"{self.folder}/{self.name(batch)}"

    def store(self, batch: int, data: bytes) -> None:
        final = self.path(batch)
        try:
            if not self._created(final, data) and self._fs.cat_file(final) != data:
                raise differs(final, batch)
        except SinkError:
            raise
        except Exception as error:  # a store's client raises what it likes
            raise SinkError(f"cannot write {final}: {type(error).__name__}: {error}") from error

    def _created(self, final: str, data: bytes) -> bool:
        """Whether the file is there now by us; False: it was there before."""
        self._make_folder()
        if not self._renames:
            try:
                self._fs.pipe_file(final, data, mode="create")
            except FileExistsError:
                return False
            return True
        if self._exists(final):
            return False
        part = f"{self.folder}/.{uuid.uuid4().hex}.part"
        self._fs.pipe_file(part, data)
        self._fs.mv(part, final)
        return True

    def _make_folder(self) -> None:
        """Once; others may make the same one, or its parents, at the same moment."""
        for last in (False, False, True):
            if self._made:
                return
            try:
                self._fs.makedirs(self.folder, exist_ok=True)
                self._made = True
            except Exception:
                if last:
                    raise
                self._fs.invalidate_cache()

    def _exists(self, path: str) -> bool:
        self._fs.invalidate_cache(self.folder)
        return bool(self._fs.exists(path))

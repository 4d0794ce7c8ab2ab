"""Sink files below a URL that fsspec understands: object stores, HDFS, WebDAV.

The same promise as `FileSink`: a batch's file appears whole, once, and is never answered twice.  What that rests on differs
from store to store (`reprise.spark_jobs.storage.files`).  Where a store cannot refuse a second file of the same name, a
zombie and its successor may both write; their bytes are the same, so the answer is.
"""

from __future__ import annotations

import fsspec

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import SinkError
from reprise.spark_jobs.sinks import BatchFiles, FileSink, Sink
from reprise.spark_jobs.storage.files import Way, way_of, without_password


def file_sink(root: str, place: Place, fmt: str) -> Sink:
    """Files below `root`, a folder or URL; `fmt`: a key of ENCODERS.  SinkError: a URL that no installed package knows."""
    try:
        fs, path = fsspec.core.url_to_fs(root)
    except Exception as error:  # a store's client raises what it likes
        raise SinkError(f"sink location {without_password(root)}: {error}") from error
    if way_of(fs.protocol) is Way.LINK:
        return FileSink(path, place, fmt)
    return UrlSink(root, place, fmt)


class UrlSink(BatchFiles):
    """Writes one output partition's batches below a URL."""

    @property
    def folder(self) -> str:
        """The partition's folder, in the words of its file system."""
        return self._files.root

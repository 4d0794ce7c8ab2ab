"""Sink output, exactly once for each (output partition, batch).

A batch's rows are one file, `<root>/<operator>/<index>/batch-<number>.<format>`, which appears whole or not at all and is
never replaced.  A batch that is replayed after a failure, or written by a zombie, finds its file there: the bytes must be
the same (invariant E1), and if they are not, that is an error and not a second answer.  A batch without rows has an empty
file, so that a missing batch can be told from an empty one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.contract import Place
from spark_jobs.errors import SinkError


def _jsonl(table: pa.Table) -> bytes:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.write_ndjson().encode()


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table.combine_chunks(), sink, compression="zstd")
    return bytes(sink.getvalue())


ENCODERS: dict[str, Callable[[pa.Table], bytes]] = {"jsonl": _jsonl, "parquet": _parquet}


class FileSink:
    """Writes one output partition's batches below a folder of a local or shared file system."""

    def __init__(self, root: str | Path, place: Place, fmt: str) -> None:
        self.folder = Path(root) / place.operator / str(place.index)
        self.fmt = fmt

    def path(self, batch: int) -> Path:
        """The file of a batch."""
        return self.folder / f"batch-{batch:08d}.{self.fmt}"

    def write(self, batch: int, table: pa.Table | None) -> None:
        """Store a batch once.  Raises SinkError when it cannot be written or is there with other bytes."""
        data = b"" if table is None or table.num_rows == 0 else ENCODERS[self.fmt](table)
        final = self.path(batch)
        part = final.with_name(f".{final.name}.{os.getpid()}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            try:
                os.link(part, final)
            except FileExistsError:
                if final.read_bytes() != data:
                    raise SinkError(
                        f"{final} was written before with other rows: the replay of batch {batch} is not identical; "
                        "an operator upstream is not deterministic (declare `deterministic: false`)"
                    ) from None
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise SinkError(f"cannot write {final}: {error}") from error

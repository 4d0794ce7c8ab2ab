"""The input of all contestants: parquet files of equal size, one file a batch, written once.

The first files hold every hashtag once, so that the state has its full size before anything is measured; the others come
from the generator with the statistics of Su and Zhou's data set (section 7).  Modification times rise by a second from
file to file, as Structured Streaming takes files in that order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.sources import HashtagSource

FILL = 64
"""Hashtags a row in the files that fill the state."""


@dataclass(frozen=True, slots=True)
class Data:
    """`fill` batches that make the state as large as it gets, then `batches` that are measured; `rows` tweets each."""

    folder: Path
    rows: int
    fill: int
    batches: int

    @property
    def total(self) -> int:
        return self.fill + self.batches

    @property
    def paths(self) -> list[str]:
        return [str(_path(self.folder, number)) for number in range(1, self.total + 1)]


def write(folder: Path, keys: int, rows: int, batches: int, seed: int = 3) -> Data:
    """The files of one data set; every file has exactly `rows` rows."""
    folder.mkdir(parents=True, exist_ok=True)
    fill = -(-keys // (FILL * rows))
    data = Data(folder.resolve(), rows, fill, batches)
    source = HashtagSource(rate=2 * rows, interval="500ms", tags=keys, seed=seed)
    for number in range(1, data.total + 1):
        if number <= fill:
            table = filling(number, rows, keys)
        else:
            batch = number - fill
            table = source.read(Place("tweets", 0, 1), batch, Range((batch - 1) * rows, batch * rows))
        pq.write_table(table, _path(data.folder, number))
        os.utime(_path(data.folder, number), (1_700_000_000 + number,) * 2)
    return data


def filling(number: int, rows: int, keys: int) -> pa.Table:
    """The `number`-th file (from 1) of those that name every tag once; what is left over begins again at the first."""
    first = (number - 1) * rows
    ranks = (first * FILL + np.arange(rows * FILL)) % keys + 1
    tags = pc.binary_join_element_wise("tag", pa.array(ranks).cast(pa.string()), "")
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * FILL)
    numbers = pa.array(np.arange(first, first + rows))
    return pa.table({"time": numbers, "tweet": numbers, "hashtags": pa.ListArray.from_arrays(offsets, tags)})


def _path(folder: Path, number: int) -> Path:
    return folder / f"batch-{number:05d}.parquet"

"""A source one of whose batches is larger than what the JVM of an executor can hold a few times over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Place, Range, Source

LARGE, LAST, ROWS = 3, 6, 15_000_000


class Large(Source):
    """Keys 0 to 999; batch `LARGE` has 240 MB."""

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        if batch > LAST:
            return None
        return start + (ROWS if batch == LARGE else 1000)

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        keys = np.random.default_rng(batch).integers(0, 1000, span.end - span.start)
        return pa.table({"key": keys, "at": np.arange(span.start, span.end)})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return None

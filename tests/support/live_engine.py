"""A live source: a log that grows while nobody reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import ClassVar

import pyarrow as pa

from reprise.spark_jobs.contract import Place, Range, Source

END = 0
"""How far the log goes now; the test moves it."""


class Live(Source):
    """Every partition has a log of its own, as long as the others."""

    live: ClassVar[bool] = True

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        return END

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        return pa.table({"n": list(range(span.start, span.end))})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return None


def numbers(files: Iterable[bytes]) -> list[int]:
    """The column `n` of all rows in these sink files, sorted."""
    return sorted(json.loads(line)["n"] for data in files for line in data.splitlines())

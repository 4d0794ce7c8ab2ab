"""Lists and deques of an own operator's state: rows in the order in which they came, of which a snapshot in pages stores the
new ones.

Rows are in segments of `SEGMENT_ROWS`, each an append-only table; a deque lets go a segment when all of its rows are taken.
What is appended one by one waits until there is enough of it, or somebody reads all.

Invariant: nothing that can be read depends on where segments end, so a state that was restored goes on alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.operators.chunks import ChunkStore
from reprise.spark_jobs.operators.frames import Ints
from reprise.spark_jobs.operators.state_columns import Row, RowType, StateStructure, Types
from reprise.spark_jobs.pages import Parts, pieces
from reprise.spark_jobs.spill import Spillable

SEGMENT_ROWS = 65_536
"""Sixteen pages.  At most this many rows that were taken are still stored."""
AT_ONCE = 1024
"""Rows that were appended one by one, and wait to be appended together; and those that are read together where one is asked
for."""


class _Rows(StateStructure):
    """Rows of given columns.  A row of one column is that value, one of several a tuple."""

    def __init__(self, columns: Types) -> None:
        self._row_type = RowType(columns)
        self.clear()

    def clear(self) -> None:
        self._segments: list[ChunkStore] = []
        self._stored = 0
        """Rows in segments."""
        self._first = 0
        """Rows at the beginning of the first segment that were taken."""
        self._waiting: list[Row] = []
        self._read: tuple[int, list[Row]] = (0, [])
        """Rows from a number on."""

    def __len__(self) -> int:
        return self._stored - self._first + len(self._waiting)

    def __getitem__(self, number: int) -> Any:
        """The row with this number; from the end where it is negative.  IndexError."""
        at = number + len(self) if number < 0 else number
        if not 0 <= at < len(self):
            raise IndexError(number)
        return self._row_type.shown(self._row(at + self._first))

    def __iter__(self) -> Iterator[Any]:
        rows = self.table()
        return map(self._row_type.shown, zip(*(c.to_pylist() for c in rows.columns), strict=True))

    def append(self, row: Any) -> None:
        """Add a row at the end.  TypeError: it does not have these columns, or a value is not of its column's type."""
        self._waiting.append(self._row_type.row(row))
        if len(self._waiting) >= AT_ONCE:
            self._write()

    def extend(self, rows: pa.Table) -> None:
        """Add rows at the end.  ColumnError: their columns do not fit."""
        table = self._row_type.fitted(rows)
        self._write()
        self._append(table)

    def take(self, numbers: Sequence[int] | Ints) -> pa.Table:
        """The rows with these numbers, in this order.  IndexError."""
        wanted = np.asarray(numbers, np.int64)
        if len(wanted) and not (int(wanted.min()) >= 0 and int(wanted.max()) < len(self)):
            raise IndexError(f"no rows but 0 to {len(self) - 1}")
        self._write()
        return self._some(wanted + self._first)

    def table(self) -> pa.Table:
        self._write()
        whole = [store.freeze()() for store in self._segments]
        if not whole:
            return self._row_type.schema.empty_table()
        return pa.concat_tables(whole).slice(self._first).combine_chunks()

    @property
    def row_type(self) -> RowType:
        return self._row_type

    def freeze(self) -> Callable[[], Tables]:
        self._write()
        frozen = [store.freeze() for store in self._segments]
        nothing = self._row_type.schema.empty_table()
        return lambda: {
            "rows": pa.concat_tables([each() for each in frozen]).combine_chunks() if frozen else nothing
        }

    def freeze_pages(self) -> Callable[[], Parts]:
        self._write()
        if not self._segments:
            return self.freeze()
        frozen = [store.freeze_pages() for store in self._segments]
        return lambda: {"rows": tuple(piece for each in frozen for piece in pieces(each()))}

    def load(self, tables: Tables) -> None:
        self.clear()
        rows = tables["rows"]
        self._append(rows.slice(int(tables["form"].column("number")[0].as_py())))

    def spillable(self) -> Sequence[Spillable]:
        return self._segments

    def empty(self) -> Self:
        return type(self)(dict(zip(self._row_type.names, self._row_type.schema.types, strict=True)))

    def _write(self) -> None:
        if self._waiting:
            table = self._row_type.table(self._waiting)
            self._waiting = []
            self._append(table)

    def _append(self, table: pa.Table) -> None:
        at = 0
        while at < table.num_rows:
            if not self._segments or self._segments[-1].size >= SEGMENT_ROWS:
                self._segments.append(ChunkStore())
            last = self._segments[-1]
            part = table.slice(at, SEGMENT_ROWS - last.size)
            last.append(part)
            at += part.num_rows
        self._stored += table.num_rows

    def _row(self, at: int) -> Row:
        """The row with this number, those counted that were taken."""
        if at >= self._stored:
            return self._waiting[at - self._stored]
        first, rows = self._read
        if not first <= at < first + len(rows):
            first = at - at % AT_ONCE
            some = self._some(np.arange(first, min(first + AT_ONCE, self._stored)))
            rows = list(zip(*(column.to_pylist() for column in some.columns), strict=True))
            self._read = first, rows
        return rows[at - first]

    def _some(self, numbers: Ints) -> pa.Table:
        if not len(numbers):
            return self._row_type.schema.empty_table()
        segment, within = np.divmod(numbers, SEGMENT_ROWS)
        used = np.unique(segment)
        parts = [self._segments[n].take(within[segment == n]) for n in used.tolist()]
        if len(parts) == 1:
            return pa.concat_tables(parts)
        order = np.argsort(segment, kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        found: pa.Table = pa.concat_tables(parts).take(pa.array(back)).combine_chunks()
        return found


class ListState(_Rows):
    """Rows that are appended, and stay."""

    @property
    def form(self) -> tuple[str, int]:
        return "list", 0


class DequeState(_Rows):
    """Rows that are appended at the end, and taken from the beginning."""

    @property
    def form(self) -> tuple[str, int]:
        return "deque", self._first

    def popleft(self) -> Any:
        """Take the first row.  IndexError: there is none."""
        row = self[0]
        self._drop(1)
        return row

    def popleft_rows(self, count: int) -> pa.Table:
        """Take the first rows, all where there are not so many."""
        rows = self.take(np.arange(min(max(count, 0), len(self))))
        self._drop(rows.num_rows)
        return rows

    def _drop(self, count: int) -> None:
        if self._first + count > self._stored:
            self._write()
        self._first += count
        if self._first == self._stored and not self._waiting:
            self.clear()
            return
        while self._first >= SEGMENT_ROWS:
            del self._segments[0]
            self._first -= SEGMENT_ROWS
            self._stored -= SEGMENT_ROWS
            self._read = (self._read[0] - SEGMENT_ROWS, self._read[1])

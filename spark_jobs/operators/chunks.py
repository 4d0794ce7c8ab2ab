"""Rows that are only ever appended, numbered 0, 1, 2, ..., and fetched by number.

Problem: Arrow tables are immutable and joining a million rows with each batch's few would copy all of them
each time.  Chunks are merged like the runs of a log-structured tree: there are never more than about
log2(rows) of them and each row is copied about that often in its life.  Invariant: a tuple of chunks that was
handed out never changes, so freezing is taking a reference.  A chunk that is in a file of the node is merged with no other
one: the result would be in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.operators.frames import ColumnError, Ints, as_schema
from reprise.spark_jobs.pages import FrozenRows, Part, StoredPages
from reprise.spark_jobs.spill import LEAST, SpillFullError, SpillStore, at_hand

PART = 4 << 20
"""Bytes of a table that is read that are in memory at once."""


class ChunkStore:
    """An append-only table."""

    __slots__ = ("_chunks", "_out", "_stored", "size")

    def __init__(self, table: pa.Table | None = None) -> None:
        self._chunks: tuple[pa.Table, ...] = ()
        self.size = 0
        self._stored: StoredPages | None = None
        self._out = 0
        """How many of the chunks, from the first on, stay as they are, as they are in files or before one that is."""
        if table is not None and table.num_rows:
            self.append(table)

    @property
    def schema(self) -> pa.Schema | None:
        """Columns of the rows; None while there are none."""
        return self._chunks[0].schema if self._chunks else None

    def append(self, table: pa.Table) -> None:
        """Add rows; ColumnError when their columns are not those of the rows before."""
        if (store := at_hand()) is None:
            self._add(table)
            return
        rows = max(1, table.num_rows * PART // max(PART, table.nbytes))
        for first in range(0, table.num_rows, rows):
            self._add(table.slice(first, rows))
            with suppress(SpillFullError):  # it stays in memory, which is said when it is counted
                self.spill(store, LEAST)
                store.hold()

    def _add(self, table: pa.Table) -> None:
        if self._chunks and not table.schema.equals(self._chunks[0].schema):
            self._learn(table.schema)
            table = _conform(table, self._chunks[0].schema)
        chunks = [*self._chunks, table.combine_chunks()]
        while len(chunks) > 1 + self._out and chunks[-2].num_rows <= 2 * chunks[-1].num_rows:
            chunks[-2:] = [pa.concat_tables(chunks[-2:]).combine_chunks()]
        self._chunks = tuple(chunks)
        self.size += table.num_rows

    def _learn(self, schema: pa.Schema) -> None:
        """Columns that held nothing but nulls get the types that they have in other rows."""
        known = self._chunks[0].schema
        found = [
            f.with_type(schema.field(f.name).type)
            if pa.types.is_null(f.type) and f.name in schema.names
            else f
            for f in known
        ]
        if not pa.schema(found).equals(known):
            self._chunks = tuple(chunk.cast(pa.schema(found)) for chunk in self._chunks)
            self._stored = None

    def take(self, numbers: Ints) -> pa.Table:
        """The rows with these numbers, in this order; KeyError when the store is empty and so has no
        columns."""
        if not self._chunks:
            raise KeyError("no rows")
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        starts = np.cumsum([0, *(c.num_rows for c in self._chunks)])
        cuts = np.searchsorted(ordered, starts)
        parts = [
            chunk.take(pa.array(ordered[cuts[i] : cuts[i + 1]] - starts[i]))
            for i, chunk in enumerate(self._chunks)
            if cuts[i] < cuts[i + 1] or not i  # one at least, for its columns
        ]
        table = pa.concat_tables(parts).combine_chunks()
        if np.array_equal(order, np.arange(len(order))):
            return table
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return table.take(pa.array(back))

    def freeze(self) -> Callable[[], pa.Table]:
        """A function that gives all rows as they are now; a table without columns when there are none."""
        chunks = self._chunks
        return lambda: pa.concat_tables(chunks).combine_chunks() if chunks else pa.table({})

    def spill(self, store: SpillStore, least: int) -> int:
        """See `Spillable.spill`."""
        held = 0
        for number, chunk in enumerate(self._chunks):
            if store.has_table(chunk):
                continue
            if chunk.nbytes < least:
                held += chunk.nbytes
                continue
            moved = store.table(chunk)
            self._chunks = (*self._chunks[:number], moved, *self._chunks[number + 1 :])
            self._out = max(self._out, number + 1)
        return held

    def freeze_pages(self) -> Callable[[], Part]:
        """The same, in pages."""
        if not self.size:
            return self.freeze()
        if self._stored is None:
            self._stored = StoredPages()
        frozen = FrozenRows(self._chunks, self.size, self._stored)
        return lambda: (frozen,)


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with these columns and types.  ColumnError where it has others, and where a value would change."""
    if set(table.column_names) != set(schema.names):
        raise ColumnError(f"columns changed between batches: from {schema.names} to {table.column_names}")
    try:
        return as_schema(table, schema)
    except ColumnError as error:
        raise ColumnError(f"columns changed between batches: {error}") from None

"""The latest row of each key, as an index into rows that are only appended.

Replacing rows inside an Arrow table would copy the table each batch; so new rows are appended, an array says
which row is the latest of each key, and when more than half of the rows are out of date the rest is copied
once.  Invariant: what `freeze` gives depends on the latest rows alone, in the order in which their keys first
appeared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Operator, Place, Tables
from reprise.spark_jobs.operators.chunks import ChunkStore
from reprise.spark_jobs.operators.frames import Ints
from reprise.spark_jobs.operators.keys import Groups, KeyIndex, group

_COMPACT_FROM = 4096


class LatestRows:
    """Upserts by key; `index` gives the slots, `row_of[slot]` the number of the latest row in the store."""

    __slots__ = ("_row_of", "_rows", "index")

    def __init__(self, keys: Sequence[str]) -> None:
        self.index = KeyIndex(keys)
        self._rows = ChunkStore()
        self._row_of: Ints = np.zeros(0, np.int64)

    def update(self, table: pa.Table) -> pa.Table:
        """Apply rows in order; returns the last row of each key in them, by first appearance of the key."""
        groups = group(table, self.index.by)
        slots = self.index.slots(groups)
        last = np.zeros(groups.size, np.int64)
        last[groups.codes] = np.arange(table.num_rows)  # numpy assigns in order: the last one stays
        latest = table.take(pa.array(last))
        numbers = np.arange(self._rows.size, self._rows.size + groups.size)
        self._rows.append(latest)
        # Never in place: a frozen state keeps the old array.
        row_of = np.zeros(self.index.size, np.int64)
        row_of[: len(self._row_of)] = self._row_of
        row_of[slots] = numbers
        self._row_of = row_of
        if self._rows.size >= _COMPACT_FROM and self._rows.size > 2 * self.index.size:
            self._rows = ChunkStore(self._rows.take(row_of))
            self._row_of = np.arange(self.index.size)
        return latest

    def rows(self, slots: Ints) -> pa.Table:
        """The latest rows of these slots; KeyError when nothing was ever stored."""
        return self._rows.take(self._row_of[slots])

    def find(self, groups: Groups) -> Ints:
        """The slot of each group's key, -1 for keys never seen."""
        return self.index.find(groups)

    def freeze(self) -> Callable[[], Tables]:
        """A function that gives the state as of now as tables."""
        stored, row_of = self._rows.freeze(), self._row_of
        return lambda: {"latest": stored().take(pa.array(row_of)) if len(row_of) else pa.table({})}

    @classmethod
    def restore(cls, keys: Sequence[str], tables: Tables) -> LatestRows:
        """The inverse of `freeze`."""
        state = cls(keys)
        if tables["latest"].num_rows:
            state.update(tables["latest"])
        return state


class LatestRowsOperator(Operator):
    """One whose state is the latest row of each key; only `step` is left to say."""

    keys: Sequence[str]

    def initial(self, place: Place) -> LatestRows:
        return LatestRows(self.keys)

    def counters(self, state: LatestRows) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {"keys": state.index.size}

    def freeze(self, state: LatestRows) -> Callable[[], Tables]:
        return state.freeze()

    def restore(self, place: Place, tables: Tables) -> LatestRows:
        return LatestRows.restore(self.keys, tables)

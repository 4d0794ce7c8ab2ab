"""Joins of two streams: rows near each other in event time, and rows with the latest row of a table.

Both name their two upstream operators, keep their state as immutable rows and emit in an order that follows
from the input's alone (left row order, then right row order), whatever the join algorithm does inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.contract import LATE_ROWS, Columns, Inbox, Operator, Place, Tables
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.frames import (
    Ints,
    column,
    concat,
    inbox_table,
    later,
    one_row,
    times,
    to_arrow,
    to_polars,
)
from reprise.spark_jobs.operators.keys import group
from reprise.spark_jobs.operators.latest import LatestRows, LatestRowsOperator
from reprise.spark_jobs.operators.parameters import choice, duration_us, names
from reprise.spark_jobs.topology.columns import input_of, require

_TIME = "__time"


@dataclass(slots=True)
class JoinState:
    """Rows of both sides that may still meet a partner."""

    left: pa.Table | None = None
    right: pa.Table | None = None
    closed: int | None = None
    late: int = 0


class WindowedJoin(Operator):
    """Pairs of a row from `left` and one from `right` with equal `keys` and event times at most `within`
    apart.

    Emits the keys, `time` (the later of the two), then the other columns of both sides; right ones that are
    also on the left get `suffix`.  Rows older than the watermark less `lateness` when they come are dropped
    and counted.  Null keys match nothing.
    """

    def __init__(
        self,
        *,
        left: str,
        right: str,
        keys: Sequence[str],
        within: str,
        time: str = "time",
        lateness: str = "0s",
        suffix: str = "_right",
    ) -> None:
        self.left, self.right = left, right
        if left == right:
            raise SpecError("right", "must be another upstream operator than `left`")
        self.keys = names(keys, "keys", least=1)
        self.within = duration_us(within, "within", least=0)
        self.time = time
        self.lateness = duration_us(lateness, "lateness", least=0)
        self.suffix = suffix

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        left, right = input_of(inputs, self.left, "left"), input_of(inputs, self.right, "right")
        for columns in (left, right):
            require(columns, self.keys, "keys")
            require(columns, [self.time], "time")
        if left is None or right is None:
            return None
        known = {*self.keys, self.time}
        added = [n + self.suffix if n in left else n for n in right if n not in known]
        return (*self.keys, self.time, *(n for n in left if n not in known), *added)

    def initial(self, place: Place) -> JoinState:
        return JoinState()

    def step(self, state: JoinState, inbox: Inbox) -> tuple[JoinState, pa.Table | None]:
        new_left = self._in_time(state, inbox_table(inbox, self.left))
        new_right = self._in_time(state, inbox_table(inbox, self.right))
        old_left, state.right = state.left, concat([state.right, new_right])
        out = concat([self._pairs(old_left, new_right), self._pairs(new_left, state.right)])
        state.left = concat([old_left, new_left])
        if inbox.watermark is not None:
            state.closed = later(state.closed, inbox.watermark - self.lateness)
            state.left, state.right = (
                self._needed(state.left, state.closed),
                self._needed(state.right, state.closed),
            )
        return state, out

    def _in_time(self, state: JoinState, table: pa.Table | None) -> pa.Table | None:
        if table is None or state.closed is None:
            return table
        keep = times(table, self.time) >= state.closed
        state.late += int(len(keep) - np.count_nonzero(keep))
        return table if keep.all() else table.filter(pa.array(keep))

    def _needed(self, table: pa.Table | None, closed: int) -> pa.Table | None:
        """Rows that a row from now on can still meet."""
        if table is None:
            return None
        keep = times(table, self.time) >= closed - self.within
        if keep.all():
            return table
        return table.filter(pa.array(keep)) if keep.any() else None

    def _pairs(self, left: pa.Table | None, right: pa.Table | None) -> pa.Table | None:
        if left is None or right is None or not (left.num_rows and right.num_rows):
            return None
        near = (pl.col(self.time) - pl.col(_TIME)).abs() <= self.within
        joined = (
            self._frame(left)
            .join(
                self._frame(right).rename({self.time: _TIME}),
                on=list(self.keys),
                how="inner",
                suffix=self.suffix,
                maintain_order="left_right",
            )
            .filter(near)
            .with_columns(pl.max_horizontal(self.time, _TIME).alias(self.time))
            .drop(_TIME)
        )
        rest = [c for c in joined.columns if c not in (*self.keys, self.time)]
        return to_arrow(joined.select([*self.keys, self.time, *rest])) if joined.height else None

    def _frame(self, table: pa.Table) -> pl.DataFrame:
        return to_polars(table).with_columns(pl.Series(self.time, times(table, self.time)))

    def counters(self, state: JoinState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        sides = {"left_rows": state.left, "right_rows": state.right}
        return {LATE_ROWS: state.late, **{n: t.num_rows if t is not None else 0 for n, t in sides.items()}}

    def freeze(self, state: JoinState) -> Callable[[], Tables]:
        sides = {n: t for n, t in (("left", state.left), ("right", state.right)) if t is not None}
        meta = pa.table({"closed": pa.array([state.closed], pa.int64()), "late": [state.late]})
        return lambda: {**sides, "meta": meta}

    def restore(self, place: Place, tables: Tables) -> JoinState:
        meta = one_row(tables["meta"])
        return JoinState(tables.get("left"), tables.get("right"), meta["closed"], meta["late"])


class StreamTableJoin(LatestRowsOperator):
    """Each row of `stream` with the latest row of the same `keys` from `table`; the table's rows of a batch
    come first.

    `how: inner` drops rows that find nothing, `left` keeps them with nulls (and, before the table's first
    row, without its columns unless `columns` names them).  `columns`: which of the table's columns to add
    (default: all but the keys); those that the stream has too get `suffix`.
    """

    def __init__(
        self,
        *,
        stream: str,
        table: str,
        keys: Sequence[str],
        how: str = "inner",
        columns: Sequence[str] | None = None,
        suffix: str = "_table",
    ) -> None:
        self.stream, self.table = stream, table
        if stream == table:
            raise SpecError("table", "must be another upstream operator than `stream`")
        self.keys = names(keys, "keys", least=1)
        self.how = choice(how, "how", ("inner", "left"))
        self.columns = None if columns is None else names(columns, "columns")
        self.suffix = suffix

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        stream, table = input_of(inputs, self.stream, "stream"), input_of(inputs, self.table, "table")
        require(stream, self.keys, "keys")
        require(table, self.keys, "keys")
        require(table, self.columns or (), "columns")
        added = table if self.columns is None else self.columns
        if stream is None or added is None:
            return None
        for name in added:
            if name not in self.keys:
                stream = (*stream, name + self.suffix if name in stream else name)
        return stream

    def step(self, state: LatestRows, inbox: Inbox) -> tuple[LatestRows, pa.Table | None]:
        updates, stream = inbox_table(inbox, self.table), inbox_table(inbox, self.stream)
        if updates is not None:
            state.update(updates)
        if stream is None:
            return state, None
        groups = group(stream, self.keys)
        slots = state.find(groups)[groups.codes]
        if self.how == "inner":
            found = slots >= 0
            if not found.any():
                return state, None
            stream, slots = stream.filter(pa.array(found)), slots[found]
        return state, self._with_columns(stream, state, slots)

    def _with_columns(self, stream: pa.Table, state: LatestRows, slots: Ints) -> pa.Table:
        if not state.index.size:
            for name in self.columns or ():
                if name in self.keys:
                    continue
                stream = stream.append_column(self._name(stream, name), pa.nulls(stream.num_rows))
            return stream
        matched = state.rows(np.maximum(slots, 0))
        missing = pa.array(slots < 0)
        for name in matched.column_names if self.columns is None else self.columns:
            if name in self.keys:
                continue
            values = column(matched, name)
            if self.how == "left":
                values = pc.if_else(missing, pa.scalar(None, values.type), values)
            stream = stream.append_column(self._name(stream, name), values)
        return stream

    def _name(self, stream: pa.Table, name: str) -> str:
        return name + self.suffix if name in stream.column_names else name

"""Joins of two streams: rows near each other in event time, and rows with the latest row of a table.

Both name their two upstream operators, keep their state as immutable rows and emit in an order that follows
from the input's alone (left row order, then right row order), whatever the join algorithm does inside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.contract import LATE_ROWS, Columns, Inbox, Operator, Place, Tables, Targets
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.frames import (
    Bools,
    ColumnError,
    Ints,
    canonical,
    column,
    concat,
    in_time,
    inbox_table,
    later,
    one_row,
    require_one_key,
    select,
    times,
    to_arrow,
    to_polars,
    typed,
    without_nulls,
)
from reprise.spark_jobs.operators.keys import group
from reprise.spark_jobs.operators.latest import LatestRows, LatestRowsOperator
from reprise.spark_jobs.operators.parameters import choice, duration_us, names
from reprise.spark_jobs.operators.rescaling import merged_meta, part_of_meta, slots_of_parts, taken
from reprise.spark_jobs.topology.columns import input_of, require

_OWN = _TIME, _LEFT, _RIGHT, _SAME = "__time", "__left", "__right", "__same"
"""Names inside of a join: time of the right row, numbers of both rows, and a key that all rows have."""

ColumnTypes = dict[str, pa.DataType]


def _no_rows() -> Bools:
    return np.zeros(0, np.bool_)


@dataclass(slots=True)
class JoinState:
    """Rows of both sides that may still meet a partner; for other joins than inner ones also which of them have met one."""

    left: pa.Table | None = None
    right: pa.Table | None = None
    closed: int | None = None
    late: int = 0
    left_met: Bools = field(default_factory=_no_rows)
    right_met: Bools = field(default_factory=_no_rows)


class WindowedJoin(Operator):
    """Pairs of a row from `left` and one from `right` with equal `keys` and event times at most `within`
    apart.

    Emits the keys, `time` (the later of the two), then the other columns of both sides; right ones that are
    also on the left get `suffix`.  Rows older than the watermark less `lateness` when they come are dropped
    and counted.  Null keys match nothing.

    `how: left`, `right` or `full` also gives the rows of that side, or of both, that have met nobody, once, when
    the watermark less `lateness` is so far that nobody can come any more; the columns of the other side are null
    then.  It may have had no row so far: `left_columns` and `right_columns` say its columns and their types.
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
        how: str = "inner",
        left_columns: Mapping[str, str] | None = None,
        right_columns: Mapping[str, str] | None = None,
    ) -> None:
        self.left, self.right = left, right
        if left == right:
            raise SpecError("right", "must be another upstream operator than `left`")
        self.keys = names(keys, "keys", least=1, taken=(time,))
        self.within = duration_us(within, "within", least=0)
        self.time = time
        self.lateness = duration_us(lateness, "lateness", least=0)
        self.suffix = suffix
        how = choice(how, "how", ("inner", "left", "right", "full"))
        self.keeps_left, self.keeps_right = how in ("left", "full"), how in ("right", "full")
        own = {*self.keys, self.time}
        self.left_columns = _types_of(left_columns, "left_columns", self.keeps_right, own)
        self.right_columns = _types_of(right_columns, "right_columns", self.keeps_left, own)
        if self.left_columns is not None and self.right_columns is not None:
            self._right_names(self.left_columns, self.right_columns)

    @property
    def outer(self) -> bool:
        """Whether rows without a partner are given."""
        return self.keeps_left or self.keeps_right

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        left, right = input_of(inputs, self.left, "left"), input_of(inputs, self.right, "right")
        for columns in (left, right):
            require(columns, self.keys, "keys")
            require(columns, [self.time], "time")
        require(left, self.left_columns or (), "left_columns")
        require(right, self.right_columns or (), "right_columns")
        left = left if self.left_columns is None else tuple(self.left_columns)
        right = right if self.right_columns is None else tuple(self.right_columns)
        if left is None or right is None:
            return None
        known = {*self.keys, self.time}
        added = [n + self.suffix if n in left else n for n in right if n not in known]
        return (*self.keys, self.time, *(n for n in left if n not in known), *added)

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return self.keys

    def split_state(self, tables: Tables, targets: Targets, parallelism: int) -> Sequence[Tables]:
        parts: list[dict[str, pa.Table]] = [
            {"meta": part_of_meta(tables["meta"], n, {})} for n in range(parallelism)
        ]
        for side in ("left", "right"):
            rows = tables.get(side, pa.table({}))
            for part, chosen in zip(parts, slots_of_parts(rows, targets, parallelism), strict=True):
                if len(chosen):
                    part[side] = taken(rows, chosen)
                if self.outer:
                    part[f"{side}_met"] = taken(tables[f"{side}_met"], chosen)
        return parts

    def merge_states(self, parts: Sequence[Tables]) -> Tables:
        return {**super().merge_states(parts), "meta": merged_meta([part["meta"] for part in parts])}

    def initial(self, place: Place) -> JoinState:
        return JoinState()

    def step(self, state: JoinState, inbox: Inbox) -> tuple[JoinState, pa.Table | None]:
        new_left = self._arrived(state, inbox_table(inbox, self.left, self.keys), self.left_columns)
        new_right = self._arrived(state, inbox_table(inbox, self.right, self.keys), self.right_columns)
        old_left, lefts, rights = state.left, _size(state.left), _size(state.right)
        state.left, state.right = concat([old_left, new_left]), concat([state.right, new_right])
        if self.outer:
            state.left_met = np.append(state.left_met, np.zeros(_size(new_left), np.bool_))
            state.right_met = np.append(state.right_met, np.zeros(_size(new_right), np.bool_))
        pieces = [
            self._pairs(state, old_left, new_right, (0, rights)),
            self._pairs(state, new_left, state.right, (lefts, 0)),
        ]
        if inbox.watermark is not None:
            state.closed = later(state.closed, inbox.watermark - self.lateness)
            pieces += self._let_go(state, state.closed)
        return state, concat(pieces)

    def _arrived(
        self, state: JoinState, table: pa.Table | None, types: ColumnTypes | None
    ) -> pa.Table | None:
        """Rows of one side that are in time, with the columns that are declared."""
        table, late = in_time(table, self.time, state.closed)
        state.late += late
        table = self._declared(table, types)
        if table is None:
            return None
        if own := [n for n in table.column_names if n in _OWN]:
            raise ColumnError(f"column {own[0]!r} has a name that the join uses for itself; rename it before")
        return typed(table, self._wide_keys(table)) if self.outer else table

    def _wide_keys(self, table: pa.Table) -> ColumnTypes:
        """Keys of other widths than those that all rows are given with: both sides name them, and may differ in that."""
        held = {n: table.schema.field(n).type for n in self.keys}
        wide = {
            n: pa.int64() if pa.types.is_integer(kind) else pa.float64()
            for n, kind in held.items()
            if pa.types.is_integer(kind) or pa.types.is_floating(kind)
        }
        return {n: kind for n, kind in wide.items() if held[n] != kind}

    def _declared(self, table: pa.Table | None, types: ColumnTypes | None) -> pa.Table | None:
        if table is None or types is None:
            return table
        table = select(table, [*dict.fromkeys([*self.keys, self.time]), *types])
        return typed(table, types)

    def _let_go(self, state: JoinState, closed: int) -> list[pa.Table | None]:
        """Keeps the rows that a row from now on can still meet; gives those of the others that met nobody."""
        given: list[pa.Table | None] = []
        state.left, state.left_met, alone = self._parted(state.left, state.left_met, closed)
        if self.keeps_left and alone is not None:
            given.append(self._alone(alone, left=True))
        state.right, state.right_met, alone = self._parted(state.right, state.right_met, closed)
        if self.keeps_right and alone is not None:
            given.append(self._alone(alone, left=False))
        return given

    def _parted(
        self, table: pa.Table | None, met: Bools, closed: int
    ) -> tuple[pa.Table | None, Bools, pa.Table | None]:
        """Rows that stay, whether they have met another, and those that go and have not."""
        if table is None:
            return None, met, None
        stays = times(table, self.time) >= closed - self.within
        if stays.all():
            return table, met, None
        kept = table.filter(pa.array(stays)) if stays.any() else None
        if not self.outer:
            return kept, met, None
        return kept, met[stays], table.filter(pa.array(~stays & ~met))

    def _alone(self, rows: pa.Table, left: bool) -> pa.Table | None:
        """Rows of one side with nulls for the columns of the other."""
        if not rows.num_rows:
            return None
        head = list(dict.fromkeys([*self.keys, self.time]))
        rest = [n for n in rows.column_names if n not in head]
        table = to_arrow(self._frame(rows).select([*head, *rest]))
        table = typed(table, (self.left_columns if left else self.right_columns) or {})
        others = (self.right_columns if left else self.left_columns) or {}
        nulls = {n: pa.nulls(table.num_rows, kind) for n, kind in others.items()}
        own = {n: table.column(n) for n in rest}
        lefts, rights = (own, nulls) if left else (nulls, own)
        renamed = self._renamed(lefts, rights)
        return canonical(
            pa.table(
                {
                    **{n: table.column(n) for n in head},
                    **lefts,
                    **{renamed[n]: values for n, values in rights.items()},
                }
            )
        )

    def _right_names(self, left: Collection[str], right: Collection[str]) -> dict[str, str]:
        """What the columns of the right side are called in the output.  SpecError for two alike."""
        found = {n: n + self.suffix if n in left else n for n in right}
        every = [*self.keys, self.time, *left, *found.values()]
        twice = next((n for n in found.values() if every.count(n) > 1), None)
        if twice is not None:
            raise SpecError("suffix", f"two columns of the output would be called {twice!r}")
        return found

    def _renamed(self, left: Collection[str], right: Collection[str]) -> dict[str, str]:
        try:
            return self._right_names(left, right)
        except SpecError as error:
            raise ColumnError(error.reason) from None

    def _pairs(
        self, state: JoinState, left: pa.Table | None, right: pa.Table | None, before: tuple[int, int]
    ) -> pa.Table | None:
        """The pairs of some rows of both sides; `before`: how many rows of each side are in the state before them."""
        if (
            left is None
            or right is None
            or any(_is_null(side, n) for side in (left, right) for n in self.keys)
        ):
            return None
        left, right = self._with_one_key(left, right)
        near = (pl.col(self.time) - pl.col(_TIME)).abs() <= self.within
        one, other = self._frame(left), self._frame(right).rename({self.time: _TIME})
        if self.outer:
            one, other = one.with_row_index(_LEFT), other.with_row_index(_RIGHT)
        on = list(self.keys)
        if len(on) == 1 and one.schema[on[0]].is_float():
            # Two keys: with one, polars compares the row of a single one by a rule of its own, in which NaN is not NaN.
            one, other = (side.with_columns(pl.lit(0).alias(_SAME)) for side in (one, other))
            on.append(_SAME)
        joined = (
            one.join(other, on=on, how="inner", suffix=self.suffix, maintain_order="left_right")
            .filter(near)
            .with_columns(pl.max_horizontal(self.time, _TIME).alias(self.time))
        )
        if self.outer:
            state.left_met[joined[_LEFT].to_numpy().astype(np.int64) + before[0]] = True
            state.right_met[joined[_RIGHT].to_numpy().astype(np.int64) + before[1]] = True
        rest = [c for c in joined.columns if c not in (*self.keys, self.time, *_OWN)]
        if not joined.height:
            return None
        table = to_arrow(joined.select([*self.keys, self.time, *rest]))
        if not self.outer:
            return table
        lefts = [n for n in left.column_names if n not in (*self.keys, self.time)]
        renamed = self._renamed(lefts, self.right_columns or ())
        rights = {renamed[n]: kind for n, kind in (self.right_columns or {}).items()}
        return canonical(typed(table, {**(self.left_columns or {}), **rights}))

    def _with_one_key(self, left: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The same rows with keys of the same types."""
        require_one_key(left.schema, right.schema, self.keys)
        for name in self.keys:
            kinds = [table.schema.field(name).type for table in (left, right)]
            if kinds[0] != kinds[1]:
                one = _wider(*kinds)
                left, right = typed(left, {name: one}), typed(right, {name: one})
        return left, right

    def _frame(self, table: pa.Table) -> pl.DataFrame:
        return to_polars(table).with_columns(pl.Series(self.time, times(table, self.time)))

    def counters(self, state: JoinState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {LATE_ROWS: state.late, "left_rows": _size(state.left), "right_rows": _size(state.right)}

    def freeze(self, state: JoinState) -> Callable[[], Tables]:
        sides = {n: t for n, t in (("left", state.left), ("right", state.right)) if t is not None}
        meta = pa.table({"closed": pa.array([state.closed], pa.int64()), "late": [state.late]})
        if not self.outer:
            return lambda: {**sides, "meta": meta}
        left, right = state.left_met, state.right_met  # a step puts others in their place before it writes
        met = {"left_met": pa.table({"met": left}), "right_met": pa.table({"met": right})}
        return lambda: {**sides, **met, "meta": meta}

    def restore(self, place: Place, tables: Tables) -> JoinState:
        meta = one_row(tables["meta"])
        left = self._declared(tables.get("left"), self.left_columns)
        right = self._declared(tables.get("right"), self.right_columns)
        state = JoinState(left, right, meta["closed"], meta["late"])
        if self.outer:
            if "left_met" not in tables:
                raise SpecError(
                    "how",
                    "the state is that of an inner join, which does not know what its rows have met; give the operator "
                    "another name, so that it begins anew",
                )
            state.left_met, state.right_met = (
                tables[n].column("met").to_numpy() for n in ("left_met", "right_met")
            )
        return state


def _is_null(table: pa.Table, name: str) -> bool:
    """Whether no row has a value, so that the column may have no type."""
    return bool(table.column(name).null_count == table.num_rows)


def _size(table: pa.Table | None) -> int:
    return 0 if table is None else int(table.num_rows)


def _wider(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of both, where equal keys may be of both."""
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(other):  # UTC has several names
        other = pa.timestamp(other.unit, kind.tz)
    one = [pa.schema([("", kind)]), pa.schema([("", other)])]
    return pa.unify_schemas(one, promote_options="permissive").field(0).type


def _types_of(
    columns: Mapping[str, str] | None, parameter: str, needed: bool, own: Collection[str]
) -> ColumnTypes | None:
    """The columns of a side that may be missing.  SpecError unless they are given where that can be, and only there."""
    if columns is None and not needed:
        return None
    if not needed:
        raise SpecError(parameter, "is for a side that rows may come without; with this `how` they never do")
    if not isinstance(columns, Mapping):
        raise SpecError(
            parameter,
            "say the other columns of this side, with their types, as in {price: int64, channel: string}: rows may come out "
            "without it before its first row is there",
        )
    found = {}
    for name, kind in columns.items():
        if name in own:
            raise SpecError(f"{parameter}.{name}", "is a key or the time, which every row has")
        if name in _OWN:
            raise SpecError(
                f"{parameter}.{name}", "is a name that the join uses for itself; rename it before"
            )
        try:
            found[str(name)] = pa.type_for_alias(str(kind))
        except ValueError:
            example = "int64, float64, string, bool or timestamp[us]"
            raise SpecError(f"{parameter}.{name}", f"{kind!r} is not a type; write {example}") from None
    return found


class StreamTableJoin(LatestRowsOperator):
    """Each row of `stream` with the latest row of the same `keys` from `table`; the table's rows of a batch
    come first.

    `how: inner` drops rows that find nothing, `left` keeps them with nulls (and, before the table's first
    row, without its columns unless `columns` names them).  Null keys match nothing.  `columns`: which of the
    table's columns to add (default: all but the keys); those that the stream has too get `suffix`.
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

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return tuple(self.keys)

    @property
    def state_inputs(self) -> tuple[str, ...]:
        """See `Operator.state_inputs`: rows of the stream leave nothing."""
        return (self.table,)

    def step(self, state: LatestRows, inbox: Inbox) -> tuple[LatestRows, pa.Table | None]:
        updates = without_nulls(inbox_table(inbox, self.table, self.keys), self.keys)
        stream = inbox_table(inbox, self.stream, self.keys)
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

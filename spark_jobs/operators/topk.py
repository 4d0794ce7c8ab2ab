"""The k greatest rows, in all or per group: of each batch, or of the latest value of every key.

Ties go to the key that appeared first, so the result depends on the input's order and on nothing else.
`scope: stream` keeps one number a key and emits, each batch, the whole list of every group that got rows;
`scope: batch` has no state and suits complete windows, whose rows all arrive in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.contract import Columns, Inbox, Kind, Operator, Place, Tables, Targets, joined_rows
from reprise.spark_jobs.operators.aggregates import decimals, numbers
from reprise.spark_jobs.operators.frames import (
    Bools,
    ColumnError,
    Ints,
    column,
    inbox_table,
    one_row,
    rows,
    select,
)
from reprise.spark_jobs.operators.keys import KeyIndex, group
from reprise.spark_jobs.operators.parameters import choice, names, steps_as, truth, whole
from reprise.spark_jobs.operators.rescaling import merged_meta, offsets, part_of_meta, slots_of_parts, taken
from reprise.spark_jobs.topology.columns import merged, require

Values = npt.NDArray[Any]
_NUMBERS = pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_null


@dataclass(slots=True)
class TopState:
    """Value, group and membership by slot of `keys`; arrays are replaced, not changed, so frozen ones stay as
    they are."""

    keys: KeyIndex
    groups: KeyIndex
    value: Values = field(default_factory=lambda: np.zeros(0, np.int64))
    group_of: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    listed: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    kind: pa.DataType = field(default_factory=pa.int64)
    """Of the output column; decimals are kept as whole numbers of their last digit."""


class TopK(Operator):
    """The `k` rows with the greatest `by`, per group `per` (none: over all), with their `rank` from 1.

    Null values are left out; with `scope: stream` a null takes its key off the list, and so does a value of 0
    or less unless `positive: false`.  Emits the columns `per`, `keys`, `by` and `rank`, groups by first
    appearance, best first.
    """

    def __init__(
        self,
        *,
        k: int,
        by: str,
        keys: Sequence[str],
        per: Sequence[str] = (),
        scope: str = "stream",
        positive: bool = True,
    ) -> None:
        self.k = whole(k, "k")
        (self.by,) = names([by], "by", taken=("rank",))
        self.keys = names(keys, "keys", least=1, taken=("rank",))
        self.per = names(per, "per", taken=("rank",))
        self.all = tuple(dict.fromkeys([*self.per, *self.keys]))
        self.stream = choice(scope, "scope", ("stream", "batch")) == "stream"
        self.positive = truth(positive, "positive")
        if not self.stream and steps_as(self, TopK):
            self.kind = Kind.CONVERGENT

    def oldest_needed(self, batch: int) -> int | None:
        """See `Operator.oldest_needed`: a list of one batch depends on that alone."""
        return None if self.stream else batch

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        columns = merged(inputs)
        for name, wanted in (("by", (self.by,)), ("keys", self.keys), ("per", self.per)):
            require(columns, wanted, name)
        return tuple(dict.fromkeys([*self.all, self.by, "rank"]))

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`: a list is of one group, all of whose keys are needed."""
        return self.per if self.stream else None

    def split_state(self, tables: Tables, targets: Targets, parallelism: int) -> Sequence[Tables]:
        parts, group_of = [], tables["values"].column("group").to_numpy()
        groups = slots_of_parts(tables["groups"], targets, parallelism)
        for number, chosen in enumerate(groups):
            slots = np.flatnonzero(np.isin(group_of, chosen))
            values = taken(tables["values"], slots)
            at = values.column_names.index("group")
            moved = pa.array(np.searchsorted(chosen, group_of[slots]))
            sizes = {"keys": len(slots), "groups": len(chosen)}
            parts.append(
                {
                    "keys": taken(tables["keys"], slots),
                    "groups": taken(tables["groups"], chosen),
                    "values": values.set_column(at, "group", moved),
                    "meta": part_of_meta(tables["meta"], number, sizes),
                }
            )
        return parts

    def merge_states(self, parts: Sequence[Tables]) -> Tables:
        before = offsets(one_row(part["meta"])["groups"] for part in parts)
        values = [part["values"] for part in parts]
        listed = [v for v in values if v.column("listed").to_numpy().any()]
        kinds = {v.schema.field("value").type for v in listed}
        if len(kinds) > 1:
            raise ColumnError(f"{self.by!r} is of another type in some partitions: {sorted(map(str, kinds))}")
        kind = next(iter(kinds), values[0].schema.field("value").type)
        columns = {
            "value": pa.chunked_array(
                [v.column("value").combine_chunks().cast(kind, safe=False) for v in values]
            ),
            "group": pa.chunked_array(
                [pc.add(v.column("group").combine_chunks(), n) for v, n in zip(values, before, strict=True)]
            ),
            "listed": pa.chunked_array([v.column("listed").combine_chunks() for v in values]),
        }
        return {
            "keys": joined_rows([part["keys"] for part in parts]),
            "groups": joined_rows([part["groups"] for part in parts]),
            "values": pa.table(columns).combine_chunks(),
            "meta": merged_meta([part["meta"] for part in parts]),
        }

    def initial(self, place: Place) -> TopState | None:
        return TopState(KeyIndex(self.all), KeyIndex(self.per)) if self.stream else None

    def step(self, state: TopState | None, inbox: Inbox) -> tuple[TopState | None, pa.Table | None]:
        table = inbox_table(inbox, keys=self.all)
        if table is None:
            return state, None
        return state, self._of_batch(table) if state is None else self._of_stream(state, table)

    def _of_batch(self, table: pa.Table) -> pa.Table | None:
        value, listed = self._values(table)
        groups = group(table, self.per)
        chosen, rank = _best(self.k, np.flatnonzero(listed), value, groups.codes)
        picked = select(table, [*self.all, self.by]).take(pa.array(chosen))
        return rows({**{n: picked.column(n) for n in picked.column_names}, "rank": rank})

    def _of_stream(self, state: TopState, table: pa.Table) -> pa.Table | None:
        touched = self._upsert(state, table)
        member = state.listed if state.groups.size == 1 else state.listed & touched[state.group_of]
        chosen, rank = _best(self.k, np.flatnonzero(member), state.value, state.group_of)
        if not len(chosen):
            return None
        keys = state.keys.keys(chosen)
        best = _as_column(state.value[chosen], state.kind)
        return rows({**{n: keys.column(n) for n in self.all}, self.by: best, "rank": rank})

    def _upsert(self, state: TopState, table: pa.Table) -> Bools:
        """Apply a batch; returns which groups it touched."""
        new, new_listed = self._values(table)
        groups = group(table, self.all)
        slots = state.keys.slots(groups)
        per = group(groups.keys if self.per else table, self.per)
        group_slots = state.groups.slots(per)
        last = np.zeros(groups.size, np.int64)
        last[groups.codes] = np.arange(table.num_rows)
        given = table.schema.field(self.by).type
        kind = state.kind if pa.types.is_null(given) else _kind(given)
        if state.listed.any() and kind != state.kind:
            raise ColumnError(f"{self.by!r} changed its type from {state.kind} to {kind} between batches")
        state.kind = kind
        value = state.value if pa.types.is_null(given) else state.value.astype(new.dtype)
        state.value = _assigned(value, slots, new[last], state.keys.size)
        state.listed = _assigned(state.listed, slots, new_listed[last], state.keys.size)
        of_key = group_slots[per.codes] if self.per else np.zeros(groups.size, np.int64)
        state.group_of = _assigned(state.group_of, slots, of_key, state.keys.size)
        touched = np.zeros(state.groups.size, np.bool_)
        touched[group_slots] = True
        return touched

    def _values(self, table: pa.Table) -> tuple[Values, Bools]:
        """The column `by` as numbers, and which rows can be on a list."""
        kind = column(table, self.by).type
        if not any(is_one(kind) for is_one in _NUMBERS):
            raise ColumnError(f"{self.by!r} must hold numbers to rank by, not {kind}")
        own, valid = numbers(table, self.by)
        assert own is not None
        listed = np.ones(table.num_rows, np.bool_) if valid is None else valid
        value = np.zeros(table.num_rows, own.dtype)
        value[listed] = own
        listed = listed & ~np.isnan(value)
        return value, listed & (value > 0) if self.stream and self.positive else listed

    def counters(self, state: TopState | None) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {"keys": state.keys.size} if state else {}

    def freeze(self, state: TopState | None) -> Callable[[], Tables]:
        if state is None:
            return dict
        keys, groups = state.keys.freeze(), state.groups.freeze()
        meta = pa.table({"keys": [state.keys.size], "groups": [state.groups.size]})
        value, kind, rest = state.value, state.kind, {"group": state.group_of, "listed": state.listed}
        return lambda: {
            "keys": keys(),
            "groups": groups(),
            "values": pa.table({"value": _as_column(value, kind), **rest}),
            "meta": meta,
        }

    def restore(self, place: Place, tables: Tables) -> TopState | None:
        if not self.stream:
            return None
        meta, values = one_row(tables["meta"]), tables["values"]
        value, _ = numbers(values, "value")
        assert value is not None
        return TopState(
            KeyIndex(self.all, tables["keys"], meta["keys"]),
            KeyIndex(self.per, tables["groups"], meta["groups"]),
            value,
            values.column("group").to_numpy(),
            values.column("listed").to_numpy(),
            values.schema.field("value").type,
        )


def _kind(kind: pa.DataType) -> pa.DataType:
    """The type in which numbers of a type are kept."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(kind.precision, 38), kind.scale)
    if pa.types.is_uint64(kind):
        return kind
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def _as_column(value: Values, kind: pa.DataType) -> pa.Array:
    return decimals(pa.array(value), kind) if pa.types.is_decimal(kind) else pa.array(value, kind)


def _assigned(array: Values, slots: Ints, values: Values, size: int) -> Values:
    result = np.zeros(size, array.dtype)
    result[: len(array)] = array
    result[slots] = values
    return result


def _best(k: int, candidates: Ints, value: Values, group_of: Ints) -> tuple[Ints, Ints]:
    """The best k of `candidates` in each group, by group, value (greatest first) and number; and their ranks
    from 1."""
    if not len(candidates):
        return candidates, candidates
    own, groups = value[candidates], group_of[candidates]
    if groups[0] == groups[-1] and len(candidates) > 4 * k and not np.any(groups != groups[0]):
        # One group: sort only what is at least the k-th value, not a million keys.
        least = np.partition(own, len(own) - k)[len(own) - k]
        few = np.flatnonzero(own >= least)
        candidates, own, groups = candidates[few], own[few], groups[few]
    # Not -own: the least integer has no opposite in 64 bits.
    falling = -own if own.dtype == np.float64 else ~own
    order = np.lexsort((candidates, falling, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    position = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    top = position < k
    return candidates[order][top], position[top] + 1

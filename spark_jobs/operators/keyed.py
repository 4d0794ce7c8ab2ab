"""Running state by key, without windows: aggregates since the start, and the latest row of each key.

Both emit changes only: each batch, one row for every key that the batch touched, in order of first
appearance.  A consumer that keeps the last row of each key therefore holds exactly this operator's state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.contract import Columns, Inbox, Place, Tables
from reprise.spark_jobs.operators import slots as slotted
from reprise.spark_jobs.operators.aggregates import (
    accumulators_of,
    parse_aggregates,
    partials,
    require_columns,
    require_other_names,
)
from reprise.spark_jobs.operators.frames import inbox_table, one_row, rows
from reprise.spark_jobs.operators.keys import KeyIndex, group
from reprise.spark_jobs.operators.latest import LatestRows, LatestRowsOperator
from reprise.spark_jobs.operators.paged import PagedOperator
from reprise.spark_jobs.operators.parameters import names
from reprise.spark_jobs.operators.rescaling import KeyedTables
from reprise.spark_jobs.operators.slots import Accumulators
from reprise.spark_jobs.operators.slotted import Changes, KeySlots
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import Spillable
from reprise.spark_jobs.topology.columns import merged, require


@dataclass(slots=True)
class KeyedState:
    """One set of accumulators over the slots of a key index."""

    index: KeyIndex
    values: Accumulators = field(default_factory=Accumulators)
    known: int = 0
    """Keys before the last step."""


class KeyedAggregate(PagedOperator, KeyedTables, KeySlots):
    """Aggregates by `keys` over everything seen so far; emits the keys that changed, with their
    aggregates."""

    def __init__(self, keys: Sequence[str], aggregate: Mapping[str, str]) -> None:
        self.keys = names(keys, "keys")
        self.aggregates = parse_aggregates(aggregate)
        require_other_names(self.aggregates, self.keys)
        self._names = accumulators_of(self.aggregates)

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        columns = merged(inputs)
        require(columns, self.keys, "keys")
        require_columns(columns, self.aggregates)
        return (*self.keys, *(a.name for a in self.aggregates))

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return self.keys

    def initial(self, place: Place) -> KeyedState:
        return KeyedState(KeyIndex(self.keys))

    def step(self, state: KeyedState, inbox: Inbox) -> tuple[KeyedState, pa.Table | None]:
        state.known = state.index.size
        table = inbox_table(inbox, keys=self.keys)
        if table is None:
            return state, None
        groups = group(table, self.keys)
        slots = state.index.slots(groups)
        state.values.update(slots, partials(table, groups.codes, groups.size, self.aggregates))
        values = state.values.gather(slots, self._names)
        keys = {name: groups.keys.column(name) for name in self.keys}
        return state, rows({**keys, **{a.name: a.finish(values) for a in self.aggregates}})

    def counters(self, state: KeyedState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {"keys": state.index.size}

    def freeze(self, state: KeyedState) -> Callable[[], Tables]:
        keys, values, size = state.index.freeze(), state.values.freeze(), state.index.size
        return lambda: {"keys": keys(), "values": values(), "meta": pa.table({"slots": [size]})}

    def freeze_pages(self, state: KeyedState) -> Callable[[], Parts]:
        keys, values = state.index.freeze_pages(), state.values.freeze_pages()
        size = state.index.size
        return lambda: {"keys": keys(), "values": values(), "meta": pa.table({"slots": [size]})}

    def spillable(self, state: KeyedState) -> Sequence[Spillable]:
        return state.index, state.values

    def restore(self, place: Place, tables: Tables) -> KeyedState:
        index = KeyIndex(self.keys, tables["keys"], one_row(tables["meta"])["slots"])
        return KeyedState(index, slotted.restore(tables["values"]))

    @property
    def slot_columns(self) -> tuple[str, ...]:
        return self._columns()

    def changes(self, state: KeyedState) -> Changes:
        return Changes(range(state.known, state.index.size))

    def open_slots(self, state: KeyedState) -> Sequence[Hashable]:
        return range(state.index.size)

    def load(self, place: Place, table: pa.Table | None, rest: Mapping[str, Any]) -> KeyedState:
        return self.initial(place) if table is None else KeyedState(*self.loaded(table))


class KeyedCount(KeyedAggregate):
    """Rows by `keys` since the start, in a column called `name`."""

    def __init__(self, keys: Sequence[str], name: str = "count") -> None:
        super().__init__(keys, {name: "count()"})


class Latest(LatestRowsOperator):
    """Keeps the latest row of each key and emits, each batch, the new latest rows of the keys that it
    touched.

    This is "holds the state of what it subscribes to" (operators O4..O14 of Su and Zhou, section 7.2).  With
    several upstream operators the later in `inputs` wins within a batch; add a column that tells them apart
    to `keys` to keep both.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = names(keys, "keys")

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        columns = merged(inputs)
        require(columns, self.keys, "keys")
        return columns

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return tuple(self.keys)

    def step(self, state: LatestRows, inbox: Inbox) -> tuple[LatestRows, pa.Table | None]:
        table = inbox_table(inbox, keys=self.keys)
        return state, None if table is None else state.update(table)

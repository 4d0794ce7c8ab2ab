"""Aggregates as they stand after each single row: since the stream began, or since a window of processing time did.

`KeyedAggregate` gives a key once a batch; who counts results, or measures how long a row takes to show, needs one
for every row.  Invariant: what a row gives depends on the rows before it in the order of the inbox, never on how
they fall into batches, except by which window a batch is in, and for the last bits of sums and means of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from reprise.spark_jobs.contract import Columns, Inbox, Kind, Place, Tables
from reprise.spark_jobs.operators import slots as slotted
from reprise.spark_jobs.operators.aggregates import (
    accumulators_of,
    combine,
    parse_aggregates,
    partials,
    require_columns,
    require_other_names,
    running,
)
from reprise.spark_jobs.operators.batch_windows import parse_windows, stored_window
from reprise.spark_jobs.operators.frames import column, inbox_table, one_row, rows
from reprise.spark_jobs.operators.keys import KeyIndex, group
from reprise.spark_jobs.operators.paged import PagedOperator
from reprise.spark_jobs.operators.pairs import WINDOW
from reprise.spark_jobs.operators.parameters import names, steps_as
from reprise.spark_jobs.operators.rescaling import KeyedTables
from reprise.spark_jobs.operators.slots import Accumulators
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import Spillable
from reprise.spark_jobs.topology.columns import merged, require


@dataclass(slots=True)
class RunningState:
    """Accumulators by key; `window` is that of the last batch."""

    index: KeyIndex
    values: Accumulators = field(default_factory=Accumulators)
    window: tuple[int, int] | None = None


class RunningAggregate(PagedOperator, KeyedTables):
    """One row for every row that comes: its key, the aggregates of its key up to and with it, and the columns `keep`
    of the row.

    Aggregates go on for ever, or, with `size`, begin anew with each window of processing time: batches count as
    processed when they are due, `interval` apart, so that a replay gives the same rows.  `first`: length of the
    first window, if shorter.  With `size` the columns `window_start` and `window_end` come first.
    """

    def __init__(
        self,
        *,
        keys: Sequence[str],
        aggregate: Mapping[str, str],
        keep: Sequence[str] = (),
        size: str | None = None,
        interval: str | None = None,
        first: str | None = None,
    ) -> None:
        self.aggregates = parse_aggregates(aggregate)
        self.windows = parse_windows(size, interval, first)
        if self.windows is not None and steps_as(self, RunningAggregate):
            self.kind = Kind.CONVERGENT
        self._head = WINDOW if self.windows else ()
        self.keys = names(keys, "keys", taken=self._head)
        taken = {*self._head, *self.keys}
        require_other_names(self.aggregates, taken, "another output column")
        self.keep = names(keep, "keep", taken=taken | {a.name for a in self.aggregates})
        self._names = accumulators_of(self.aggregates)

    def oldest_needed(self, batch: int) -> int | None:
        """See `Operator.oldest_needed`: the first batch of the window."""
        return None if self.windows is None else self.windows.first_batch(batch)

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        columns = merged(inputs)
        require(columns, self.keys, "keys")
        require(columns, self.keep, "keep")
        require_columns(columns, self.aggregates)
        return (*self._head, *self.keys, *(a.name for a in self.aggregates), *self.keep)

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return self.keys

    def initial(self, place: Place) -> RunningState:
        return RunningState(KeyIndex(self.keys))

    def step(self, state: RunningState, inbox: Inbox) -> tuple[RunningState, pa.Table | None]:
        if self.windows is not None:
            window = self.windows.of(inbox.batch)
            if window != state.window:
                state = RunningState(KeyIndex(self.keys), window=window)
        table = inbox_table(inbox, keys=self.keys)
        if table is None:
            return state, None
        groups = group(table, self.keys)
        slots = state.index.slots(groups)
        whole = state.values.fit(partials(table, groups.codes, groups.size, self.aggregates))
        before = state.values.gather(slots, self._names)
        values = state.values.fit(running(table, groups.codes, self.aggregates))
        for name, held in before.items():
            values[name] = combine(name, held[groups.codes], values[name])
        state.values.update(slots, whole)
        head = dict(zip(self._head, (pa.repeat(t, table.num_rows) for t in state.window or ()), strict=True))
        keys = {name: column(table, name) for name in self.keys}
        kept = {name: column(table, name) for name in self.keep}
        return state, rows({**head, **keys, **{a.name: a.finish(values) for a in self.aggregates}, **kept})

    def counters(self, state: RunningState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {"keys": state.index.size}

    def freeze(self, state: RunningState) -> Callable[[], Tables]:
        keys, values, meta = state.index.freeze(), state.values.freeze(), _meta(state)
        return lambda: {"keys": keys(), "values": values(), "meta": meta}

    def freeze_pages(self, state: RunningState) -> Callable[[], Parts]:
        keys, values, meta = state.index.freeze_pages(), state.values.freeze_pages(), _meta(state)
        return lambda: {"keys": keys(), "values": values(), "meta": meta}

    def spillable(self, state: RunningState) -> Sequence[Spillable]:
        return state.index, state.values

    def restore(self, place: Place, tables: Tables) -> RunningState:
        meta = one_row(tables["meta"])
        window = None if meta["start"] is None else (meta["start"], meta["end"])
        index = KeyIndex(self.keys, tables["keys"], meta["slots"])
        return RunningState(index, slotted.restore(tables["values"]), window)


def _meta(state: RunningState) -> pa.Table:
    return pa.table({**stored_window(state.window), "slots": [state.index.size]})

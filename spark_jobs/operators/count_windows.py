"""Aggregates over windows of a number of rows, by key: each window closes with its last row, whatever the time is.

Invariant: rows of a key fill its windows in inbox order; a window is given in the batch that brings its last row, windows
of one batch in the order in which they were filled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Columns, Inbox, Place, Tables
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import slots as slots_module
from reprise.spark_jobs.operators.aggregates import (
    ROWS,
    Partials,
    combine,
    parse_aggregates,
    partials,
    require_columns,
    require_other_names,
    unwritten,
)
from reprise.spark_jobs.operators.frames import Ints, inbox_table, one_row, rows
from reprise.spark_jobs.operators.keys import KeyIndex, group, ranks
from reprise.spark_jobs.operators.parameters import names
from reprise.spark_jobs.operators.rescaling import KeyedTables
from reprise.spark_jobs.operators.slots import Accumulators
from reprise.spark_jobs.operators.slotted import Changes, KeySlots, key_columns
from reprise.spark_jobs.topology.columns import merged, require


@dataclass(slots=True)
class CountState:
    """The open window of each key; a key without one has no rows."""

    index: KeyIndex
    values: Accumulators = field(default_factory=Accumulators)
    changes: Changes = field(default_factory=Changes)
    """Of the last step."""


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The rows of one batch by key and window; `code`: which key of the batch; `last`: the last row of each."""

    code: Ints
    last: Ints
    values: Partials
    full: np.ndarray[Any, np.dtype[np.bool_]]


class CountWindow(KeyedTables, KeySlots):
    """Aggregates over each `size` rows of a key, one row a window.  What a key has at the end of the stream is not given."""

    def __init__(self, *, size: int, aggregate: Mapping[str, str], keys: Sequence[str] = ()) -> None:
        if type(size) is not int or not 1 <= size <= 1_000_000_000:
            raise SpecError("size", f"{size!r} is no number of rows from 1 to 1,000,000,000")
        self.size = size
        self.keys = names(keys, "keys")
        self.aggregates = parse_aggregates(aggregate)
        require_other_names(self.aggregates, self.keys)

    @property
    def slot_columns(self) -> tuple[str, ...]:
        return self._columns()

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        columns = merged(inputs)
        require(columns, self.keys, "keys")
        require_columns(columns, self.aggregates)
        return (*self.keys, *(a.name for a in self.aggregates))

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return self.keys

    def initial(self, place: Place) -> CountState:
        return CountState(KeyIndex(self.keys))

    def step(self, state: CountState, inbox: Inbox) -> tuple[CountState, pa.Table | None]:
        state.changes = Changes()
        if (table := inbox_table(inbox, keys=self.keys)) is None:
            return state, None
        groups = group(table, self.keys)
        slots = state.index.slots(groups)
        before = state.values.gather(slots, [ROWS]).get(ROWS, np.zeros(len(slots), np.int64))
        pieces = self._pieces(state, table, groups.codes, slots, before)
        full = np.flatnonzero(pieces.full)
        given = full[np.argsort(pieces.last[full], kind="stable")]
        keys = {name: groups.keys.column(name).take(pa.array(pieces.code[given])) for name in self.keys}
        values = {name: array[given] for name, array in pieces.values.items()}
        left = np.flatnonzero(~pieces.full)
        state.values.put(slots, self._left(pieces, left, len(slots)))
        self._note(state, slots, before, pieces.code[full], pieces.code[left])
        return state, rows({**keys, **{a.name: a.finish(values) for a in self.aggregates}})

    def _pieces(self, state: CountState, table: pa.Table, codes: Ints, slots: Ints, before: Ints) -> _Pieces:
        """The rows of a batch by key and window, those of the open window with what it has already."""
        window = (before[codes] + ranks(codes)) // self.size
        number, dense = np.unique(codes * (int(window.max()) + 1) + window, return_inverse=True)
        first = np.full(len(number), len(codes), np.int64)
        last = np.zeros(len(number), np.int64)
        np.minimum.at(first, dense, np.arange(len(codes)))
        np.maximum.at(last, dense, np.arange(len(codes)))
        code = codes[first]
        values = state.values.fit(partials(table, dense, len(number), self.aggregates))
        goes_on = np.flatnonzero((window[first] == 0) & (before[code] > 0))
        held = state.values.gather(slots[code[goes_on]], list(values))
        for name, array in held.items():
            values[name][goes_on] = combine(name, array, values[name][goes_on])
        return _Pieces(code, last, values, values[ROWS] == self.size)

    def _left(self, pieces: _Pieces, left: Ints, size: int) -> Partials:
        """The open window of each key of the batch."""
        found = {}
        for name, array in pieces.values.items():
            found[name] = np.full(size, unwritten(name, array), array.dtype)
            found[name][pieces.code[left]] = array[left]
        return found

    def _note(self, state: CountState, slots: Ints, before: Ints, closed: Ints, left: Ints) -> None:
        was_open, has_closed = before > 0, np.zeros(len(slots), np.bool_)
        has_closed[closed] = True
        opened = left[~was_open[left] | has_closed[left]]
        gone = slots[has_closed]
        closings = pa.table(key_columns(state.index.keys(gone))) if len(gone) else None
        if closings is not None and not self.keys:
            closings = pa.table({"all": [True]})  # a row for the one slot that there is
        state.changes = Changes(slots[opened].tolist(), gone.tolist(), closings)

    def counters(self, state: CountState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {"keys": state.index.size, "open": len(state.values.present())}

    def changes(self, state: CountState) -> Changes:
        return state.changes

    def open_slots(self, state: CountState) -> Sequence[Hashable]:
        return list(state.values.present().tolist())

    def open_count(self, state: CountState) -> int:
        return len(state.values.present())

    def load(self, place: Place, table: pa.Table | None, rest: Mapping[str, Any]) -> CountState:
        return self.initial(place) if table is None else CountState(*self.loaded(table))

    def freeze(self, state: CountState) -> Callable[[], Tables]:
        keys, values, size = state.index.freeze(), state.values.freeze(), state.index.size
        return lambda: {"keys": keys(), "values": values(), "meta": pa.table({"slots": [size]})}

    def restore(self, place: Place, tables: Tables) -> CountState:
        index = KeyIndex(self.keys, tables["keys"], one_row(tables["meta"])["slots"])
        return CountState(index, slots_module.restore(tables["values"]))

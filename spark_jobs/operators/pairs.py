"""The join that forgets nothing: every pair of rows with equal keys, when its second half comes.

Problem: state grows for as long as the stream, or the window, lasts, and a batch brings few rows; joining them with
all that is held by a hash table over everything would cost as much as the state is large.  Rows are therefore kept
in the order in which they came, and their numbers sorted by key in runs that are merged like those of a
log-structured tree: a batch looks its keys up in about log2(rows) runs.  Invariant: what is emitted follows from the
rows and their order alone, so a restored state, whose runs are cut elsewhere, goes on alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Columns, Inbox, Kind, Place, Tables, Targets
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.batch_windows import parse_windows, stored_window
from reprise.spark_jobs.operators.chunks import ChunkStore
from reprise.spark_jobs.operators.frames import ColumnError, Ints, concat, inbox_table, one_row, without_nulls
from reprise.spark_jobs.operators.keys import KeyIndex, group
from reprise.spark_jobs.operators.paged import PagedOperator
from reprise.spark_jobs.operators.parameters import names, steps_as
from reprise.spark_jobs.operators.rescaling import merged_meta
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import LEAST, Spillable, SpillFullError, SpillStore, at_hand
from reprise.spark_jobs.topology.columns import input_of, require

WINDOW = ("window_start", "window_end")


class Side:
    """Rows of one input, found by the slot of their key."""

    __slots__ = ("_out", "_runs", "rows")

    def __init__(self) -> None:
        self.rows = ChunkStore()
        self._out = 0
        """How many runs, from the first on, are merged no more, as they are in files or before one that is."""
        self._runs: list[tuple[Ints, Ints]] = []
        """Slots in ascending order, and the numbers of their rows, ascending within a slot."""

    def add(self, table: pa.Table, slots: Ints) -> None:
        """Append rows; `slots` has the slot of each."""
        order = np.argsort(slots, kind="stable")
        runs = [*self._runs, (slots[order], self.rows.size + order)]
        self.rows.append(table)
        while len(runs) > 1 + self._out and len(runs[-2][0]) <= 2 * len(runs[-1][0]):
            both = [np.concatenate(pair) for pair in zip(runs[-2], runs[-1], strict=True)]
            merged = np.argsort(both[0], kind="stable")
            runs[-2:] = [(both[0][merged], both[1][merged])]
        self._runs = runs
        if (store := at_hand()) is not None:
            with suppress(SpillFullError):
                self.spill(store, LEAST)

    def spill(self, store: SpillStore, least: int) -> int:
        """See `Spillable.spill`."""
        held = self.rows.spill(store, least)
        for at, run in enumerate(self._runs):
            if store.has(run[0].ctypes.data):
                continue
            if run[0].nbytes < least:
                held += sum(array.nbytes for array in run)
                continue
            self._runs[at] = store.moved(run[0]), store.moved(run[1])
            self._out = max(self._out, at + 1)
        return held

    def find(self, slots: Ints) -> tuple[Ints, Ints]:
        """Pairs of an index into `slots` and the number of a row with that slot, by index and then by number."""
        who, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for keys, numbers in self._runs:
            low, high = np.searchsorted(keys, slots, "left"), np.searchsorted(keys, slots, "right")
            count = high - low
            ends = np.cumsum(count)
            who.append(np.repeat(np.arange(len(slots)), count))
            found.append(
                numbers[np.arange(ends[-1] if len(ends) else 0) + np.repeat(low - ends + count, count)]
            )
        index, number = np.concatenate(who), np.concatenate(found)
        order = np.lexsort((number, index))
        return index[order], number[order]


@dataclass(slots=True)
class PairState:
    """Rows of both inputs; `window` is that of the last batch."""

    index: KeyIndex
    left: Side = field(default_factory=Side)
    right: Side = field(default_factory=Side)
    window: tuple[int, int] | None = None


class Join(PagedOperator):
    """Every pair of a row from `left` and one from `right` with equal `keys`, emitted in the batch that brings the
    later one.

    Both sides are kept for ever, or, with `size`, until the window of processing time ends in which they came:
    batches count as processed when they are due, `interval` apart, so that a replay gives the same rows.  `first`:
    length of the first window, if shorter.  Emits the keys, the other columns of both sides (right ones that are
    also on the left get `suffix`), and `window_start` and `window_end` with `size`.  Null keys match nothing.
    """

    def __init__(
        self,
        *,
        left: str,
        right: str,
        keys: Sequence[str],
        size: str | None = None,
        interval: str | None = None,
        first: str | None = None,
        suffix: str = "_right",
    ) -> None:
        self.left, self.right = left, right
        if left == right:
            raise SpecError("right", "must be another upstream operator than `left`")
        self.keys = names(keys, "keys", least=1)
        self.windows = parse_windows(size, interval, first)
        if self.windows is not None and steps_as(self, Join):
            self.kind = Kind.CONVERGENT
        self.suffix = suffix

    def oldest_needed(self, batch: int) -> int | None:
        """See `Operator.oldest_needed`: the first batch of the window."""
        return None if self.windows is None else self.windows.first_batch(batch)

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        left, right = input_of(inputs, self.left, "left"), input_of(inputs, self.right, "right")
        require(left, self.keys, "keys")
        require(right, self.keys, "keys")
        if left is None or right is None:
            return None
        return tuple(self._names(left, right))

    def _names(self, left: Sequence[str], right: Sequence[str]) -> dict[str, str]:
        """The output's columns, and for those of the right side what they are called there.  ColumnError
        for two alike."""
        kept = [n for n in left if n not in self.keys]
        added = {n + self.suffix if n in left else n: n for n in right if n not in self.keys}
        head = WINDOW if self.windows else ()
        every = [*head, *self.keys, *kept, *added]
        twice = next((n for n in every if every.count(n) > 1), None)
        if twice is not None:
            raise SpecError("suffix", f"two columns of the output would be called {twice!r}")
        return {n: added.get(n, "") for n in every}

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return self.keys

    def split_state(self, tables: Tables, targets: Targets, parallelism: int) -> Sequence[Tables]:
        sides = {name: tables[name] for name in ("left", "right")}
        return [{**part, "meta": tables["meta"]} for part in super().split_state(sides, targets, parallelism)]

    def merge_states(self, parts: Sequence[Tables]) -> Tables:
        return {**super().merge_states(parts), "meta": merged_meta([part["meta"] for part in parts])}

    def initial(self, place: Place) -> PairState:
        return PairState(KeyIndex(self.keys))

    def step(self, state: PairState, inbox: Inbox) -> tuple[PairState, pa.Table | None]:
        if self.windows is not None:
            window = self.windows.of(inbox.batch)
            if window != state.window:
                state = PairState(KeyIndex(self.keys), window=window)
        left, left_slots = self._with_keys(state, inbox_table(inbox, self.left, self.keys))
        right, right_slots = self._with_keys(state, inbox_table(inbox, self.right, self.keys))
        pieces = []
        if right is not None:
            who, held = state.left.find(right_slots)
            pieces.append(self._pairs(state, _taken(state.left, held), right.take(pa.array(who))))
            state.right.add(right, right_slots)
        if left is not None:
            who, held = state.right.find(left_slots)
            pieces.append(self._pairs(state, left.take(pa.array(who)), _taken(state.right, held)))
            state.left.add(left, left_slots)
        return state, concat(pieces)

    def _with_keys(self, state: PairState, table: pa.Table | None) -> tuple[pa.Table | None, Ints]:
        """The rows that can meet another, and the slots of their keys."""
        if (table := without_nulls(table, self.keys)) is None:
            return None, np.zeros(0, np.int64)
        groups = group(table, self.keys)
        return table, state.index.slots(groups)[groups.codes]

    def _pairs(self, state: PairState, left: pa.Table | None, right: pa.Table | None) -> pa.Table | None:
        """Row i of one side beside row i of the other."""
        if left is None or right is None or not left.num_rows:
            return None
        try:
            columns = self._names(left.column_names, right.column_names)
        except SpecError as error:
            raise ColumnError(error.reason) from None
        for name, value in zip(WINDOW, state.window or (), strict=False):
            if columns.get(name) == "":
                left = left.append_column(name, pa.repeat(value, left.num_rows))
        return pa.table({n: right.column(own) if own else left.column(n) for n, own in columns.items()})

    def counters(self, state: PairState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {
            "keys": state.index.size,
            "left_rows": state.left.rows.size,
            "right_rows": state.right.rows.size,
        }

    def freeze(self, state: PairState) -> Callable[[], Tables]:
        left, right, meta = state.left.rows.freeze(), state.right.rows.freeze(), stored_window(state.window)
        return lambda: {"left": left(), "right": right(), "meta": pa.table(meta)}

    def freeze_pages(self, state: PairState) -> Callable[[], Parts]:
        left, right = state.left.rows.freeze_pages(), state.right.rows.freeze_pages()
        meta = stored_window(state.window)
        return lambda: {"left": left(), "right": right(), "meta": pa.table(meta)}

    def spillable(self, state: PairState) -> Sequence[Spillable]:
        return state.index, state.left, state.right

    def restore(self, place: Place, tables: Tables) -> PairState:
        state = PairState(KeyIndex(self.keys))
        meta = one_row(tables["meta"])
        if meta["start"] is not None:
            state.window = meta["start"], meta["end"]
        for name, side in (("left", state.left), ("right", state.right)):
            rows, slots = self._with_keys(state, tables[name] if tables[name].num_rows else None)
            if rows is not None:
                side.add(rows, slots)
        return state


def _taken(side: Side, numbers: Ints) -> pa.Table | None:
    return side.rows.take(numbers) if len(numbers) else None

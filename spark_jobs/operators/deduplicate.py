"""The first row of each key, and none of those near it in event time: what was sent twice goes on once.

Invariant: of the rows that were given no two of a key are at most `within` apart; each row that was dropped, and was not
late, is that near to one of its key that was given before it.  A row is decided by those given before it, so only these
are kept, and only as long as a row that comes in time can be near them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import LATE_ROWS, Columns, Inbox, Place, Tables
from reprise.spark_jobs.operators.aggregates import ROWS
from reprise.spark_jobs.operators.entries import Entries
from reprise.spark_jobs.operators.frames import Bools, Ints, in_time, inbox_table, later, one_row, times
from reprise.spark_jobs.operators.keys import group
from reprise.spark_jobs.operators.paged import PagedOperator
from reprise.spark_jobs.operators.parameters import duration_us, names
from reprise.spark_jobs.operators.rescaling import EntriesTables
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import Spillable
from reprise.spark_jobs.topology.columns import merged, require

_AT = "at"
"""The time of a row that was given."""


@dataclass(slots=True)
class DeduplicateState:
    """Times of rows that were given, by key."""

    given: Entries
    closed: int | None = None
    """Rows before this time are late: the greatest watermark less lateness so far."""
    late: int = 0
    duplicates: int = 0


class Deduplicate(PagedOperator, EntriesTables):
    """The rows of the input, as they came, without those of which a row with equal `keys` and a time at most `within` away
    was given before.

    Rows older than the watermark less `lateness` when they come are dropped and counted, as it is not known any more
    whether they are duplicates.
    """

    def __init__(self, *, keys: Sequence[str], within: str, time: str = "time", lateness: str = "0s") -> None:
        self.keys = names(keys, "keys", least=1)
        self.within = duration_us(within, "within", least=0)
        self.time = time
        self.lateness = duration_us(lateness, "lateness", least=0)

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        columns = merged(inputs)
        require(columns, [self.time], "time")
        require(columns, self.keys, "keys")
        return columns

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return self.keys

    def initial(self, place: Place) -> DeduplicateState:
        return DeduplicateState(Entries(self.keys))

    def step(self, state: DeduplicateState, inbox: Inbox) -> tuple[DeduplicateState, pa.Table | None]:
        table, late = in_time(inbox_table(inbox, keys=self.keys), self.time, state.closed)
        state.late += late
        out = None if table is None else self._first_ones(state, table)
        if inbox.watermark is not None:
            state.closed = later(state.closed, inbox.watermark - self.lateness)
            places = state.given.all()
            gone = places[state.given.value(places, _AT) < state.closed - self.within]
            if len(gone):
                state.given.remove(gone)
                state.given.compact()
        return state, out

    def counters(self, state: DeduplicateState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {LATE_ROWS: state.late, "duplicates": state.duplicates, "rows_kept": len(state.given.all())}

    def _first_ones(self, state: DeduplicateState, table: pa.Table) -> pa.Table | None:
        groups, when = group(table, self.keys), times(table, self.time)
        owners = state.given.index.slots(groups)[groups.codes]
        held = state.given.of(np.unique(owners))
        known = _near(state.given.owners(held), state.given.value(held, _AT), owners, when, self.within)
        given = self._chosen(np.flatnonzero(~known), groups.codes, when)
        state.given.add(owners[given], {ROWS: np.ones(len(given), np.int64), _AT: when[given]})
        state.duplicates += table.num_rows - len(given)
        if len(given) == table.num_rows:
            return table
        return table.take(pa.array(given)) if len(given) else None

    def _chosen(self, rows: Ints, codes: Ints, when: Ints) -> Ints:
        """Which of these rows, which no row of an earlier batch is near, are given."""
        _, at = np.unique(codes[rows], return_index=True)
        first = rows[at]  # of each key: nothing before it can be near
        of_key = np.zeros(int(codes.max()) + 1, np.int64)
        of_key[codes[first]] = when[first]
        rest = rows[np.abs(when[rows] - of_key[codes[rows]]) > self.within]
        more = []
        seen = dict[int, list[int]]()
        # one by one, as each depends on those before; where `within` is long these are few
        for row, code, time in zip(rest.tolist(), codes[rest].tolist(), when[rest].tolist(), strict=True):
            others = seen.setdefault(code, [])
            after = bisect_left(others, time - self.within)
            if after == len(others) or others[after] > time + self.within:
                insort(others, time)
                more.append(row)
        return np.sort(np.concatenate([first, np.array(more, np.int64)]))

    def freeze(self, state: DeduplicateState) -> Callable[[], Tables]:
        given, meta = state.given.freeze(), _meta(state)
        return lambda: {**given(), "meta": meta}

    def freeze_pages(self, state: DeduplicateState) -> Callable[[], Parts]:
        given, meta = state.given.freeze_pages(), _meta(state)
        return lambda: {**given(), "meta": meta}

    def spillable(self, state: DeduplicateState) -> Sequence[Spillable]:
        return (state.given,)

    def restore(self, place: Place, tables: Tables) -> DeduplicateState:
        meta = one_row(tables["meta"])
        given = Entries.restore(self.keys, tables)
        return DeduplicateState(given, meta["closed"], meta["late"], meta["duplicates"])


def _meta(state: DeduplicateState) -> pa.Table:
    numbers = {"late": [state.late], "duplicates": [state.duplicates]}
    return pa.table({"closed": pa.array([state.closed], pa.int64()), **numbers})


def _near(held_by: Ints, held_at: Ints, owners: Ints, when: Ints, within: int) -> Bools:
    """Whether something that is held is that near to each row, of which `owners` has the key and `when` the time.

    The nearest of its key are the last one that is held before it, and the first one after it, by time.
    """
    near = np.zeros(len(owners), np.bool_)
    if not len(held_by):
        return near
    order = np.lexsort((held_at, held_by))
    keys, ats = held_by[order], held_at[order]
    every = np.lexsort(
        (
            np.repeat([0, 1], [len(keys), len(owners)]),
            np.concatenate([ats, when]),
            np.concatenate([keys, owners]),
        )
    )
    is_row = every >= len(keys)
    # of each row: the number of the last one that is held at or before it, by key and time
    before = np.empty(len(owners), np.int64)
    before[every[is_row] - len(keys)] = np.cumsum(~is_row)[is_row] - 1
    for step in (0, 1):
        at = np.clip(before + step, 0, len(keys) - 1)
        near |= (before + step == at) & (keys[at] == owners) & (np.abs(ats[at] - when) <= within)
    return near

"""Aggregates over sessions of a key: rows that follow each other in event time without a gap, however long that goes on.

A row that comes out of order may make one session of two.  Those that are open are few numbers each, and rows of a batch are
put together before they meet them.  Invariants: rows of a key that are less than `gap` apart are in one session, however
they fall into batches; a session is given once, when the watermark less the allowed lateness has passed its end, and no row
that comes in time later could have been in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import LATE_ROWS, Columns, Inbox, Place, Tables
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.aggregates import (
    Partials,
    accumulators_of,
    combine,
    parse_aggregates,
    partials,
    require_columns,
    require_other_names,
)
from reprise.spark_jobs.operators.entries import Entries
from reprise.spark_jobs.operators.frames import Ints, in_time, inbox_table, later, one_row, rows, times
from reprise.spark_jobs.operators.keys import group
from reprise.spark_jobs.operators.paged import PagedOperator
from reprise.spark_jobs.operators.parameters import duration_us, names
from reprise.spark_jobs.operators.rescaling import EntriesTables
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import Spillable
from reprise.spark_jobs.topology.columns import merged, require

_FIRST, _LAST = "first", "last"
"""Times of the first and the last row of a session, beside its aggregates."""


@dataclass(slots=True)
class SessionState:
    """Open sessions by key."""

    open: Entries
    closed: int | None = None
    """Rows before this time are late: the greatest watermark less lateness so far."""
    late: int = 0


@dataclass(frozen=True, slots=True)
class _Sessions:
    """Sessions as columns; `owner`: the slot of the key of each."""

    owner: Ints
    first: Ints
    last: Ints
    values: Partials


class SessionWindow(PagedOperator, EntriesTables):
    """One row for each session of a key: rows less than `gap` apart in event time.  It has `window_start` (the time of
    the first row), `window_end` (that of the last one and `gap`), `time` (window_end - 1), keys and aggregates.

    A session is given when the watermark less `lateness` has passed its end.  Rows older than that when they come are
    dropped and counted.
    """

    def __init__(
        self,
        *,
        gap: str,
        aggregate: Mapping[str, str],
        keys: Sequence[str] = (),
        time: str = "time",
        lateness: str = "0s",
    ) -> None:
        self.gap = duration_us(gap, "gap")
        self.keys = names(keys, "keys", taken=("window_start", "window_end", "time"))
        self.aggregates = parse_aggregates(aggregate)
        self.time = time
        self.lateness = duration_us(lateness, "lateness", least=0)
        own = {"window_start", "window_end", "time", *self.keys}
        require_other_names(self.aggregates, own, "another output column")
        self._names = accumulators_of(self.aggregates)

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        columns = merged(inputs)
        require(columns, [self.time], "time")
        require(columns, self.keys, "keys")
        require_columns(columns, self.aggregates)
        return ("window_start", "window_end", "time", *self.keys, *(a.name for a in self.aggregates))

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return self.keys

    def initial(self, place: Place) -> SessionState:
        return SessionState(Entries(self.keys))

    def step(self, state: SessionState, inbox: Inbox) -> tuple[SessionState, pa.Table | None]:
        table, late = in_time(inbox_table(inbox, keys=self.keys), self.time, state.closed)
        state.late += late
        if table is not None:
            self._collect(state.open, table)
        if inbox.watermark is None:
            return state, None
        state.closed = later(state.closed, inbox.watermark - self.lateness)
        return state, self._completed(state.open, state.closed)

    def counters(self, state: SessionState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {LATE_ROWS: state.late, "keys": state.open.index.size, "sessions": len(state.open.all())}

    def _collect(self, held: Entries, table: pa.Table) -> None:
        groups = group(table, self.keys)
        slots = held.index.slots(groups)
        met = held.of(slots)
        new = self._of_batch(held, table, groups.codes, slots)
        before = _Sessions(
            held.owners(met), held.value(met, _FIRST), held.value(met, _LAST), held.values(met, self._names)
        )
        both = self._merged(before, new)
        held.remove(met)
        held.add(both.owner, {**both.values, _FIRST: both.first, _LAST: both.last})

    def _of_batch(self, held: Entries, table: pa.Table, codes: Ints, slots: Ints) -> _Sessions:
        """The sessions that the rows of one batch make alone."""
        when = times(table, self.time)
        order = np.lexsort((when, codes))
        code, at = codes[order], when[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (code[1:] != code[:-1]) | (at[1:] - at[:-1] >= self.gap)
        first = np.flatnonzero(begins)
        session = np.empty(len(order), np.int64)
        session[order] = np.cumsum(begins) - 1
        values = held.fit(partials(table, session, len(first), self.aggregates))
        last = np.append(first[1:], len(order)) - 1
        return _Sessions(slots[code[first]], at[first], at[last], values)

    def _merged(self, before: _Sessions, new: _Sessions) -> _Sessions:
        """Both together; those of a key that are less than the gap apart are one.  Values are combined in the order in which
        sessions begin."""
        owner = np.concatenate([before.owner, new.owner])
        first, last = (np.concatenate([getattr(before, n), getattr(new, n)]) for n in (_FIRST, _LAST))
        order = np.lexsort((first, owner))
        owner, first, last = owner[order], first[order], last[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (owner[1:] != owner[:-1]) | (first[1:] - _last_so_far(owner, last)[:-1] >= self.gap)
        heads = np.flatnonzero(begins)
        number = np.cumsum(begins) - 1
        nth = np.arange(len(order)) - heads[number]
        by_nth = np.argsort(nth, kind="stable")
        ends = np.cumsum(np.bincount(nth))
        values = {}
        for name, fresh in new.values.items():
            every = np.concatenate([before.values.get(name, fresh[:0]), fresh])[order]
            found = every[heads]
            for n in range(1, len(ends)):
                at = by_nth[ends[n - 1] : ends[n]]
                found[number[at]] = combine(name, found[number[at]], every[at])
            values[name] = found
        return _Sessions(owner[heads], first[heads], np.maximum.reduceat(last, heads), values)

    def _completed(self, held: Entries, closed: int) -> pa.Table | None:
        """The sessions that have ended, by their end and then by key."""
        places = held.all()
        done = places[held.value(places, _LAST) <= closed - self.gap]
        if not len(done):
            return None
        done = done[np.lexsort((held.owners(done), held.value(done, _LAST)))]
        ends = held.value(done, _LAST) + self.gap
        values, keys = held.values(done, self._names), held.index.keys(held.owners(done))
        out = rows(
            {
                "window_start": held.value(done, _FIRST),
                "window_end": ends,
                "time": ends - 1,
                **{name: keys.column(name) for name in keys.column_names},
                **{a.name: a.finish(values) for a in self.aggregates},
            }
        )
        held.remove(done)
        held.compact()
        return out

    def freeze(self, state: SessionState) -> Callable[[], Tables]:
        held, meta = state.open.freeze(), self._meta(state)
        return lambda: {**held(), "meta": meta}

    def freeze_pages(self, state: SessionState) -> Callable[[], Parts]:
        held, meta = state.open.freeze_pages(), self._meta(state)
        return lambda: {**held(), "meta": meta}

    def spillable(self, state: SessionState) -> Sequence[Spillable]:
        return (state.open,)

    def restore(self, place: Place, tables: Tables) -> SessionState:
        meta = one_row(tables["meta"])
        for parameter, stored, now in (
            ("gap", meta["gap"], self.gap),
            ("aggregate", meta["aggregates"], self._aggregated),
        ):
            if stored != now:
                raise SpecError(
                    parameter,
                    "has changed, and sessions are open; give the operator another name, so that it begins anew",
                )
        return SessionState(Entries.restore(self.keys, tables), meta["closed"], meta["late"])

    @property
    def _aggregated(self) -> str:
        """What is kept of each session."""
        return " ".join(self._names)

    def _meta(self, state: SessionState) -> pa.Table:
        made_with = {"gap": [self.gap], "aggregates": [self._aggregated]}
        return pa.table({"closed": pa.array([state.closed], pa.int64()), "late": [state.late], **made_with})


def _last_so_far(owner: Ints, last: Ints) -> Ints:
    """The latest time of the sessions of the same key up to and with each one, where they are sorted by key."""
    distinct, rank = np.unique(last, return_inverse=True)
    key = np.cumsum(np.diff(owner, prepend=owner[0]) != 0)
    highest = np.maximum.accumulate(key * len(distinct) + rank)
    found: Ints = distinct[highest - key * len(distinct)]
    return found

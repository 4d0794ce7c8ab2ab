"""Aggregates over event-time windows, by key: tumbling and sliding, emitted once they are complete or as they
change.

Rows are collected in panes as long as the slide, so that a row is aggregated once however many windows cover
it; a window is the combination of its panes.  Time is the watermark less the allowed lateness, never a clock.
Invariants: a row counts in each window that was not closed when it came, and is dropped and counted (`late`)
when all of its windows were; a window is closed at most once; panes and keys that no open window needs are
let go.

Windows that are given once (`emit: final`) come in the order of their keys, so what is given follows from the rows of
open windows alone, and not from who was seen first, long before.  A pane knows the batch of its first row: from there on,
and from the batch of the last watermark, a partition that begins anew comes to the same output (docs/decisions/0077).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import LATE_ROWS, Columns, Inbox, Kind, Place, Tables
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import slots as slotted
from reprise.spark_jobs.operators.aggregates import (
    Partials,
    accumulators_of,
    parse_aggregates,
    partials,
    require_columns,
    require_other_names,
)
from reprise.spark_jobs.operators.frames import (
    END_OF_TIME,
    Ints,
    inbox_table,
    later,
    one_row,
    rows,
    select,
    split_rows,
    times,
)
from reprise.spark_jobs.operators.keys import KeyIndex, group, in_order
from reprise.spark_jobs.operators.paged import PagedOperator
from reprise.spark_jobs.operators.parameters import choice, duration_us, names, steps_as
from reprise.spark_jobs.operators.rescaling import WindowTables
from reprise.spark_jobs.operators.slots import Accumulators
from reprise.spark_jobs.operators.slotted import KEY
from reprise.spark_jobs.operators.window_slots import PANE, WindowSlots, WindowState
from reprise.spark_jobs.pages import Parts, pieces
from reprise.spark_jobs.spill import Spillable
from reprise.spark_jobs.topology.columns import merged, require

_COMPACT_FROM = 1024

FIRST = "first"
"""Column of stored panes: the batch of the first row of each; 0, as where it is missing, for one that is not known."""


Touched = dict[int, Ints]
"""For each pane of a batch, the distinct slots that got rows."""


class SlidingWindow(PagedOperator, WindowTables, WindowSlots):
    """Windows of `size` that start every `slide`; rows carry `window_start`, `window_end`, `time` (window_end
    - 1), keys and aggregates.

    `emit: final` gives each window's rows once, when the watermark less `lateness` has passed its end.
    `emit: updates` gives, each batch, one row for every key whose aggregate over the last `size` up to that
    time changed, also because panes left it (count 0 and null then mean: nothing left).
    """

    def __init__(
        self,
        *,
        size: str,
        slide: str,
        aggregate: Mapping[str, str],
        keys: Sequence[str] = (),
        time: str = "time",
        lateness: str = "0s",
        emit: str = "final",
        label: str | None = None,
    ) -> None:
        self.label = None if label is None else str(label)
        self.size = duration_us(size, "size")
        self.slide = duration_us(slide, "slide")
        if self.size % self.slide:
            raise SpecError("slide", f"{slide!r} does not divide the size {size!r}")
        head = ("window_start", "window_end", "time", *(("window",) if self.label is not None else ()))
        self.keys = names(keys, "keys", taken=head)
        self.aggregates = parse_aggregates(aggregate)
        self.time = time
        self.lateness = duration_us(lateness, "lateness", least=0)
        self.updates = choice(emit, "emit", ("final", "updates")) == "updates"
        own = {"window", "window_start", "window_end", "time", *self.keys}
        require_other_names(self.aggregates, own, "another output column")
        self._names = accumulators_of(self.aggregates)
        if self._converges and self.kind.deterministic and steps_as(self, SlidingWindow):
            self.kind = Kind.CONVERGENT

    @property
    def _converges(self) -> bool:
        """Whether output follows from the rows of open windows alone.  Updates of sliding windows also say who has left the
        last one, which may have been late rows where a partition began anew."""
        return not self.updates

    def oldest_needed_behind(self, state: WindowState, batch: int) -> int | None:
        """See `Operator.oldest_needed_behind`: the batch of the first row of an open window, and at the latest the last
        batch, which says again what is late."""
        if self.kind is not Kind.CONVERGENT:
            return super().oldest_needed_behind(state, batch)
        return min((state.first.get(pane, 0) for pane in state.panes), default=batch)

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        columns = merged(inputs)
        require(columns, [self.time], "time")
        require(columns, self.keys, "keys")
        require_columns(columns, self.aggregates)
        head = ("window_start", "window_end", "time", *(("window",) if self.label is not None else ()))
        return (*head, *self.keys, *(a.name for a in self.aggregates))

    @property
    def slot_columns(self) -> tuple[str, ...]:
        return (*(KEY + name for name in self.keys), PANE)

    @property
    def offers_slots(self) -> bool:
        return not self.updates

    @property
    def state_keys(self) -> Columns:
        """See `Operator.state_keys`."""
        return self.keys

    def initial(self, place: Place) -> WindowState:
        return WindowState(KeyIndex(self.keys))

    def step(self, state: WindowState, inbox: Inbox) -> tuple[WindowState, pa.Table | None]:
        self.begins(state)
        table = inbox_table(inbox, keys=self.keys)
        touched = self._collect(state, table, inbox.batch) if table is not None else {}
        before = state.closed
        if inbox.watermark is not None:
            state.closed = later(before, inbox.watermark - self.lateness)
        out = self._changes(state, touched, before) if self.updates else self._completed(state, before)
        self._let_go(state)
        return state, out

    def counters(self, state: WindowState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {LATE_ROWS: state.late, "keys": state.index.size, "panes": len(state.panes)}

    def _collect(self, state: WindowState, table: pa.Table, batch: int) -> Touched:
        pane_of = times(table, self.time) // self.slide * self.slide
        if state.closed is not None:
            in_time = pane_of + self.size > state.closed
            late = len(in_time) - int(np.count_nonzero(in_time))
            if late:
                state.late += late
                pane_of, table = pane_of[in_time], table.filter(pa.array(in_time))
            if not len(pane_of):
                return {}
        # Rows pane by pane: sorted once, then slices that share the sorted columns.
        order = np.argsort(pane_of, kind="stable")
        groups = group(table, self.keys)
        slots = state.index.slots(groups)
        codes = groups.codes[order]
        columns = [a.column for a in self.aggregates if a.column]
        values = select(table, columns).take(pa.array(order))
        starts, first = np.unique(pane_of[order], return_index=True)
        touched: Touched = {}
        for start, low, high in zip(starts.tolist(), first, [*first[1:], len(order)], strict=True):
            if len(starts) == 1:
                present, dense = np.arange(groups.size), codes
            else:
                present, dense = np.unique(codes[low:high], return_inverse=True)
            touched[start] = slots[present]
            parts = partials(values.slice(low, high - low), dense, len(present), self.aggregates)
            for pane in state.panes.values():  # a column has one type in all of them
                parts = pane.fit(parts)
            self.takes(state, start, touched[start])
            if start not in state.panes:  # one that was restored without it stays unknown: 0
                state.first[start] = batch
            state.panes.setdefault(start, Accumulators()).update(touched[start], parts)
        return touched

    def _completed(self, state: WindowState, before: int | None) -> pa.Table | None:
        if state.closed is None:
            return None
        ends = {e for p in state.panes for e in range(p + self.slide, p + self.size + 1, self.slide)}
        closing = sorted(e for e in ends if e <= state.closed and (before is None or e > before))
        present = [(end, self._present(state, end - self.size, end)) for end in closing]
        return self._rows(state, [(end, self._by_key(state, slots)) for end, slots in present])

    def _by_key(self, state: WindowState, slots: Ints) -> Ints:
        """The same slots in the order of their keys."""
        return slots[in_order(state.index.keys(slots))] if len(slots) > 1 else slots

    def _changes(self, state: WindowState, touched: Touched, before: int | None) -> pa.Table | None:
        if state.closed is None or not state.panes:
            return None
        end = self._current_end(state, state.closed)
        last = self._current_end(state, before) if before is not None else None
        changed = [slots for start, slots in touched.items() if end - self.size <= start < end]
        if last is not None and last < end:
            changed.append(self._present(state, last - self.size, min(last, end - self.size)))
        entered = end - self.size if last is None else max(last, end - self.size)
        changed.append(self._present(state, entered, end))
        return self._rows(state, [(end, _union(changed))])

    def _current_end(self, state: WindowState, closed: int) -> int:
        """End of the last of the windows that the time just before `closed` falls into."""
        if closed > END_OF_TIME // 2:  # the stream has ended, and time stands still at its last pane
            return max(state.panes) + self.slide
        return -(-closed // self.slide) * self.slide

    def _present(self, state: WindowState, start: int, end: int) -> Ints:
        """Slots with rows in the panes that start in [start, end)."""
        return _union([a.present() for p, a in state.panes.items() if start <= p < end])

    def _rows(self, state: WindowState, windows: Sequence[tuple[int, Ints]]) -> pa.Table | None:
        """The rows of the windows with these ends, each for the keys in these slots."""
        windows = [(end, slots) for end, slots in windows if len(slots)]
        if not windows:
            return None
        each = [self._values(state, end, slots) for end, slots in windows]
        values = {name: np.concatenate([v[name] for v in each]) for name in each[0]}
        slots = np.concatenate([slots for _, slots in windows])
        ends = np.repeat([end for end, _ in windows], [len(slots) for _, slots in windows])
        head: dict[str, Any] = {"window_start": ends - self.size, "window_end": ends, "time": ends - 1}
        if self.label is not None:
            head["window"] = pa.repeat(self.label, len(ends))
        keys = state.index.keys(slots)
        tail = {a.name: a.finish(values) for a in self.aggregates}
        return rows({**head, **{n: keys.column(n) for n in keys.column_names}, **tail})

    def _values(self, state: WindowState, end: int, slots: Ints) -> Partials:
        """The accumulators of one window in these slots."""
        starts = [p for p in sorted(state.panes) if end - self.size <= p < end]
        if starts:
            return slotted.merge([state.panes[p] for p in starts], slots, self._names)
        # Only panes that left the window had these keys: any pane gives the types of nothing.
        pane = next(iter(state.panes.values()))
        return pane.gather(np.full(len(slots), pane.size), self._names)

    def _let_go(self, state: WindowState) -> None:
        if state.closed is None or not state.panes:
            return
        horizon = state.closed + 1
        if not self._converges:  # updates still have to report what leaves the current window
            horizon = self._current_end(state, state.closed)
        gone = [p for p in state.panes if p + self.size < horizon]
        for start in gone:
            self.lets_go(state, start)
            del state.panes[start]
            state.first.pop(start, None)
        if gone and state.index.size >= _COMPACT_FROM:
            live = _union([a.present() for a in state.panes.values()])
            if 2 * len(live) < state.index.size:
                self.compacts(state, live)
                state.index = state.index.keep(live)
                state.panes = {p: a.take(live) for p, a in state.panes.items()}

    def freeze(self, state: WindowState) -> Callable[[], Tables]:
        keys, panes, few = state.index.freeze(), [a.freeze() for a in state.panes.values()], _few(state)

        def encode() -> Tables:
            tables = {"keys": keys(), **few}
            if panes:
                tables["values"] = pa.concat_tables([encode() for encode in panes]).combine_chunks()
            return tables

        return encode

    def freeze_pages(self, state: WindowState) -> Callable[[], Parts]:
        keys, few = state.index.freeze_pages(), _few(state)
        panes = [a.freeze_pages() for a in state.panes.values()]

        def encode() -> Parts:
            values = [piece for pane in panes for piece in pieces(pane())]
            return {"keys": keys(), **few, **({"values": values} if panes else {})}

        return encode

    def spillable(self, state: WindowState) -> Sequence[Spillable]:
        return (state.index, *state.panes.values())

    def restore(self, place: Place, tables: Tables) -> WindowState:
        meta = one_row(tables["meta"])
        index = KeyIndex(self.keys, tables["keys"], meta["slots"])
        state = WindowState(index, closed=meta["closed"], late=meta["late"])
        if "panes" in tables:
            sizes = tables["panes"].column("size").to_pylist()
            parts = split_rows(tables["values"], sizes)
            starts = tables["panes"].column("start").to_pylist()
            state.panes = {p: slotted.restore(part) for p, part in zip(starts, parts, strict=True)}
            if FIRST in tables["panes"].column_names:
                state.first = dict(zip(starts, tables["panes"].column(FIRST).to_pylist(), strict=True))
        return state


class TumblingWindow(SlidingWindow):
    """Windows of `size` one after the other.

    With `emit: updates` each batch gives one row for every window and key that got rows in it, whatever the
    watermark: the window's aggregate so far.  Nothing is said when a window ends.
    """

    def __init__(
        self,
        *,
        size: str,
        aggregate: Mapping[str, str],
        keys: Sequence[str] = (),
        time: str = "time",
        lateness: str = "0s",
        emit: str = "final",
        label: str | None = None,
    ) -> None:
        super().__init__(
            size=size,
            slide=size,
            aggregate=aggregate,
            keys=keys,
            time=time,
            lateness=lateness,
            emit=emit,
            label=label,
        )

    @property
    def _converges(self) -> bool:
        return True  # updates are of the windows that got rows, in the order of the batch

    def _changes(self, state: WindowState, touched: Touched, before: int | None) -> pa.Table | None:
        return self._rows(state, [(start + self.size, touched[start]) for start in sorted(touched)])


def _few(state: WindowState) -> dict[str, pa.Table]:
    """What is small of a state: `meta`, and which panes there are."""
    meta = {"slots": [state.index.size], "late": [state.late], "closed": pa.array([state.closed], pa.int64())}
    few = {"meta": pa.table(meta)}
    if state.panes:
        sizes = [a.size for a in state.panes.values()]
        first = [state.first.get(pane, 0) for pane in state.panes]
        few["panes"] = pa.table({"start": list(state.panes), "size": sizes, FIRST: first})
    return few


def _union(slots: Sequence[Ints]) -> Ints:
    parts = [s for s in slots if len(s)]
    if len(parts) == 1:
        return np.sort(parts[0])
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

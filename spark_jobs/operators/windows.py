"""Aggregates over event-time windows, by key: tumbling and sliding, emitted once they are complete or as they
change.

Rows are collected in panes as long as the slide, so that a row is aggregated once however many windows cover
it; a window is the combination of its panes.  Time is the watermark less the allowed lateness, never a clock.
Invariants: a row counts in each window that was not closed when it came, and is dropped and counted (`late`)
when all of its windows were; a window is closed at most once; panes and keys that no open window needs are
let go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_jobs.contract import Inbox, Operator, Place, Tables
from spark_jobs.errors import SpecError
from spark_jobs.operators import slots as slotted
from spark_jobs.operators.aggregates import ROWS, parse_aggregates, partials
from spark_jobs.operators.frames import Ints, concat, inbox_table, later, one_row, rows, split_rows, times
from spark_jobs.operators.keys import KeyIndex, group
from spark_jobs.operators.parameters import choice, duration_us, names
from spark_jobs.operators.slots import Accumulators

_COMPACT_FROM = 1024


@dataclass(slots=True)
class WindowState:
    """Panes by start, over the slots of one key index that they share."""

    index: KeyIndex
    panes: dict[int, Accumulators] = field(default_factory=dict)
    closed: int | None = None
    """Windows that end at or before this time are closed: the greatest watermark less lateness so far."""
    late: int = 0
    """Rows dropped because all their windows were closed."""


Touched = dict[int, Ints]
"""For each pane of a batch, the distinct slots that got rows."""


class SlidingWindow(Operator):
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
    ) -> None:
        self.size = duration_us(size, "size")
        self.slide = duration_us(slide, "slide")
        if self.size % self.slide:
            raise SpecError("slide", f"{slide!r} does not divide the size {size!r}")
        self.keys = names(keys, "keys")
        self.aggregates = parse_aggregates(aggregate)
        self.time = time
        self.lateness = duration_us(lateness, "lateness", least=0)
        self.updates = choice(emit, "emit", ("final", "updates")) == "updates"
        own = {"window_start", "window_end", "time", *self.keys}
        for each in self.aggregates:
            if each.name in own:
                raise SpecError(f"aggregate.{each.name}", "is the name of another output column")
        self._names = tuple(dict.fromkeys([ROWS, *(n for a in self.aggregates for n in a.accumulators)]))

    def initial(self, place: Place) -> WindowState:
        return WindowState(KeyIndex(self.keys))

    def step(self, state: WindowState, inbox: Inbox) -> tuple[WindowState, pa.Table | None]:
        table = inbox_table(inbox)
        touched = self._collect(state, table) if table is not None else {}
        before = state.closed
        if inbox.watermark is not None:
            state.closed = later(before, inbox.watermark - self.lateness)
        out = self._changes(state, touched, before) if self.updates else self._completed(state, before)
        self._let_go(state)
        return state, out

    def counters(self, state: WindowState) -> Mapping[str, int]:
        """What a person would ask of a running partition."""
        return {"late_rows": state.late, "keys": state.index.size, "panes": len(state.panes)}

    def _collect(self, state: WindowState, table: pa.Table) -> Touched:
        pane_of = times(table, self.time) // self.slide * self.slide
        if state.closed is not None:
            in_time = pane_of + self.size > state.closed
            late = len(in_time) - int(np.count_nonzero(in_time))
            if late:
                state.late += late
                pane_of, table = pane_of[in_time], table.filter(pa.array(in_time))
        groups = group(table, self.keys)
        slots = state.index.slots(groups)
        touched: Touched = {}
        for start in np.unique(pane_of).tolist():
            here = np.flatnonzero(pane_of == start)
            whole = len(here) == len(pane_of)
            codes = groups.codes if whole else groups.codes[here]
            present, dense = (
                (np.arange(groups.size), codes) if whole else np.unique(codes, return_inverse=True)
            )
            values = partials(
                table if whole else table.take(pa.array(here)), dense, len(present), self.aggregates
            )
            touched[start] = slots[present]
            state.panes.setdefault(start, Accumulators()).update(touched[start], values)
        return touched

    def _completed(self, state: WindowState, before: int | None) -> pa.Table | None:
        if state.closed is None:
            return None
        ends = {e for p in state.panes for e in range(p + self.slide, p + self.size + 1, self.slide)}
        closing = sorted(e for e in ends if e <= state.closed and (before is None or e > before))
        windows = [self._window(state, end, self._present(state, end - self.size, end)) for end in closing]
        return concat(windows)

    def _changes(self, state: WindowState, touched: Touched, before: int | None) -> pa.Table | None:
        if state.closed is None:
            return None
        end = self._current_end(state.closed)
        last = self._current_end(before) if before is not None else None
        changed = [slots for start, slots in touched.items() if end - self.size <= start < end]
        if last is not None and last < end:
            changed.append(self._present(state, last - self.size, min(last, end - self.size)))
        entered = end - self.size if last is None else max(last, end - self.size)
        changed.append(self._present(state, entered, end))
        return self._window(state, end, _union(changed))

    def _current_end(self, closed: int) -> int:
        """End of the window that the time just before `closed` falls into last."""
        return -(-closed // self.slide) * self.slide

    def _present(self, state: WindowState, start: int, end: int) -> Ints:
        """Slots with rows in the panes that start in [start, end)."""
        return _union([a.present() for p, a in state.panes.items() if start <= p < end])

    def _window(self, state: WindowState, end: int, slots: Ints) -> pa.Table | None:
        """The rows of the window that ends at `end`, for the keys in `slots`."""
        if not len(slots):
            return None
        start = end - self.size
        parts = [state.panes[p] for p in sorted(state.panes) if start <= p < end]
        values = slotted.merge(parts, slots, self._names)
        if not values:  # only panes that left it had these keys: any pane gives the types of nothing
            pane = next(iter(state.panes.values()))
            values = pane.gather(np.full(len(slots), pane.size), self._names)
        keys = state.index.keys(slots)
        bounds = {"window_start": start, "window_end": end, "time": end - 1}
        head = {name: np.full(len(slots), value) for name, value in bounds.items()}
        tail = {a.name: a.finish(values) for a in self.aggregates}
        return rows({**head, **{n: keys.column(n) for n in keys.column_names}, **tail})

    def _let_go(self, state: WindowState) -> None:
        if state.closed is None:
            return
        # Updates still have to report what leaves the current window, so they keep the panes of that one.
        horizon = self._current_end(state.closed) if self.updates else state.closed + 1
        gone = [p for p in state.panes if p + self.size < horizon]
        for start in gone:
            del state.panes[start]
        if gone and state.index.size >= _COMPACT_FROM:
            live = _union([a.present() for a in state.panes.values()])
            if 2 * len(live) < state.index.size:
                state.index = state.index.keep(live)
                state.panes = {p: a.take(live) for p, a in state.panes.items()}

    def freeze(self, state: WindowState) -> Callable[[], Tables]:
        keys, panes = state.index.freeze(), [(p, a.freeze(), a.size) for p, a in state.panes.items()]
        meta = {
            "slots": [state.index.size],
            "late": [state.late],
            "closed": pa.array([state.closed], pa.int64()),
        }

        def encode() -> Tables:
            tables = {"keys": keys(), "meta": pa.table(meta)}
            if panes:
                tables["panes"] = pa.table(
                    {"start": [p for p, _, _ in panes], "size": [n for _, _, n in panes]}
                )
                tables["values"] = pa.concat_tables([encode() for _, encode, _ in panes]).combine_chunks()
            return tables

        return encode

    def restore(self, place: Place, tables: Tables) -> WindowState:
        meta = one_row(tables["meta"])
        state = WindowState(
            KeyIndex(self.keys, tables["keys"], meta["slots"]), {}, meta["closed"], meta["late"]
        )
        if "panes" in tables:
            sizes = tables["panes"].column("size").to_pylist()
            parts = split_rows(tables["values"], sizes)
            starts = tables["panes"].column("start").to_pylist()
            state.panes = {p: slotted.restore(part) for p, part in zip(starts, parts, strict=True)}
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
    ) -> None:
        super().__init__(
            size=size, slide=size, aggregate=aggregate, keys=keys, time=time, lateness=lateness, emit=emit
        )

    def _changes(self, state: WindowState, touched: Touched, before: int | None) -> pa.Table | None:
        return concat([self._window(state, start + self.size, touched[start]) for start in sorted(touched)])


def _union(slots: Sequence[Ints]) -> Ints:
    parts = [s for s in slots if len(s)]
    if len(parts) == 1:
        return np.sort(parts[0])
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

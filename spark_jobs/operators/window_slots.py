"""Windows of event time as slots: each key of each pane, and each key that the index of a state knows.

A pane's key opens with its first row and closes when the pane is let go.  Keys are numbered in the order in which they came
into the index, and stay there for a while after their last pane.  So a key in the index is a slot, too, with a number that
only grows: a state that is made of footprints has its keys in the same order, and is stored as the same bytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.operators.aggregates import ROWS
from reprise.spark_jobs.operators.frames import Ints, select, times
from reprise.spark_jobs.operators.keys import KeyIndex, group
from reprise.spark_jobs.operators.slots import Accumulators
from reprise.spark_jobs.operators.slotted import VALUE, Changes, Slotted, key_columns, keys_in

PANE, BORN = "pane", "born"
"""Columns of footprints: start of the pane, null for a key in the index; and the number of that key."""


@dataclass(slots=True)
class Noted:
    """What the last step did to slots, (start of the pane, key) or (None, key).  `born`: the number of each key."""

    born: Ints
    next: int
    opened: list[tuple[int | None, Ints]] = field(default_factory=list)
    closed: list[tuple[int | None, Ints]] = field(default_factory=list)
    closings: list[pa.Table] = field(default_factory=list)
    moved: dict[int, int] | None = None
    """Keys that have another place in the index now, after those that closed are gone."""


@dataclass(slots=True)
class WindowState:
    """Panes by start, over the slots of one key index that they share."""

    index: KeyIndex
    panes: dict[int, Accumulators] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    """Start of a pane -> the batch of its first row; panes that are missing here may have rows of any batch."""
    closed: int | None = None
    """Windows that end at or before this time are closed: the greatest watermark less lateness so far."""
    late: int = 0
    """Rows dropped because all their windows were closed."""
    noted: Noted | None = None
    """Kept where the state is stored slot by slot."""


class WindowSlots(Slotted):
    """What `SlidingWindow` needs to be stored slot by slot."""

    slide: int
    time: str

    def begins(self, state: WindowState) -> None:
        """A step begins."""
        if (noted := state.noted) is not None:
            noted.opened, noted.closed, noted.closings, noted.moved = [], [], [], None

    def takes(self, state: WindowState, start: int, slots: Ints) -> None:
        """These slots of a pane are about to get rows."""
        if (noted := state.noted) is None:
            return
        if (more := state.index.size - len(noted.born)) > 0:
            noted.opened.append((None, np.arange(len(noted.born), state.index.size)))
            noted.born = np.append(noted.born, np.arange(noted.next, noted.next + more))
            noted.next += more
        pane = state.panes.get(start)
        held = {} if pane is None else pane.gather(slots, [ROWS])
        noted.opened.append((start, slots if ROWS not in held else slots[held[ROWS] == 0]))

    def lets_go(self, state: WindowState, start: int) -> None:
        """A pane is about to go."""
        if (noted := state.noted) is not None:
            self._close(state, noted, start, state.panes[start].present())

    def compacts(self, state: WindowState, live: Ints) -> None:
        """Only these keys are about to stay in the index, in this order."""
        if (noted := state.noted) is not None:
            self._close(state, noted, None, np.setdiff1d(np.arange(state.index.size), live))
            noted.born = noted.born[live]
            noted.moved = {int(old): new for new, old in enumerate(live.tolist())}

    def _close(self, state: WindowState, noted: Noted, start: int | None, slots: Ints) -> None:
        noted.closed.append((start, slots))
        noted.closings.append(self._named(state.index, start, slots))

    def _named(self, index: KeyIndex, start: int | None, slots: Ints) -> pa.Table:
        named = key_columns(index.keys(slots))
        return pa.table({**named, PANE: pa.array([start] * len(slots), pa.int64())})

    # -- what `Slotted` asks -------------------------------------------------------------------------------------------

    def changes(self, state: WindowState) -> Changes:
        """See `Slotted.changes`."""
        noted = state.noted
        if noted is None:
            return Changes()
        closed = [(start, s) for start, slots in noted.closed for s in slots.tolist()]
        gone, moved = set(closed), noted.moved
        opened = [
            (start, s) for start, slots in noted.opened for s in slots.tolist() if (start, s) not in gone
        ]
        if moved is not None:
            opened = [(start, moved[s]) for start, s in opened]
        closings = pa.concat_tables(noted.closings) if noted.closings else None
        return Changes(opened, closed, closings if closed else None, moved)

    def open_slots(self, state: WindowState) -> Sequence[Hashable]:
        """All of them; from now on steps note what they do."""
        size = state.index.size
        if state.noted is None:
            state.noted = Noted(np.arange(size), size)
        panes = [(start, s) for start in sorted(state.panes) for s in state.panes[start].present().tolist()]
        return [*((None, s) for s in range(size)), *panes]

    def open_count(self, state: WindowState) -> int:
        """See `Slotted.open_count`."""
        return state.index.size + sum(len(pane.present()) for pane in state.panes.values())

    def export(self, state: WindowState, slots: Sequence[Hashable]) -> pa.Table:
        """See `Slotted.export`."""
        if not len(slots):
            return self._named(state.index, None, np.zeros(0, np.int64))
        by_pane: dict[int | None, list[int]] = {}
        places: dict[int | None, list[int]] = {}
        for place, (start, s) in enumerate(slots):  # type: ignore[misc]
            by_pane.setdefault(start, []).append(s)  # type: ignore[has-type]
            places.setdefault(start, []).append(place)  # type: ignore[has-type]
        tables = []
        for start, chosen in by_pane.items():
            at = np.array(chosen, np.int64)
            table = self._named(state.index, start, at)
            if start is None:
                assert state.noted is not None
                table = table.append_column(BORN, pa.array(state.noted.born[at]))
            else:
                pane = state.panes[start]
                for name, values in pane.gather(at, pane.names).items():
                    table = table.append_column(VALUE + name, pa.array(values))
            tables.append(table)
        order = np.argsort(np.concatenate([np.array(p) for p in places.values()]), kind="stable")
        return pa.concat_tables(tables, promote_options="permissive").take(pa.array(order))

    def load(self, place: Place, table: pa.Table | None, rest: Mapping[str, Any]) -> WindowState:
        """See `Slotted.load`."""
        state = WindowState(KeyIndex(self.keys), closed=rest["closed"], late=rest["late"])
        if table is None:
            return state
        at: dict[int | None, list[int]] = {}
        for row, start in enumerate(table.column(PANE).to_pylist()):
            at.setdefault(start, []).append(row)
        known = table.take(pa.array(at.pop(None))).sort_by(BORN)
        state.index = KeyIndex(self.keys, keys_in(known, self.keys), known.num_rows)
        for start, chosen in sorted(at.items()):
            part = table.take(pa.array(chosen)).combine_chunks()
            slots = (
                state.index.find(group(keys_in(part, self.keys), self.keys))
                if self.keys
                else np.zeros(1, np.int64)
            )
            values = {
                name.removeprefix(VALUE): part.column(name).to_numpy().copy()
                for name in part.column_names
                if name.startswith(VALUE)
            }
            state.panes[start] = pane = Accumulators()  # type: ignore[index]
            pane.put(slots, values)
        return state

    def slots_of(self, table: pa.Table) -> pa.Table:
        """See `Slotted.slots_of`."""
        named = key_columns(select(table, self.keys))
        return pa.table({**named, PANE: times(table, self.time) // self.slide * self.slide})

    def types(self, state: WindowState) -> Mapping[str, str]:
        """See `Slotted.types`; a column has one type in all panes."""
        return next((pane.types for pane in state.panes.values()), {})

    def retype(self, state: WindowState, types: Mapping[str, str]) -> None:
        """See `Slotted.retype`."""
        for pane in state.panes.values():
            pane.retype(types)

    def rest(self, state: WindowState) -> Mapping[str, Any]:
        """See `Slotted.rest`."""
        return {"closed": state.closed, "late": state.late}

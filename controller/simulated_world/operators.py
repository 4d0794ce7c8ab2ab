"""A source and an operator that cost little and notice everything: each row that is lost, doubled or out of order
changes all later output of its key, and a batch whose ranges are asked for twice has other rows.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Inbox, Input, Kind, Operator, Place, Range, Source, Tables
from reprise.spark_jobs.errors import NotYetError
from reprise.spark_jobs.operators.frames import END_OF_TIME
from reprise.spark_jobs.operators.paged import PagedOperator
from reprise.spark_jobs.operators.slotted import Changes, Slotted
from reprise.spark_jobs.pages import PAGE_ROWS, Array, PageSet, Parts

KEYS = 5
"""Different keys of `Numbers`, where nothing else is said."""


class Numbers(Source):
    """`batches` batches of one to three rows a partition: a number, and one of `keys` keys.  How many rows a batch has is
    drawn whenever somebody asks, as with a queue that fills meanwhile.  `late`: how often the rows of the first partition
    are not there yet when they are asked for, and then up to `LONGEST` times more.  `quiet`: so many of the last batches
    have no rows, so that what goes round in a cycle comes to rest."""

    LONGEST: ClassVar[int] = 12

    dice: ClassVar[random.Random] = random.Random(0)

    def __init__(self, *, batches: int, keys: int = KEYS, late: float = 0.0, quiet: int = 0) -> None:
        self.batches, self.keys, self.late, self._waits = batches, keys, late, 0
        self.last = batches - quiet

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        if batch > self.last:
            return start if batch <= self.batches else None
        return start + self.dice.randint(1, 3)

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        if place.index == 0 and self.late:
            if not self._waits and self.dice.random() < self.late:
                self._waits = 1 + self.dice.randint(0, self.LONGEST)
            if self._waits:
                self._waits -= 1
                raise NotYetError(f"the rows of batch {batch} are not there yet")
        return self.rows(place, span)

    def rows(self, place: Place, span: Range) -> pa.Table:
        """What is at these offsets, always."""
        numbers = range(span.start, span.end)
        return pa.table({"key": [(n * 7 + place.index * 3) % self.keys for n in numbers], "n": list(numbers)})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return END_OF_TIME if batch >= self.batches else batch


class LiveNumbers(Numbers):
    """The same of a live source: ranges are written down when batches are due, and old ones are removed."""

    live = True


class Recorded(Numbers):
    """The same numbers in the batches that are on record."""

    ranges: ClassVar[Mapping[str, Mapping[int, Range]]] = {}
    """By source partition and batch, of the run that is computed now."""

    def plan(self, place: Place, batch: int, before: Range) -> Range | None:
        return self.ranges.get(f"{place.operator}.{place.index}", {}).get(batch)

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        return self.rows(place, span)


@dataclass(frozen=True, slots=True)
class Sums:
    """The checksum of each open key, and how many rows are in it; what the last step has opened and closed."""

    keys: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    opened: tuple[int, ...] = ()
    closed: tuple[int, ...] = ()


class Chained(Slotted):
    """Emits for each key of a batch a checksum over all rows of the key so far, in their order.  `closes`: after so many
    rows a key begins anew, with the next one."""

    def __init__(self, *, closes: int | None = None) -> None:
        self.closes = closes

    def initial(self, place: Place) -> Sums:
        return Sums()

    def step(self, state: Sums, inbox: Inbox) -> tuple[Sums, pa.Table | None]:
        keys, given, closed = dict(state.keys), dict[int, int](), dict[int, None]()
        for one in inbox.inputs:
            for row in one.table.to_pylist():
                key = row["key"]
                before, rows = keys.get(key, (0, 0))
                given[key] = zlib.crc32(f"{inbox.batch} {sorted(row.items())}".encode(), before)
                keys[key] = given[key], rows + 1
                if rows + 1 == self.closes:
                    del keys[key]
                    closed[key] = None
        opened = tuple(key for key in keys if key not in state.keys or key in closed)
        now = Sums(keys, opened, tuple(closed))
        return now, pa.table({"key": list(given), "n": list(given.values())}) if given else None

    def freeze(self, state: Sums) -> Callable[[], Tables]:
        return lambda: {"sums": self.export(state, list(state.keys))}

    def restore(self, place: Place, tables: Tables) -> Sums:
        return self.load(place, tables["sums"], {})

    @property
    def slot_columns(self) -> tuple[str, ...]:
        return ("key",)

    def changes(self, state: Sums) -> Changes:
        closings = pa.table({"key": pa.array(state.closed, pa.int64())}) if state.closed else None
        return Changes(state.opened, state.closed, closings)

    def open_slots(self, state: Sums) -> Sequence[Hashable]:
        return tuple(state.keys)

    def export(self, state: Sums, slots: Sequence[Hashable]) -> pa.Table:
        rows = [(key, *state.keys[key]) for key in slots]  # type: ignore[index]
        columns = zip(*rows, strict=True) if rows else ((), (), ())
        return pa.table([pa.array(column, pa.int64()) for column in columns], ["key", "n", "rows"])

    def load(self, place: Place, table: pa.Table | None, rest: Mapping[str, Any]) -> Sums:
        rows = [] if table is None else table.to_pylist()
        return Sums({row["key"]: (row["n"], row["rows"]) for row in rows})

    def slots_of(self, table: pa.Table) -> pa.Table:
        return table.select(["key"])


@dataclass(slots=True)
class PagedSums:
    """The checksum of each key, and how many rows are in it, each key on a page of its own."""

    columns: Mapping[str, Array]
    pages: PageSet


class Paged(PagedOperator):
    """What `Chained` emits without `closes`, from a state in pages that is changed in place while snapshots of it are being
    stored."""

    def initial(self, place: Place) -> PagedSums:
        return self._state(*(np.zeros(KEYS * PAGE_ROWS, np.int64) for _ in range(2)))

    def step(self, state: PagedSums, inbox: Inbox) -> tuple[PagedSums, pa.Table | None]:
        sums, rows, given = state.columns["n"], state.columns["rows"], dict[int, int]()
        for one in inbox.inputs:
            for row in one.table.to_pylist():
                at = row["key"] * PAGE_ROWS
                state.pages.touch(np.array([at]))
                sums[at] = zlib.crc32(f"{inbox.batch} {sorted(row.items())}".encode(), int(sums[at]))
                rows[at] += 1
                given[row["key"]] = int(sums[at])
        return state, pa.table({"key": list(given), "n": list(given.values())}) if given else None

    def freeze(self, state: PagedSums) -> Callable[[], Tables]:
        now = pa.table({name: column.copy() for name, column in state.columns.items()})
        return lambda: {"sums": now}

    def freeze_pages(self, state: PagedSums) -> Callable[[], Parts]:
        frozen = state.pages.freeze(state.columns, KEYS * PAGE_ROWS)
        return lambda: {"sums": [frozen]}

    def restore(self, place: Place, tables: Tables) -> PagedSums:
        return self._state(*(tables["sums"][name].to_numpy().copy() for name in ("n", "rows")))

    @staticmethod
    def _state(sums: Array, rows: Array) -> PagedSums:
        return PagedSums({"n": sums, "rows": rows}, PageSet(len(sums)))


class Counting(Operator):
    """Gives each row with how many of its key there were so far (`seen`): in whatever order rows come, each of them is there
    once, and each count once."""

    def initial(self, place: Place) -> dict[int, int]:
        return {}

    def step(self, state: dict[int, int], inbox: Inbox) -> tuple[dict[int, int], pa.Table | None]:
        counts, given = dict(state), list[tuple[int, int, int]]()
        for one in inbox.inputs:
            for key, n in zip(one.table["key"].to_pylist(), one.table["n"].to_pylist(), strict=True):
                counts[key] = counts.get(key, 0) + 1
                given.append((key, n, counts[key]))
        columns = zip(*given, strict=True)
        return counts, pa.table(dict(zip(("key", "n", "seen"), columns, strict=True))) if given else None

    def freeze(self, state: dict[int, int]) -> Callable[[], Tables]:
        return lambda: {"counts": pa.table({"key": list(state), "seen": list(state.values())})}

    def restore(self, place: Place, tables: Tables) -> dict[int, int]:
        columns: dict[str, list[Any]] = tables["counts"].to_pydict()
        return dict(zip(columns["key"], columns["seen"], strict=True))


class Circling(Counting):
    """The same in a cycle.  What comes back from operator `loop` has gone round once more, which its number says: it grows
    by `LAP`.  After `laps` rounds a row ends here."""

    LAP: ClassVar[int] = 1_000_000

    def __init__(self, *, loop: str, laps: int) -> None:
        self.loop, self.laps = loop, laps

    def step(self, state: dict[int, int], inbox: Inbox) -> tuple[dict[int, int], pa.Table | None]:
        inputs = tuple(replace(one, table=self._went_round(one)) for one in inbox.inputs)
        return super().step(state, replace(inbox, inputs=inputs))

    def _went_round(self, one: Input) -> pa.Table:
        if one.operator != self.loop:
            return one.table
        rows = [(row["key"], row["n"] + self.LAP) for row in one.table.to_pylist()]
        goes_on = [row for row in rows if row[1] // self.LAP < self.laps]
        columns = zip(*goes_on, strict=True) if goes_on else ((), ())
        return pa.table([pa.array(column, pa.int64()) for column in columns], ["key", "n"])


class Windowed(Chained):
    """The same, anew in each window of `size` batches."""

    kind = Kind.CONVERGENT

    def __init__(self, *, size: int) -> None:
        super().__init__()
        self.size = size

    def oldest_needed(self, batch: int) -> int | None:
        return (batch - 1) // self.size * self.size + 1

    def step(self, state: Sums, inbox: Inbox) -> tuple[Sums, pa.Table | None]:
        return super().step(Sums() if inbox.batch == self.oldest_needed(inbox.batch) else state, inbox)

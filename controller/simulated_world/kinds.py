"""One operator for each kind (`reprise.spark_jobs.contract.Kind`) that is not in `operators`: each shows what its kind has
to answer for.

What a stateless one gives follows from single rows; how far back a window of event time reaches follows from its rows; and
what an arbitrary one gives is drawn, so that a batch that is made again is another one.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from reprise.controller.simulated_world.operators import Counting
from reprise.spark_jobs.contract import Inbox, Kind, Operator, Place, Tables


def rows_of(inbox: Inbox) -> list[dict[str, Any]]:
    """All rows of a batch, input by input."""
    return [row for one in inbox.inputs for row in one.table.to_pylist()]


def table_of(names: Sequence[str], rows: Sequence[Sequence[int]]) -> pa.Table:
    """Whole numbers as a table, also where there are no rows."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pa.table([pa.array(column, pa.int64()) for column in columns], list(names))


def _sum_of(row: Mapping[str, Any], batch: int, before: int = 0) -> int:
    return zlib.crc32(f"{batch} {sorted(row.items())}".encode(), before)


class Stateless(Operator):
    """Emits for each row its key and a checksum of the row and the batch."""

    kind = Kind.REPEATABLE

    def step(self, state: None, inbox: Inbox) -> tuple[None, pa.Table | None]:
        given = [(row["key"], _sum_of(row, inbox.batch)) for row in rows_of(inbox)]
        return None, table_of(("key", "n"), given) if given else None


@dataclass(frozen=True, slots=True)
class Panes:
    """`sums`: by start and key of each open window the checksum of its rows; `first`: by start the batch of the first of
    these; `closed`: windows that end there or before are closed."""

    sums: Mapping[tuple[int, int], int] = field(default_factory=dict)
    first: Mapping[int, int] = field(default_factory=dict)
    closed: int = 0


class EventTime(Operator):
    """Emits for each key of each window of `size` of a batch a checksum over the rows that it has there so far, and once
    more when the watermark closes it.  A row may be `LATE` batches older than the one it comes with, so some are of a window
    that was closed before, and are left out.  How far back it reaches is known by its state alone, as of windows of event
    time (docs/decisions/0077-event-time-windows-begin-anew.md)."""

    kind = Kind.CONVERGENT
    LATE: ClassVar[int] = 2

    def __init__(self, *, size: int) -> None:
        self.size = size

    def oldest_needed_behind(self, state: Panes, batch: int) -> int:
        """See `Operator.oldest_needed_behind`: at the latest the batch itself, which says again what is late."""
        return min(state.first.values(), default=batch)

    def initial(self, place: Place) -> Panes:
        return Panes()

    def step(self, state: Panes, inbox: Inbox) -> tuple[Panes, pa.Table | None]:
        sums, first, touched = dict(state.sums), dict(state.first), dict[tuple[int, int], int]()
        for row in rows_of(inbox):
            time = inbox.batch - _sum_of(row, inbox.batch) % (self.LATE + 1)
            start = time // self.size * self.size
            if start + self.size <= state.closed:
                continue
            at = start, row["key"]
            sums[at] = touched[at] = _sum_of(row, inbox.batch, sums.get(at, 0))
            first.setdefault(start, inbox.batch)
        mark = inbox.watermark
        closed = state.closed if mark is None else max(state.closed, mark)
        ended = sorted(at for at in sums if at[0] + self.size <= closed)
        given = [(key, n) for (_, key), n in touched.items()] + [
            (key, sums[start, key]) for start, key in ended
        ]
        left = Panes(
            {at: n for at, n in sums.items() if at not in ended},
            {start: batch for start, batch in first.items() if start + self.size > closed},
            closed,
        )
        return left, table_of(("key", "n"), given) if given else None

    def freeze(self, state: Panes) -> Callable[[], Tables]:
        def tables() -> Tables:
            sums = [(start, key, n, state.first[start]) for (start, key), n in state.sums.items()]
            return {
                "sums": table_of(("start", "key", "n", "first"), sums),
                "closed": table_of(("closed",), [(state.closed,)]),
            }

        return tables

    def restore(self, place: Place, tables: Tables) -> Panes:
        rows = tables["sums"].to_pylist()
        return Panes(
            {(row["start"], row["key"]): row["n"] for row in rows},
            {row["start"]: row["first"] for row in rows},
            tables["closed"]["closed"][0].as_py(),
        )


class Drawing(Counting):
    """Gives each row a number that is drawn (`drawn`), beside that of the row of its key before (`before`): rows of one try
    do not go on from a state of another."""

    kind = Kind.ARBITRARY
    dice: ClassVar[random.Random] = random.Random(0)

    def initial(self, place: Place) -> dict[int, Any]:
        return {}

    def step(self, state: dict[int, Any], inbox: Inbox) -> tuple[dict[int, Any], pa.Table | None]:
        had, given = dict(state), list[tuple[int, ...]]()
        for row in rows_of(inbox):
            seen, before = had.get(row["key"], (0, 0))
            had[row["key"]] = seen + 1, self.dice.getrandbits(40)
            given.append((row["key"], row["n"], *had[row["key"]], before))
        return had, table_of(("key", "n", "seen", "drawn", "before"), given) if given else None

    def freeze(self, state: dict[int, Any]) -> Callable[[], Tables]:
        rows = [(key, *one) for key, one in state.items()]
        return lambda: {"drawn": table_of(("key", "seen", "drawn"), rows)}

    def restore(self, place: Place, tables: Tables) -> dict[int, Any]:
        return {row["key"]: (row["seen"], row["drawn"]) for row in tables["drawn"].to_pylist()}


class Carrying(Counting):
    """Passes on what `Drawing` has drawn for each row, and counts the rows of each key as `Counting` does."""

    def step(self, state: dict[int, int], inbox: Inbox) -> tuple[dict[int, int], pa.Table | None]:
        counts, out = super().step(state, inbox)
        drawn = [row["drawn"] for row in rows_of(inbox)]
        return counts, None if out is None else out.append_column("drawn", pa.array(drawn, pa.int64()))


def _class(name: str, parameters: str = "") -> str:
    module = "operators" if name in ("Chained", "Windowed", "Counting") else "kinds"
    path = f'class: "reprise.controller.simulated_world.{module}:{name}"'
    return f"{path}\n      with: {{{parameters}}}" if parameters else path


CLASSES: Mapping[str, str] = {
    "deterministic": _class("Chained"),
    "convergent": _class("Windowed", "size: 4"),
    "by state": _class("EventTime", "size: 4"),
    "repeatable": _class("Stateless"),
}
"""By kind, what a resource says of an operator of it.  Windows of event time are `by state`: they are convergent, and say
only by their state how far back they reach."""
ARBITRARY = "arbitrary"
"""Of `count`, which then draws what it gives, between two operators that pass it on."""
DRAWN = _class("Counting"), _class("Drawing"), _class("Carrying")


def classes_of(kinds: str) -> tuple[str, str, str]:
    """What a resource says of `left`, `count` and `best`, from their kinds with commas between, or from `arbitrary`."""
    if kinds == ARBITRARY:
        return DRAWN
    left, count, best = (CLASSES[kind] for kind in kinds.split(","))
    return left, count, best


def draw_kinds(dice: random.Random, ways: Sequence[str]) -> str:
    """Kinds of operators that are available in these ways, and read each other in this order.  Behind one of which batches
    are skipped it must be known by their numbers which others lack rows; and of one with upstream backup how far back it
    reaches."""
    found, lacking = list[str](), False
    for way in ways:
        lacking |= way == "amnesia"
        unfit = {"by state"} if lacking else set[str]()
        if lacking or way == "upstream-backup":
            unfit.add("deterministic")
        found.append(dice.choice([kind for kind in CLASSES if kind not in unfit]))
    return ",".join(found)

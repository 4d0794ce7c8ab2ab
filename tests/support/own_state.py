"""An operator of one's own whose state has one of each thing that a state can be made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from reprise.contract import (
    Columns,
    DequeState,
    Inbox,
    ListState,
    MapState,
    Place,
    StatefulOperator,
    Timers,
)

AFTER = 3_000_000


@dataclass
class Held:
    counts: MapState
    texts: MapState
    every: ListState
    recent: DequeState
    timers: Timers


class Own(StatefulOperator):
    """Of each row: how many of its key there were, what the last one was, and how many are in the list and in the deque;
    of each timer, three seconds after a row, its key alone.  Some rows of a key let its entries of the maps go."""

    def __init__(self, keys: dict[str, pa.DataType], value: str) -> None:
        self.types, self.value = keys, value

    @property
    def state_keys(self) -> Columns:
        return tuple(self.types)

    def initial(self, place: Place) -> Held:
        counts = MapState(self.types, {"n": pa.int32(), "odd": pa.bool_(), "half": pa.float64()})
        texts = MapState(self.types, {"text": pa.string(), "number": pa.int64()})
        rows = {**self.types, "text": pa.string()}
        return Held(counts, texts, ListState(rows), DequeState(rows), Timers())

    def step(self, state: Held, inbox: Inbox) -> tuple[Held, pa.Table | None]:
        out = []
        table = inbox.table()
        for row in [] if table is None else table.to_pylist():
            parts = tuple(row[name] for name in self.types)
            key = parts[0] if len(parts) == 1 else parts
            n = state.counts.get(key, (0, False, 0.0))[0] + 1
            before = state.texts.get(key)
            text = None if row[self.value] is None else str(row[self.value])
            state.counts[key] = n, n % 2 == 1, n / 2
            state.texts[key] = text, n
            state.every.append((*parts, text))
            state.recent.append((*parts, text))
            mine = [sum(each[: len(parts)] == parts for each in held) for held in (state.every, state.recent)]
            out.append((parts, n, repr((before, state.counts[key])), *mine))
            if n % 7 == 0:
                del state.counts[key]
            if n % 5 == 0:
                del state.texts[key]
            state.timers.set(parts, row["time"] + AFTER)
        out += [(key, -1, "", 0, 0) for _, key in state.timers.due(inbox.watermark)]
        if not out:
            return state, None
        columns: dict[str, Any] = {
            name: pa.array([key[at] for key, *_ in out], kind)
            for at, (name, kind) in enumerate(self.types.items())
        }
        for at, name in enumerate(("n", "before", "every", "recent"), 1):
            columns[name] = [row[at] for row in out]
        return state, pa.table(columns)

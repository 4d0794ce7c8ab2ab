"""An operator of your own: a Python class, one instance for each partition.

`step` gets batch 1, 2, 3, ... in order, and what it makes of each counts once.  What it gives may depend on the state and
the rows alone: no clock, no random numbers.  After a failure a batch is applied again to a restored state, and must give
the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from reprise.contract import Inbox, Operator, Place, SpecError, Tables


class Record(Operator):
    """Gives a row whenever a key exceeds its greatest value so far, from `least` on."""

    def __init__(
        self, *, key: str, value: str, least: int = 1
    ) -> None:  # the `with:` of the topology, as keywords
        if least < 1:
            raise SpecError(
                "least", f"must be at least 1, not {least}"
            )  # `reprise validate` says it with the line
        self.key, self.value, self.least = key, value, least

    def initial(self, place: Place) -> dict[str, int]:
        return {}

    def step(self, state: dict[str, int], inbox: Inbox) -> tuple[dict[str, int], pa.Table | None]:
        table = inbox.table()  # all rows of the batch, in order; None when there are none
        if table is None:
            return state, None
        news: dict[str, int] = {}
        for key, value in zip(table[self.key].to_pylist(), table[self.value].to_pylist(), strict=True):
            if value >= self.least and value > state.get(key, 0):
                state[key] = news[key] = value
        return state, pa.table({self.key: list(news), self.value: list(news.values())}) if news else None

    def freeze(self, state: dict[str, int]) -> Callable[[], Tables]:
        copy = dict(state)  # quick: `step` goes on while what is returned runs in the background
        return lambda: {"greatest": pa.table({"key": list(copy), "value": list(copy.values())})}

    def restore(self, place: Place, tables: Tables) -> dict[str, int]:
        columns: dict[str, list[Any]] = tables["greatest"].to_pydict()
        return dict(zip(columns["key"], columns["value"], strict=True))

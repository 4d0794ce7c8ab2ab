"""An operator of your own: a Python class, one instance for each partition.

`step` gets batch 1, 2, 3, ... in order, and what it makes of each counts once.  What it gives may depend on the state and
the rows alone: no clock, no random numbers.  After a failure a batch is applied again to a restored state, and must give
the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from reprise.contract import Columns, Inbox, MapState, Place, SpecError, StatefulOperator


@dataclass
class Greatest:
    """The state.  What is in maps, lists and deques is stored with each checkpoint, and restored after a failure."""

    values: MapState


class Record(StatefulOperator):
    """Gives a row whenever a key exceeds its greatest value so far, from `least` on."""

    def __init__(
        self, *, key: str, value: str, least: int = 1
    ) -> None:  # the `with:` of the topology, as keywords
        if least < 1:
            raise SpecError(
                "least", f"must be at least 1, not {least}"
            )  # `reprise validate` says it with the line
        self.key, self.value, self.least = key, value, least

    @property
    def state_keys(self) -> Columns:
        return (self.key,)  # the state is divided by it when `parallelism` changes

    # When the state has other columns or fields one day, raise `state_version` and define `upgrade_state`: states that were
    # stored before are then taken over.

    def initial(self, place: Place) -> Greatest:
        return Greatest(MapState({self.key: pa.string()}, {"value": pa.int64()}))

    def step(self, state: Greatest, inbox: Inbox) -> tuple[Greatest, pa.Table | None]:
        table = inbox.table()  # all rows of the batch, in order; None when there are none
        if table is None:
            return state, None
        news: dict[str, int] = {}
        for key, value in zip(table[self.key].to_pylist(), table[self.value].to_pylist(), strict=True):
            if value >= self.least and value > state.values.get(key, 0):
                state.values[key] = news[key] = value
        return state, pa.table({self.key: list(news), self.value: list(news.values())}) if news else None

"""Operators for which a replay is another story: a toss of a coin and the running total of tosses."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa

from reprise.spark_jobs.contract import Inbox, Operator, Place, Tables


class Toss(Operator):
    """Emits a random number a batch."""

    deterministic = False

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        return state, pa.table({"toss": [random.randrange(10**6)]})


class Total(Operator):
    """Adds up what it gets."""

    def initial(self, place: Place) -> Any:
        return 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        table = inbox.table()
        toss = table["toss"][0].as_py() if table is not None else 0
        return state + toss, pa.table({"total": [state + toss], "toss": [toss]})

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return lambda: {"total": pa.table({"total": [state]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["total"]["total"][0].as_py()


class Told(Operator):
    """Emits a random number a batch with the sum of all that it has emitted, and with what it hears of that over a feedback
    edge: a partition that goes back alone is found out."""

    deterministic = False

    def initial(self, place: Place) -> Any:
        return 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        heard = [i.table["total"][0].as_py() for i in inbox.inputs if "total" in i.table.column_names]
        toss = self._toss(inbox.batch)
        row = {"toss": [toss], "own": [state + toss], "heard": [heard[0] if heard else 0]}
        return state + toss, pa.table(row)

    def _toss(self, batch: int) -> int:
        return random.randrange(10**6)

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return lambda: {"own": pa.table({"own": [state]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["own"]["own"][0].as_py()


class Steady(Told):
    """The same with numbers that follow from the batch."""

    deterministic = True

    def _toss(self, batch: int) -> int:
        return random.Random(batch).randrange(10**6)


class Ledger(Operator):
    """Adds up what it gets, and passes on what came with it."""

    def initial(self, place: Place) -> Any:
        return 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        table = inbox.table()
        assert table is not None
        total = state + table["toss"][0].as_py()
        return total, table.append_column("total", pa.array([total]))

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return lambda: {"total": pa.table({"total": [state]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["total"]["total"][0].as_py()


class RaisesAt(Operator):
    """Raises at one batch."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        if inbox.batch == self.batch:
            raise ValueError("no sevens")
        return state, inbox.table()


class Misbehaves(Operator):
    """Passes its rows on, and at one batch does something that `step` itself does not show."""

    def __init__(self, how: str, batch: int = 7) -> None:
        self.how, self.batch = how, batch

    def initial(self, place: Place) -> Any:
        return 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        out: Any = inbox.table()
        if inbox.batch >= self.batch and self.how == "list":
            out = [1, 2, 3]
        if inbox.batch >= self.batch and self.how == "key" and out is not None:
            out = out.rename_columns([f"not-{name}" for name in out.column_names])
        if inbox.batch >= self.batch and self.how == "bytes" and out is not None:
            out = out.append_column("raw", pa.array([b"\xff"] * out.num_rows))
        if inbox.batch >= self.batch and self.how == "panic":
            pl.from_arrow(pa.table({"n": pa.array([Decimal(10) ** 60], pa.decimal256(70))}))
        return state + 1, out

    def freeze(self, state: Any) -> Callable[[], Tables]:
        if self.how == "freeze" and state >= self.batch:
            raise KeyError("state")
        return lambda: {"batches": pa.table({"batches": [state]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["batches"]["batches"][0].as_py()

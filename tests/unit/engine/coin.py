"""Operators for which a replay is another story: a toss of a coin and the running total of tosses."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from spark_jobs.contract import Inbox, Operator, Place, Tables


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


class RaisesAt(Operator):
    """Raises at one batch."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        if inbox.batch == self.batch:
            raise ValueError("no sevens")
        return state, inbox.table()

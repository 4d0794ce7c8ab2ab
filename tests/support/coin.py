"""Operators for which a replay is another story: a toss of a coin and the running total of tosses."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa

from reprise.spark_jobs.contract import Inbox, Operator, Place, Tables
from reprise.spark_jobs.operators import RunningAggregate
from reprise.spark_jobs.operators.running import RunningState

EVERY = 4
TOLD_TO_TWO = f"""
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: arbitrary}}
spec:
  batch: {{interval: 100ms}}
  sources:
    - name: tweets
      class: reprise.spark_jobs.sources:HashtagSource
      parallelism: 2
      with: {{rate: 200, interval: 100ms, batches: 60, tags: 40, seed: 7}}
  operators:
    - name: told
      class: tests.support.coin:Told
      deterministic: false
      inputs: [{{from: tweets}}]
      availability: passive-standby
      standby: {{every: {EVERY}}}
    - name: left
      class: tests.support.coin:Ledger
      deterministic: true
      inputs: [{{from: told}}]
      output: {{priority: 3}}
    - name: right
      class: tests.support.coin:Ledger
      deterministic: true
      inputs: [{{from: told}}]
      output: {{priority: 9}}
  checkpoint: {{everyBatches: 10}}
  recovery: {{bufferMemory: 1Mi}}
  nodes: {{count: 4}}
"""
"""`told` draws a number a batch, and adds up what it has drawn; `left` and `right` add up what they are told."""


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


class Retold(Told):
    """Emits a random number a batch, too, and adds up what it is told: one that was told two stories is found out."""

    def initial(self, place: Place) -> Any:
        return 0, 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        table = inbox.table()
        assert table is not None
        toss = self._toss(inbox.batch)
        own, heard = state[0] + toss, state[1] + sum(table["toss"].to_pylist())
        return (own, heard), pa.table(
            {"toss": [toss], "own": [own], "heard": [heard], "told": [sum(table["own"].to_pylist())]}
        )

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return lambda: {"own": pa.table({"own": [state[0]], "heard": [state[1]]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["own"]["own"][0].as_py(), tables["own"]["heard"][0].as_py()


class Seldom(Told):
    """The same in every second batch; the others are without rows."""

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        return (state, None) if inbox.batch % 2 else super().step(state, inbox)


class Counted(RunningAggregate):
    """Counts, with a random number beside each row: its state can be stored in pages, and a replay gives other rows."""

    deterministic = False

    def step(self, state: RunningState, inbox: Inbox) -> tuple[RunningState, pa.Table | None]:
        state, table = super().step(state, inbox)
        if table is None:
            return state, None
        return state, table.append_column(
            "toss", pa.array([random.randrange(10**6) for _ in range(table.num_rows)])
        )


class Ledger(Operator):
    """Adds up what it gets, and passes on what came with it."""

    def initial(self, place: Place) -> Any:
        return 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        table = inbox.table()
        if table is None:
            return state, None
        total = state + sum(table["toss"].to_pylist())
        return total, table.append_column("total", pa.array([total] * table.num_rows))

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

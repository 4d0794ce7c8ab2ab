"""Operators of the library that note down what they do: when rows reach the output, and how long states are frozen.

Problem: in the order of arrival output is shown with the checkpoint that covers it, so the sink's files do not tell when the
work was done.  These operators give the same rows and store the same states as those that they are derived from, and write
one line of JSON a step with rows, or a snapshot, into a file for each partition and process of the folder `notes`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.contract import Inbox, Operator, Place, Tables
from reprise.operators import Join, RunningAggregate, Sink

APPLIED, FROZEN = "applied", "frozen"
BALLAST = "ballast"
"""The table of what makes a state larger."""


@dataclass(slots=True)
class Notes:
    """The notes of one instance, which serves one partition; the file is there with the first line."""

    folder: Path
    place: Place | None = None
    batch: int = 0
    """Of the last step."""
    _files: dict[str, Any] = field(default_factory=dict)

    def write(self, kind: str, **values: Any) -> None:
        """Add a line; it is whole in the file when this returns."""
        if self.place is None:
            return
        if kind not in self._files:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"{kind}.{self.place.partition}.{os.getpid()}.jsonl"
            self._files[kind] = (self.folder / name).open("a", buffering=1)
        self._files[kind].write(json.dumps(values) + "\n")

    def freezes(self, freeze: Callable[[Any], Callable[[], Tables]], state: Any) -> Callable[[], Tables]:
        """What `freeze` returns, with how long it took."""
        at, began = time.time(), time.perf_counter()
        encode = freeze(state)
        self.write(FROZEN, batch=self.batch, at=at, pause_s=time.perf_counter() - began)
        return encode


def read_notes(folder: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(partition, line), file by file; a last line that was cut off by a kill is left out."""
    for path in sorted(folder.glob(f"{kind}.*.jsonl")):
        partition = path.name.removeprefix(f"{kind}.").rsplit(".", 2)[0]
        for line in path.read_text().split("\n")[:-1]:
            yield partition, json.loads(line)


class _Noted(Operator):
    """What all of them share: whose notes they are, and those of snapshots."""

    _notes: Notes

    def initial(self, place: Place) -> Any:
        self._notes.place = place
        return super().initial(place)

    def restore(self, place: Place, tables: Tables) -> Any:
        self._notes.place = place
        return super().restore(place, tables)

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return super().freeze(state) if state is None else self._notes.freezes(super().freeze, state)


class NotedSink(_Noted, Sink):
    """A Sink that notes when rows came through it, by the batch of the source that they were in, which follows from their
    `time`; `interval`: microseconds of one batch."""

    def __init__(self, *, notes: str, interval: int) -> None:
        self._notes, self._interval = Notes(Path(notes)), interval

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        state, table = super().step(state, inbox)
        if table is not None and table.num_rows:
            times = table["time"].to_numpy(zero_copy_only=False)
            batches, counts = np.unique(times // self._interval + 1, return_counts=True)
            rows = [[int(b), int(n)] for b, n in zip(batches, counts, strict=True)]
            self._notes.write(APPLIED, at=time.time(), rows=rows)
        return state, table


class _NotedState(_Noted):
    """One that notes its snapshots alone.  `ballast`: MiB of random bytes, stored with its state and read with it."""

    def __init__(self, *, notes: str, ballast: int = 0, **parameters: Any) -> None:
        super().__init__(**parameters)
        self._notes = Notes(Path(notes))
        self._ballast: pa.Table | None = None
        if ballast:
            dice = np.random.default_rng(0)
            self._ballast = pa.table({"bytes": [dice.bytes(2**20) for _ in range(ballast)]})

    def freeze(self, state: Any) -> Callable[[], Tables]:
        encode, ballast = super().freeze(state), self._ballast
        return encode if ballast is None else lambda: {**encode(), BALLAST: ballast}

    def restore(self, place: Place, tables: Tables) -> Any:
        if self._ballast is not None:
            self._ballast = tables[BALLAST]
        return super().restore(place, {name: table for name, table in tables.items() if name != BALLAST})

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        self._notes.batch = inbox.batch
        return super().step(state, inbox)


class NotedJoin(_NotedState, Join):
    """A Join that notes its snapshots."""


class NotedRunningAggregate(_NotedState, RunningAggregate):
    """A RunningAggregate that notes its snapshots."""

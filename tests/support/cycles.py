"""Sources that are quiet at the end, and an operator that counts, for tests of cycles in the order of arrival: what goes
round when a stream ends differs from run to run, so everything has to have come to rest before.  And a topology with
cycles whose operators may have any way to come back, in aligned order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from reprise.controller.simulated_world.operators import Numbers
from reprise.spark_jobs.contract import Inbox, Operator, Place, Range, Tables
from reprise.spark_jobs.errors import NotYetError
from reprise.spark_jobs.sources import HashtagSource, ReachabilitySource
from tests.support.straggling import EndsWhenTold, Straggler


class Quiet(HashtagSource):
    """Hashtags in `batches` batches, of which the last `quiet` have no rows."""

    def __init__(self, *, quiet: int, batches: int, rate: int, interval: str, tags: int, seed: int) -> None:
        super().__init__(batches=batches, rate=rate, interval=interval, tags=tags, seed=seed)
        self.last = batches - quiet

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        usual = super().advance(place, batch, start)
        return usual if usual is None or batch <= self.last else start


class QuietStraggler(Quiet, Straggler):
    """The same, of which batches can be held back."""


class Growing(ReachabilitySource):
    """A graph of which nothing is deleted, in `batches` batches, of which the last `quiet` have no rows; those of links wait
    as `Straggler` says."""

    def __init__(
        self, *, kind: str, quiet: int, batches: int, rate: int, nodes: int, interval: str, seed: int
    ) -> None:
        super().__init__(kind=kind, batches=batches, rate=rate, nodes=nodes, interval=interval, seed=seed)
        self.last = batches - quiet

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        usual = super().advance(place, batch, start)
        return usual if usual is None or batch <= self.last else start

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        if self.kind == "links" and Straggler.upto is not None and batch > Straggler.upto:
            raise NotYetError(f"batch {batch} is held back")
        rows = super().read(place, batch, span)
        return rows.slice(0, 0) if self.kind == "deletes" or span.start == span.end else rows


class QuietWhenTold(EndsWhenTold):
    """Hashtags without an end until `file` is there.  It holds the last batch with rows; `quiet` without follow."""

    def __init__(self, *, file: str, quiet: int, rate: int, interval: str, tags: int, seed: int) -> None:
        super().__init__(file=file, rate=rate, interval=interval, tags=tags, seed=seed)
        self.quiet = quiet

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        last: int = self.told(batch)
        if batch > last + self.quiet:
            return None
        return HashtagSource.advance(self, place, batch, start) if batch <= last else start


class Nth(Operator):
    """Says of each row its tag and how many of that tag there were so far: the same rows in whatever order they come."""

    def initial(self, place: Place) -> dict[str, int]:
        return {}

    def step(self, state: dict[str, int], inbox: Inbox) -> tuple[dict[str, int], pa.Table | None]:
        counts, given = dict(state), list[tuple[str, int]]()
        for one in inbox.inputs:
            for tag in one.table["tag"].to_pylist():
                counts[tag] = counts.get(tag, 0) + 1
                given.append((tag, counts[tag]))
        if not given:
            return counts, None
        tags, seen = zip(*given, strict=True)
        return counts, pa.table({"tag": list(tags), "seen": list(seen)})

    def freeze(self, state: dict[str, int]) -> Callable[[], Tables]:
        return lambda: {"counts": pa.table({"tag": list(state), "seen": list(state.values())})}

    def restore(self, place: Place, tables: Tables) -> dict[str, int]:
        columns: dict[str, list[Any]] = tables["counts"].to_pydict()
        return dict(zip(columns["tag"], columns["seen"], strict=True))


class Steady(Numbers):
    """Numbers of which each batch has as many rows each time that it is asked for."""

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        usual = super().advance(place, batch, start)
        return usual if usual is None or batch > self.last else start + 1 + (7 * batch + place.index) % 3


ROUNDS = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: rounds}
spec:
  batch: {interval: 100ms}
  sources:
    - name: tweets
      class: tests.support.cycles:Steady
      parallelism: 2
      with: {batches: 60}
  operators:
    - name: parse
      class: reprise.controller.simulated_world.operators:Chained
      deterministic: true
      parallelism: 2
      inputs: [{from: tweets, forward: true}]
    - name: count
      class: reprise.controller.simulated_world.operators:Chained
      deterministic: true
      parallelism: 2
      inputs: [{from: parse, by: [key]}, {from: best, by: [key], feedback: true}]
      output: {priority: 3}
    - name: best
      class: reprise.controller.simulated_world.operators:Chained
      deterministic: true
      inputs: [{from: count, by: [key]}, {from: best, by: [key], feedback: true}]
      output: {priority: 9}
    - name: late
      class: reprise.controller.simulated_world.operators:Chained
      deterministic: true
      inputs: [{from: count, by: [key]}, {from: tweets, by: [key], feedback: true}]
      output: {priority: 1}
  checkpoint: {everyBatches: 10}
  recovery: {bufferMemory: 1Mi}
  nodes: {count: 4}
"""
"""`count` and `best` read each other, `best` reads itself, and `late` reads a source one batch later, in no cycle; a row
that is lost, doubled or out of order changes all later output of its key."""

"""Source partitions that have nothing to read for a while hold nobody back, and a replay comes to the same output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Place, Range, Source
from reprise.spark_jobs.operators.frames import IDLE
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import load_text
from tests.support.engine_worlds import all_anew, begun, fault_free
from tools.testbed.local_engine import World, past

SECOND = 1_000_000
SILENT = range(3, 30)
"""Batches in which partition 1 is idle."""
LAST = 40
BEHIND = 20
"""Partition 1 is so many seconds behind when it goes on."""


class HalfIdle(Source):
    """A row a second; partition 1 has none in `SILENT`, and, with `never`, at no time."""

    def __init__(self, *, never: bool = False) -> None:
        self.never = never

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        if batch > LAST:
            return None
        return start + (not self._silent(place, batch))

    def _silent(self, place: Place, batch: int) -> bool:
        return place.index == 1 and (self.never or batch in SILENT)

    def _time(self, place: Place, batch: int) -> int:
        return (batch - BEHIND * (place.index == 1 and batch >= SILENT.stop)) * SECOND

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        rows = span.end - span.start
        columns = {"time": [self._time(place, batch)] * rows, "who": [place.index] * rows}
        return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return IDLE if self._silent(place, batch) else self._time(place, batch)


TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: idle}
spec:
  batch: {interval: 100ms, order: %s}
  sources: [{name: in, class: "%s:HalfIdle", parallelism: 2, with: {never: %s}}]
  operators:
    - name: same
      class: reprise.operators:Filter
      parallelism: 2
      with: {where: "who >= 0"}
      inputs: [{from: in, forward: true}]
    - name: counts
      class: reprise.operators:TumblingWindow
      with: {size: 5s, aggregate: {rows: "count()"}}
      inputs: [{from: same}]
      output: {}
  checkpoint: {everyBatches: 7}
"""


def world(folder: Path, name: str = "w", never: bool = False, order: str = "aligned") -> World:
    text = TOPOLOGY % (order, __name__, str(never).lower())
    return begun(text, folder, name=name, ahead=3)


def windows(output: dict[str, bytes]) -> list[tuple[int, list[Any]]]:
    """Batch and rows of each file that has some."""
    return [
        (int(name.rpartition("-")[2].partition(".")[0]), content.splitlines())
        for name, content in sorted(output.items())
        if content
    ]


@pytest.mark.parametrize("order", ["aligned", "arrival"])
@pytest.mark.parametrize("never", [False, True])
def test_windows_close_while_an_input_is_idle(tmp_path: Path, never: bool, order: str) -> None:
    found = world(tmp_path, never=never, order=order)
    found.run(past(28))
    closed = [batch for batch, _ in windows(found.output())]
    assert len(closed) >= 3, "the windows that end at 5, 10 and 15 s"
    found.run(lambda e: e.done)
    rows = b"".join(b"".join(lines) for _, lines in windows(found.output()))
    assert rows.count(b"window_start") == LAST // 5 + 1


@pytest.mark.parametrize("order", ["aligned", "arrival"])
def test_a_replay_has_the_same_output(tmp_path: Path, order: str) -> None:
    expected = fault_free(world(tmp_path, "expected", order=order))
    found = world(tmp_path, "found", order=order)
    for at, nodes in ((10, "de"), (26, "fg"), (33, "hi")):
        found.run(past(at))
        all_anew(found, at, *nodes)
    found.run(lambda e: e.done)
    assert sorted(rows_of(found.output())) == sorted(rows_of(expected))
    if order == "aligned":
        assert found.output() == expected


def rows_of(output: dict[str, bytes]) -> list[tuple[int, int]]:
    """Start in seconds and rows of each window that was shown."""
    rows = [json.loads(line) for _, lines in windows(output) for line in lines]
    return [(row["window_start"] // SECOND, row["rows"]) for row in rows]


@pytest.mark.parametrize("order", ["aligned", "arrival"])
def test_rows_that_come_after_a_time_without_any_do_not_take_time_back(tmp_path: Path, order: str) -> None:
    """Those of partition 1 from batch 30 on begin at 10 s.  Windows up to 25 or 30 s are shown by then: they stay as they
    were shown, and no row before them counts."""
    found = dict(rows_of(fault_free(world(tmp_path, order=order))))
    assert len(found) == LAST // 5 + 1, "each window once"
    assert [found[start] for start in (5, 10, 15, 20)] == [5, 5, 5, 5]


def test_time_stands_still_where_an_input_has_ended_and_the_other_is_idle(tmp_path: Path) -> None:
    """Rows that come later are not lost."""
    text = TWO % (__name__, __name__)
    found = rows_of(fault_free(begun(text, tmp_path, ahead=3)))
    assert sum(rows for _, rows in found) == 3 + LAST - len(SILENT)


class Ending(HalfIdle):
    """Partition 0 of `HalfIdle`, up to batch 3."""

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        return None if batch > 3 else start + 1


class Alone(HalfIdle):
    """Partition 1 of `HalfIdle`, and not behind when it goes on."""

    def _silent(self, place: Place, batch: int) -> bool:
        return batch in SILENT


TWO = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: two}
spec:
  batch: {interval: 100ms}
  sources:
    - {name: ending, class: "%s:Ending"}
    - {name: alone, class: "%s:Alone"}
  operators:
    - name: counts
      class: reprise.operators:TumblingWindow
      with: {size: 5s, aggregate: {rows: "count()"}}
      inputs: [{from: ending}, {from: alone}]
      output: {}
  checkpoint: {everyBatches: 7}
"""


def test_a_trial_in_one_process_has_the_same_watermarks(tmp_path: Path) -> None:
    """As `reprise validate --try` has them."""
    text = TOPOLOGY % ("aligned", __name__, "false")
    tried = [
        (row["window_start"] // SECOND, row["rows"])
        for outputs in run_local(load_text(text))
        if (table := outputs["counts.0"]) is not None
        for row in table.to_pylist()
    ]
    assert tried == rows_of(fault_free(world(tmp_path)))

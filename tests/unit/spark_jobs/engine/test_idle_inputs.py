"""Source partitions that have nothing to read for a while hold nobody back, and a replay comes to the same output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Place, Range, Source
from reprise.spark_jobs.operators.frames import END_OF_TIME, IDLE
from tests.support.engine_worlds import all_anew, begun, fault_free
from tools.testbed.local_engine import World, past

SECOND = 1_000_000
SILENT = range(3, 30)
"""Batches in which partition 1 is idle."""
LAST = 40


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

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        return pa.table({"time": [batch * SECOND], "who": [place.index]})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return IDLE if self._silent(place, batch) else batch * SECOND


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


def test_a_replay_has_the_same_output(tmp_path: Path) -> None:
    expected = fault_free(world(tmp_path, "expected"))
    found = world(tmp_path, "found")
    for at, nodes in ((10, "de"), (26, "fg")):
        found.run(past(at))
        all_anew(found, at, *nodes)
    found.run(lambda e: e.done)
    assert found.output() == expected


def test_rows_that_come_after_a_time_without_any_do_not_take_time_back(tmp_path: Path) -> None:
    """Those of partition 1 in batch 30 are at 30 s, where the others are: nothing is late, and nothing is counted twice."""
    output = fault_free(world(tmp_path))
    rows = b"".join(b"".join(lines) for _, lines in windows(output)).decode()
    counts = [int(part.partition("}")[0]) for part in rows.split('"rows":')[1:]]
    assert sum(counts) == 2 * LAST - len(SILENT)
    assert END_OF_TIME < IDLE

"""A source partition at work: what it reads, and what it reads again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Place, Range, Source, Tables
from reprise.spark_jobs.errors import NotYetError, SinkError, SourceError, StepError
from reprise.spark_jobs.node import runtime as runtime_module
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.runtime import (
    SourceRuntime,
)
from reprise.spark_jobs.node.wire import decode_table
from reprise.spark_jobs.operators.frames import END_OF_TIME
from reprise.spark_jobs.topology import expand, load_text
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tests.unit.spark_jobs.node.test_runtime import ANYBODY, PARTITIONS


class Reading(Source):
    """Keeps what it was asked; its state is the last batch that it has followed."""

    def __init__(self) -> None:
        self.asked, self.followed, self.closed = list[int](), list[int](), False
        self.raises: Exception | None = None

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        return None

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        if self.raises is not None:
            raise self.raises
        self.asked.append(batch)
        return pa.table({"n": list(range(span.start, span.end))})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return 10 * batch

    def follow(
        self, place: Place, state: Any, batch: int, span: Range, table: pa.Table | None
    ) -> tuple[Any, int | None]:
        self.followed.append(batch)
        return batch, self.watermark(place, batch, span)

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return lambda: {"at": pa.table({"at": [state]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["at"]["at"][0].as_py()

    def close(self) -> None:
        self.closed = True


def source(folder: Path, at: int = 0, memory: int = 10**6, disk: int = 0) -> tuple[SourceRuntime, Reading]:
    reading = Reading()
    runtime = SourceRuntime(PARTITIONS["in.0"], reading, at, Budget(memory, disk, folder))
    runtime.ranges = {b: Range(10 * (b - 1), 10 * b) for b in range(at + 1, at + 6)}
    runtime.horizon = at + 5
    return runtime, reading


def sent(runtime: SourceRuntime, applied: int = 0, window: int = 99) -> list[tuple[int, int | None, int]]:
    """Batch, watermark and rows of what is sent."""
    found = [
        (m.batch, m.watermark, decode_table(body)) for m, body in runtime.pending("mid.0", applied, window)
    ]
    return [(batch, mark, 0 if table is None else table.num_rows) for batch, mark, table in found]


def test_a_source_reads_up_to_the_horizon_and_what_it_has_ranges_for(tmp_path: Path) -> None:
    runtime, reading = source(tmp_path)
    runtime.horizon = 2
    assert runtime.advance(ANYBODY)
    assert (runtime.position, runtime.input_bytes) == (1, 80)
    assert runtime.advance(ANYBODY)
    assert runtime.input_bytes == 160
    assert not runtime.advance(ANYBODY)
    runtime.horizon = 99
    while runtime.advance(ANYBODY):
        pass
    assert runtime.position == 5
    assert reading.asked == reading.followed == [1, 2, 3, 4, 5]
    assert runtime.cpu_s > 0
    assert sent(runtime, window=3) == [(1, 10, 10), (2, 20, 10), (3, 30, 10)]
    assert sent(runtime, applied=2, window=3) == [(4, 40, 10), (5, 50, 10)]


def test_nothing_is_read_before_anybody_has_said_how_far(tmp_path: Path) -> None:
    runtime = SourceRuntime(PARTITIONS["in.0"], Reading(), 0, Budget(10**6, 0, tmp_path))
    runtime.ranges = {1: Range(0, 10)}
    assert not runtime.advance(ANYBODY)
    assert (runtime.cpu_s, runtime.input_bytes) == (0.0, 0)


def test_an_empty_range_is_not_read_and_has_a_watermark(tmp_path: Path) -> None:
    runtime, reading = source(tmp_path)
    runtime.ranges[1] = Range(0, 0)
    runtime.ranges[2] = Range(0, 1)
    runtime.advance(ANYBODY)
    runtime.advance(ANYBODY)
    assert (reading.asked, reading.followed) == ([2], [1, 2])
    assert sent(runtime) == [(1, 10, 0), (2, 20, 1)]


def test_the_end_of_a_stream_or_of_one_source_is_the_end_of_time(tmp_path: Path) -> None:
    runtime, reading = source(tmp_path)
    runtime.final, runtime.horizon = 3, 9
    runtime.ranges[2] = Range(~10, ~10)
    del runtime.ranges[3]
    while runtime.position < 4:
        assert runtime.advance(ANYBODY)
    assert sent(runtime) == [(1, 10, 10), (2, END_OF_TIME, 0), (3, END_OF_TIME, 0), (4, END_OF_TIME, 0)]
    assert reading.asked == [1]


@pytest.mark.parametrize("error", [SourceError("no route"), NotYetError("on their way")])
def test_trouble_of_a_source_passes(tmp_path: Path, error: Exception) -> None:
    runtime, reading = source(tmp_path)
    reading.raises = error
    with pytest.raises(type(error)):
        runtime.advance(ANYBODY)
    reading.raises = None
    assert runtime.advance(ANYBODY)


def test_what_else_a_source_raises_is_its_own_error(tmp_path: Path) -> None:
    runtime, reading = source(tmp_path)
    reading.raises = SinkError("odd")
    with pytest.raises(StepError, match=r"operator in, partition in\.0, batch 1: SinkError: odd"):
        runtime.advance(ANYBODY)


def test_what_is_not_in_memory_any_more_is_read_again_with_its_first_watermark(tmp_path: Path) -> None:
    runtime, reading = source(tmp_path, memory=0)
    while runtime.advance(ANYBODY):
        pass
    assert runtime.position == 5
    reading.watermark = lambda *_: 7  # type: ignore[method-assign]
    assert sent(runtime) == [(b, 10 * b, 10) for b in (1, 2, 3, 4, 5)]
    assert reading.asked == [1, 2, 3, 4, 5] * 2
    assert reading.followed == [1, 2, 3, 4, 5]
    assert sent(runtime) == []
    runtime.rewind("mid.0", 4)
    assert sent(runtime, applied=4) == [(5, 50, 10)]
    assert reading.asked[10:] == [], "the last one that was read again is there"


def test_what_is_read_again_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, _ = source(tmp_path, memory=0)
    while runtime.advance(ANYBODY):
        pass
    ((_, body),) = runtime.pending("mid.0", 0, 1)
    monkeypatch.setattr(runtime_module, "IN_FLIGHT", len(body))
    assert [batch for batch, _, _ in sent(runtime)] == [2]
    assert [batch for batch, _, _ in sent(runtime, window=3)] == [3]
    assert sent(runtime, window=3) == []


def test_rows_of_a_forward_edge_go_to_the_partition_of_the_same_number(tmp_path: Path) -> None:
    partition = expand(load_text(DIAMOND)).partitions["tweets.1"]
    runtime = SourceRuntime(partition, Reading(), 0, Budget(10**6, 0, tmp_path))
    runtime.ranges, runtime.horizon = {1: Range(0, 10)}, 1
    assert runtime.advance(ANYBODY)
    ((message, body),) = runtime.pending("parse.1", 0, 9)
    assert runtime.buffers.keys() == {"parse.1"}
    assert (message.source, message.target) == ("tweets.1", "parse.1")
    rows = decode_table(body)
    assert rows is not None and rows.num_rows == 10


def test_nothing_is_sent_that_was_not_read_yet_or_has_no_range_any_more(tmp_path: Path) -> None:
    runtime, _ = source(tmp_path, memory=0)
    for _ in range(3):
        runtime.advance(ANYBODY)
    runtime.forget(1)
    assert runtime.ranges.keys() == {2, 3, 4, 5}
    assert runtime.marks.keys() == {2, 3}
    assert sent(runtime) == []
    runtime.rewind("mid.0", 1)
    assert [batch for batch, _, _ in sent(runtime)] == [2, 3]


def test_a_reader_over_a_feedback_edge_is_read_the_batch_of_the_checkpoint(tmp_path: Path) -> None:
    """It is behind by that one; the state that the source begins with has followed it."""
    partition = PARTITIONS["in.0"]
    late = replace(partition, downstream=tuple(replace(down, feedback=True) for down in partition.downstream))
    reading = Reading()
    runtime = SourceRuntime(late, reading, 5, Budget(10**6, 0, tmp_path))
    runtime.restore({"at": pa.table({"at": [5]})})
    assert (runtime.forgotten, runtime.kept_since) == (4, 5)
    assert runtime.rewind("mid.0", 5) and not runtime.rewind("mid.0", 4)
    runtime.rewind("mid.0", 5)
    runtime.ranges, runtime.horizon = {b: Range(10 * (b - 1), 10 * b) for b in (5, 6, 7, 8)}, 8
    while runtime.advance(ANYBODY):
        pass
    assert [(batch, rows) for batch, _, rows in sent(runtime, applied=5)] == [
        (5, 10),
        (6, 10),
        (7, 10),
        (8, 10),
    ]
    assert (reading.followed, runtime.state) == ([6, 7, 8], 8)
    runtime.forget(7)
    assert runtime.ranges.keys() == {7, 8} and runtime.marks.keys() == {7, 8}
    assert (runtime.forgotten, runtime.kept_since) == (6, 7)
    covered = (Positions(7, {}), Positions(6, {}))
    assert [runtime.lacks(c) for c in covered] == [0, 7]


def test_spilled_rows_of_a_source_that_are_lost_are_read_again(tmp_path: Path) -> None:
    runtime, reading = source(tmp_path, memory=0, disk=10**6)
    while runtime.advance(ANYBODY):
        pass
    for spilled in tmp_path.glob("*.spill"):
        spilled.unlink()
    assert sent(runtime) == [(b, 10 * b, 10) for b in (1, 2, 3, 4, 5)]
    assert reading.asked == [1, 2, 3, 4, 5] * 2


def test_a_source_s_state_is_its_own(tmp_path: Path) -> None:
    runtime, reading = source(tmp_path)
    assert runtime.freeze({}) is None
    runtime.advance(ANYBODY)
    encode = runtime.freeze(runtime.loops())
    assert encode is not None
    again, _ = source(tmp_path, at=1)
    again.restore(encode())
    assert again.state == 1
    runtime.close()
    assert reading.closed
    assert runtime.buffers["mid.0"].budget.memory == 0

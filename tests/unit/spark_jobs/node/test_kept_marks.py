"""What a standby has kept is given to the sink when it is promoted: batches that may lack rows are marked before, and what
the sink cannot take yet comes before anything else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from reprise.spark_jobs.errors import NotYetError, SinkError
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.node.skipping import Skipped
from reprise.spark_jobs.node.standbys import CatchingUp, KeptOutput, promoted
from reprise.spark_jobs.sinks import Sink


class Said(Sink):
    """Notes what it is told, in order."""

    marks = True

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def mark(self, batch: int) -> None:
        self.told.append(("mark", batch))

    def write(self, batch: int, table: Any) -> None:
        self.told.append(("write", batch))

    def shown(self) -> list[tuple[int, float]]:
        return []


def test_batches_that_may_lack_rows_are_marked_before_they_are_shown() -> None:
    kept, sink = KeptOutput(0), Said()
    for batch in (1, 2, 3, 4):
        if batch in (2, 3):  # 4 was kept before it was known that it may lack rows
            kept.mark(batch)
        kept.write(batch, pa.table({"n": [batch]}))
    kept.forget(2)  # the partition has shown, and marked, those
    skipped = Skipped(marked=((1, 4),))
    runtime = SimpleNamespace(sink=kept, skipped=skipped, unmarked=(), cpu_s=1.0, input_bytes=1, input_rows=1)
    promoted(cast(OperatorRuntime, runtime), sink, 2)
    assert sink.told == [("mark", 3), ("write", 3), ("mark", 4), ("write", 4)]
    assert runtime.unmarked == (1, 2), "the partition may have been lost before it marked what it had shown"
    assert runtime.sink is sink


class Slow(Said):
    """Takes one batch and then no other before it has shown that, and marks none before its brokers answer."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.answers, self.down = False, False

    def mark(self, batch: int) -> None:
        if not self.answers:
            raise NotYetError("the brokers have not answered")
        super().mark(batch)

    def write(self, batch: int, table: Any) -> None:
        if self.down:
            raise SinkError("no answer")
        if self.waiting:
            raise NotYetError("no room")
        self.waiting = batch
        super().write(batch, table)

    def settle(self, patience_s: float) -> str | None:
        self.visible, self.waiting = max(self.visible, self.waiting), 0
        return None


def test_what_the_sink_does_not_take_yet_is_given_before_anything_else_and_counts_as_not_shown() -> None:
    kept, sink = KeptOutput(0), Slow()
    for batch in (1, 2, 3, 4):
        kept.write(batch, pa.table({"n": [batch]}))
    kept.mark(2)
    runtime = SimpleNamespace(
        sink=kept, skipped=Skipped(), unmarked=(), cpu_s=1.0, input_bytes=1, input_rows=1
    )
    promoted(cast(OperatorRuntime, runtime), sink, 0)
    later = runtime.sink
    assert isinstance(later, CatchingUp)
    assert (sink.told, later.visible, later.marks) == ([("write", 1)], 0, True)
    assert later.settle(0.0) is None
    with pytest.raises(NotYetError):
        later.write(5, None)
    assert (sink.told[1:], later.visible) == ([], 1), "it came before those that wait"
    sink.answers = True
    assert later.settle(0.0) is None
    assert (sink.told[1:], later.visible) == ([("mark", 2), ("write", 2), ("write", 3)], 2)
    sink.down = True
    assert later.settle(0.0) == "no answer"
    sink.down = False
    assert later.settle(0.0) is None
    assert (sink.told[4:], later.visible, later.waits) == ([("write", 4)], 4, 0)
    later.write(5, None)
    assert sink.told[5:] == [("write", 5)]


def test_other_trouble_leaves_a_standby_as_it_was() -> None:
    kept, sink = KeptOutput(0), Slow()
    kept.write(1, None)
    sink.down = True
    runtime = SimpleNamespace(sink=kept, skipped=Skipped(), unmarked=())
    with pytest.raises(SinkError, match="no answer"):
        promoted(cast(OperatorRuntime, runtime), sink, 0)
    assert runtime.sink is kept
    assert list(kept.behind(0)) == [(1, None)]

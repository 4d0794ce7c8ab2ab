"""A batch that could not be finished is tried again, and nothing that was done of it is done a second time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Inbox, Operator, Place
from reprise.spark_jobs.errors import EncodeError, NotYetError, SinkError, StepError
from reprise.spark_jobs.kafka import sink as kafka_sink
from reprise.spark_jobs.kafka.sink import KafkaSink
from reprise.spark_jobs.kafka.transactions import Marker
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.node.skipping import Skipped
from reprise.spark_jobs.node.standbys import KeptOutput, promoted
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.sinks import ENCODERS, Opening, Owner, Sink
from reprise.spark_jobs.sinks.url import file_sink
from reprise.spark_jobs.topology import expand, load_text
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

ROWS = pa.table({"tag": ["a", "b", "c", "d"], "count": [1, 2, 3, 4]})
ANYBODY = lambda _: True  # noqa: E731


@dataclass
class Recorder(Sink):
    """Notes each write; `errors` are raised first, one a call."""

    errors: list[Exception] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    marked: list[int] = field(default_factory=list)
    marks: ClassVar[bool] = True

    def write(self, batch: int, table: pa.Table | None) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.written.append(batch)
        self.visible = batch

    def mark(self, batch: int) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.marked.append(batch)

    def shown(self) -> list[tuple[int, float]]:
        return []


class Counting(Operator):
    """Counts its steps; what it emits is `gives`."""

    def __init__(self, gives: pa.Table = ROWS) -> None:
        self.gives, self.steps = gives, 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        self.steps += 1
        return state, self.gives


def runtime(
    tmp_path: Path, name: str, memory: int, sink: Sink | None = None, gives: pa.Table = ROWS
) -> OperatorRuntime:
    """A partition of the diamond with batches 1 and 2 of its input in the inbox."""
    partition = expand(load_text(DIAMOND)).partitions[name]
    made = OperatorRuntime(
        partition, Counting(gives), None, 0, Budget(memory, 0, tmp_path), sink if sink else Recorder()
    )
    for upstream in partition.upstream:
        for batch in (1, 2):
            made.deliver(Message(upstream.partition, name, batch, 7, ROWS))
    return made


def full(made: OperatorRuntime, batch: int) -> None:
    """Try a batch while the node's buffers are full, several times."""
    for _ in range(3):
        with pytest.raises(BufferError):
            made.advance(ANYBODY)
        assert made.position == batch - 1


def test_full_buffers_repeat_neither_step_nor_write(tmp_path: Path) -> None:
    sink = Recorder()
    made = runtime(tmp_path, "count.0", 10**6, sink)
    assert made.advance(ANYBODY)
    made.buffers["top.0"].budget.memory_limit = 0
    full(made, 2)
    assert sink.written == [1, 2]
    assert isinstance(made.operator, Counting)
    assert made.operator.steps == 2
    taken = made.input_bytes
    made.buffers["top.0"].budget.memory_limit = 10**6
    assert made.advance(ANYBODY)
    assert (sink.written, made.position, made.input_bytes) == ([1, 2], 2, taken)


def test_staged_output_is_staged_once(tmp_path: Path) -> None:
    made = runtime(tmp_path, "count.0", 10**6)
    made.staged = {}
    assert made.advance(ANYBODY)
    made.buffers["top.0"].budget.memory_limit = 0
    full(made, 2)
    assert list(made.staged) == [1, 2]


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("error", [RuntimeError("no connection"), ValueError("busy"), OSError("away")])
def test_a_mark_that_is_not_taken_is_given_again(tmp_path: Path, error: Exception, staged: bool) -> None:
    """Whatever a sink's client library raises: the partition waits and is not set aside."""
    sink = Recorder([error])
    made = runtime(tmp_path, "count.0", 10**6, sink)
    made.skipped = Skipped(marked=((1, 1),))
    made.staged = {} if staged else None
    with pytest.raises((SinkError, OSError), match=str(error)):
        made.advance(ANYBODY)
    assert made.position == 0
    assert made.advance(ANYBODY)
    assert sink.marked == [1]
    assert isinstance(made.operator, Counting)
    assert made.operator.steps == 1


def test_a_standby_whose_sink_s_library_fails_when_it_is_promoted_waits(tmp_path: Path) -> None:
    kept = KeptOutput(0)
    made = runtime(tmp_path, "count.0", 10**6, kept)
    assert made.advance(ANYBODY) and made.advance(ANYBODY)
    sink = Recorder([RuntimeError("no connection")])
    with pytest.raises(SinkError, match="no connection"):
        promoted(made, sink, 0)
    assert made.sink is kept
    promoted(made, sink, 0)
    assert (made.sink, sink.written) == (sink, [1, 2])


def test_a_target_that_has_a_batch_is_not_given_it_again(tmp_path: Path) -> None:
    """It was sent, applied and dropped meanwhile: a second copy would fill the buffer that has no room."""
    made = runtime(tmp_path, "parse.0", 10**6)
    assert made.advance(ANYBODY)
    last = max(made.buffers)
    budget = made.buffers[last].budget
    budget.memory_limit = budget.memory + 500  # room for one target's rows
    full(made, 2)
    first = [t for t in made.buffers if 2 in made.buffers[t].entries]
    assert first
    assert last not in first
    made.trim(first[0], 2)
    budget.memory_limit = 10**6
    assert made.advance(ANYBODY)
    assert 2 not in made.buffers[first[0]].entries
    assert 2 in made.buffers[last].entries


def test_cpu_of_an_attempt_counts_though_the_batch_waits(tmp_path: Path) -> None:
    made = runtime(tmp_path, "count.0", 10**6, Recorder(errors=[SinkError("away")]))
    with pytest.raises(SinkError):
        made.advance(ANYBODY)
    assert made.cpu_s > 0


@pytest.mark.parametrize("error", [SinkError("away"), OSError("no space"), NotYetError("later")])
def test_a_sink_that_refuses_is_asked_again_for_the_same_batch(tmp_path: Path, error: Exception) -> None:
    sink = Recorder(errors=[error, error])
    made = runtime(tmp_path, "count.0", 10**6, sink)
    for _ in range(2):
        with pytest.raises(type(error)):
            made.advance(ANYBODY)
    assert made.advance(ANYBODY)
    assert sink.written == [1]
    assert isinstance(made.operator, Counting)
    assert made.operator.steps == 1


def test_an_error_of_a_sink_s_client_library_passes(tmp_path: Path) -> None:
    made = runtime(tmp_path, "count.0", 10**6, Recorder(errors=[KeyError("SlowDown")]))
    with pytest.raises(SinkError, match="KeyError: 'SlowDown'"):
        made.advance(ANYBODY)
    assert made.advance(ANYBODY)


def test_rows_that_cannot_be_encoded_are_no_trouble_that_passes(tmp_path: Path) -> None:
    made = runtime(tmp_path, "count.0", 10**6, Recorder(errors=[EncodeError("no such type")]))
    with pytest.raises(StepError, match=r"partition count\.0, batch 1: EncodeError: no such type"):
        made.advance(ANYBODY)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("fmt", ["jsonl", "parquet"])
def test_a_disk_that_is_full_is_waited_for_and_rows_that_do_not_fit_the_format_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str, staged: bool
) -> None:
    def full(_: pa.Table) -> bytes:
        raise ArithmeticError("no such type")

    sink = file_sink(str(tmp_path), Place("count", 0, 3), fmt)
    made = runtime(tmp_path, "count.0", 10**6, sink, gives=ROWS)
    made.staged = {1: ROWS} if staged else None

    def give() -> None:
        made.publish(1) if staged else made.advance(ANYBODY)

    (tmp_path / "count").write_text("a file where a folder should be")
    with pytest.raises(SinkError, match="cannot write"):
        give()
    monkeypatch.setitem(ENCODERS, fmt, full)
    with pytest.raises(
        StepError, match=rf"batch 1: EncodeError: .* as {fmt} \(columns tag: string, count: int64\): CAST"
    ):
        give()


def test_output_without_the_column_to_group_by_is_the_operator_s_error(tmp_path: Path) -> None:
    made = runtime(tmp_path, "parse.0", 10**6, gives=pa.table({"other": [1]}))
    with pytest.raises(StepError, match=r"operator parse, partition parse\.0, batch 1: .*tag"):
        made.advance(ANYBODY)


class Brokers:
    """In the place of a Kafka session: what was committed, once `free` is set."""

    def __init__(self, marker: Marker) -> None:
        self.marker, self.stale = marker, False
        self.free = threading.Event()
        self.transactions: list[list[int]] = []

    def open(self) -> Marker:
        self.free.wait(30)
        return self.marker

    def write(self, batches: Sequence[Any]) -> None:
        self.transactions.append([w.batch for w in batches])
        last = max([self.marker.batch, *(w.batch for w in batches)])
        self.marker = Marker(last, self.marker.owner, {w.batch: w.digest for w in batches})

    def drop(self) -> None:
        pass


OWNER = Owner(1.0, (1, 1, 1))


def kafka(monkeypatch: pytest.MonkeyPatch, position: int, marker: int) -> tuple[KafkaSink, Brokers]:
    brokers = Brokers(Marker(marker, OWNER))
    monkeypatch.setattr(kafka_sink, "Session", lambda *a, **k: brokers)
    sink = KafkaSink(brokers="127.0.0.1:1", topic="t")
    sink.open(Opening("ns.t", Place("count", 0, 3), OWNER, position))
    return sink, brokers


def test_kafka_sink_accepts_a_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, brokers = kafka(monkeypatch, 4, 4)
    for batch in (5, 6, 6, 5, 7):
        sink.write(batch, ROWS)
    brokers.free.set()
    assert sink.settle(30) is None
    sink.write(7, ROWS)
    assert sink.settle(30) is None
    sink.close()
    assert sorted(b for t in brokers.transactions for b in t) == [5, 6, 7]
    assert sink.visible == 7


def test_kafka_sink_writes_staged_batches_from_before_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output that waited for a checkpoint may be older than the position at which its partition begins."""
    sink, brokers = kafka(monkeypatch, 4, 2)
    brokers.free.set()
    sink.write(3, ROWS)
    assert sink.settle(30) is None
    sink.close()
    assert brokers.transactions == [[3]]


def test_kafka_sink_leaves_a_replay_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, brokers = kafka(monkeypatch, 4, 6)
    brokers.free.set()
    for batch in (5, 6, 7):
        sink.write(batch, ROWS)
    assert sink.settle(30) is None
    sink.close()
    assert [b for t in brokers.transactions for b in t] == [7]


def test_kafka_sink_names_the_batch_whose_rows_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, brokers = kafka(monkeypatch, 4, 4)
    sink.write(5, ROWS)
    sink.write(6, pa.table({"raw": [b"\xff"]}))
    brokers.free.set()
    with pytest.raises(
        StepError, match=r"partition count\.0, batch 6: EncodeError: .* \(columns raw: binary\)"
    ):
        sink.settle(30)
    sink.close()

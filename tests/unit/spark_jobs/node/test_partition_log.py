"""The log of one partition where memory is short once, and where segments are stored while the host's thread goes on: no
slot and no row is missing from what is read back."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs.contract import Inbox, Place
from reprise.spark_jobs.node import partition_log
from reprise.spark_jobs.node.channels import Row
from reprise.spark_jobs.node.partition_log import Pace, PartitionLog, Sealed, eventual_checkpoint
from reprise.spark_jobs.operators.slotted import Slotted, unseen
from reprise.spark_jobs.operators.testing import inbox
from reprise.spark_jobs.state.footprints import Targets
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.state.window_log import Segment

PLACE = Place("o", 0, 1)
MANY = 10**9


class Bench:
    """An operator at work with a log, all of whose segments are stored at once."""

    def __init__(self, size: int, targets: Targets) -> None:
        self.operator: Slotted = lib.CountWindow(size=size, keys=["k"], aggregate={"n": "count()"})
        self.log = PartitionLog(self.operator, targets, Pace(1.0, 0.0))
        self.state = self.operator.initial(PLACE)
        self.batches: list[Inbox] = []
        self.files: dict[str, bytes] = {}

    def take(self, *keys: str) -> int:
        one = inbox(len(self.batches) + 1, pa.table({"k": list(keys)}))
        self.batches.append(one)
        self.state, _ = self.operator.step(self.state, one)
        self.log.applied(one.batch, len(keys), self.state, None)
        return one.batch

    def seal(self, rows: tuple[Row, ...] = (), asked: int = 1) -> Sealed:
        self.log.sealed_upto(False)
        return self.log.seal(len(self.batches), self.state, None, rows, {row.target: asked for row in rows})

    def store(self, rows: tuple[Row, ...] = (), asked: int = 1) -> tuple[Sealed, tuple[str, ...]]:
        """A snapshot, and its files, the newest first."""
        sealed = self.seal(rows, asked)
        segment, path = sealed.encode(), str(len(self.files))
        self.files[path] = segment.data
        sealed.is_stored(StateFile(path, len(segment.data), ""))
        return sealed, (path, *reversed(segment.others))

    def come_back(self, sealed: Sealed, paths: tuple[str, ...]) -> list[str]:
        """What a restored partition has at the snapshot's newest batch."""
        found = eventual_checkpoint([Segment.read(self.files[path]) for path in paths], sealed.batch)
        assert found.found.since == sealed.since
        state = self.operator.load(PLACE, found.slots, found.found.end.rest)
        for again in self.batches[sealed.since : sealed.batch]:
            state, _ = self.operator.step(state, unseen(self.operator, again, found.found.seen))
        return self.held(state)

    def held(self, state: Any) -> list[str]:
        operator = self.operator
        return sorted(map(repr, operator.export(state, operator.open_slots(state)).to_pylist()))


def short_once(monkeypatch: pytest.MonkeyPatch, of: object, name: str, at: int = 1) -> list[int]:
    """Memory is short in the call of that number; the list has an entry when it was."""
    real: Callable[..., Any] = getattr(of, name)
    calls, was = [0], list[int]()

    def called(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            was.append(at)
            raise pa.ArrowMemoryError("malloc of size 1 failed")
        return real(*args)

    monkeypatch.setattr(of, name, called)
    return was


@pytest.mark.parametrize("named", [False, True], ids=["the-older-is-not-named", "a-reader-needs-the-older"])
def test_memory_that_is_short_while_a_segment_is_sealed_costs_no_footprint(
    named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is sent again, and the partition stores itself at the same batch."""
    bench = Bench(100, Targets(MANY, 2))
    for b in range(1, 5):
        bench.take("a")
        if b == 1:
            bench.store((Row("t", 1, None, b""),) if named else ())
    assert bench.log.footprints.oldest(4) == 4, "stored again in batch 4"
    rows = tuple(Row("t", b, None, b"body") for b in range(2 if named else 4, 5))
    was = short_once(monkeypatch, partition_log, "table_of")
    with pytest.raises(MemoryError):
        bench.seal(rows)
    sealed, paths = bench.store(rows)
    assert was and len(paths) == (2 if named else 1)
    assert bench.come_back(sealed, paths) == bench.held(bench.state)


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("what", ["export", "changes", "rest"])
def test_memory_that_is_short_while_a_batch_is_noted_costs_no_slot(
    what: str, at: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The position has moved on: the batch is not told again, so nothing is raised, and all slots are stored next."""
    bench = Bench(3, Targets(MANY, 3))
    bench.take("new-1", "a")
    bench.store()
    was = short_once(monkeypatch, bench.operator, what, at)
    with caplog.at_level(logging.WARNING):
        for b in range(2, 8):
            bench.take(f"new-{b}", "a")
    assert was and "event=log-begins-anew" in caplog.text
    sealed, paths = bench.store()
    assert (sealed.since, len(paths)) == (7, 1)
    assert bench.come_back(sealed, paths) == bench.held(bench.state)
    bench.take("a", "new-8")
    sealed, paths = bench.store()
    assert len(paths) == 2, "and from then on what changes"
    assert bench.come_back(sealed, paths) == bench.held(bench.state)


def test_memory_that_is_short_while_all_slots_are_gathered_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(100, Targets(MANY, MANY))
    bench.take("a")
    was = short_once(monkeypatch, bench.operator, "export")
    with pytest.raises(MemoryError):
        bench.seal()
    bench.take("b")
    sealed, paths = bench.store()
    assert was
    assert bench.come_back(sealed, paths) == bench.held(bench.state)


@pytest.mark.parametrize("whole", [True, False])
def test_memory_that_is_short_in_the_middle_of_sealing_makes_the_next_snapshot_hold_all(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is changed first does not stay without what is changed last."""
    bench = Bench(100, Targets(MANY, MANY))
    bench.take("a")
    if not whole:
        bench.store()
        bench.take("b")
    was = short_once(monkeypatch, bench.log.__class__, "_follow")
    with pytest.raises(MemoryError):
        bench.seal()
    bench.take("c")
    sealed, paths = bench.store()
    assert was and len(paths) == 1
    assert bench.come_back(sealed, paths) == bench.held(bench.state)


def test_memory_that_is_short_when_a_segment_is_stored_leaves_it_to_be_stored_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that stores it tries again.  Later segments must not count on it meanwhile."""
    bench = Bench(100, Targets(MANY, MANY))
    bench.take("a")
    bench.store()
    bench.take("b")
    sealed = bench.seal()
    data = sealed.encode().data
    bench.take("c")
    was = short_once(monkeypatch, partition_log, "_slots")
    with pytest.raises(MemoryError):
        sealed.is_stored(StateFile("1", len(data), ""))
    assert was and sealed.encode().data == data
    later, paths = bench.store()
    assert bench.come_back(later, paths) == bench.held(bench.state)


def test_a_snapshot_says_how_many_slots_are_open_by_the_operator() -> None:
    """A footprint that was forgotten is missed, and the snapshot refused."""
    bench = Bench(100, Targets(MANY, MANY))
    bench.take("a")
    bench.store()
    bench.take("a", "b")
    bench.log.footprints.closed([1])
    bench.log._pending[:] = [p for p in bench.log._pending if p.kind.name == "END"]
    sealed, paths = bench.store()
    with pytest.raises(ValueError, match="1 of 2 open slots"):
        bench.come_back(sealed, paths)


def test_segments_that_are_stored_meanwhile_do_not_end_the_hosts_thread() -> None:
    """The one slot that held all segments is stored again, and the other thread puts a shorter list in their place."""

    class Between(partition_log._Chain):
        looks = 0

        @property
        def segments(self) -> list[partition_log._Stored]:
            Between.looks += 1
            many = [partition_log._Stored(str(n), 1, n) for n in range(64)]
            return many if Between.looks == 1 else many[-1:]

        @segments.setter
        def segments(self, value: object) -> None:
            Between.looks = 0

    assert Between().crowded_by() == 15


def test_one_thread_stores_segments_while_another_notes_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every snapshot that is stored gives the state of its batch, however the two meet."""
    monkeypatch.setattr(partition_log, "MOST_SEGMENTS", 8)
    bench, jobs = Bench(5, Targets(40, 60)), queue.SimpleQueue[Sealed | None]()
    stored, troubles, states = (
        list[tuple[Sealed, tuple[str, ...]]](),
        list[Exception](),
        dict[int, list[str]](),
    )

    def store() -> None:
        while (sealed := jobs.get()) is not None:
            try:
                segment, path = sealed.encode(), str(len(bench.files))
                bench.files[path] = segment.data
                sealed.is_stored(StateFile(path, len(segment.data), ""))
                stored.append((sealed, (path, *reversed(segment.others))))
            except Exception as error:
                troubles.append(error)

    thread = threading.Thread(target=store)
    thread.start()
    try:
        for b in range(1, 250):
            bench.take(*(f"key-{(b * 7 + n * n) % 23}" for n in range(6)))
            if b % 2:
                jobs.put(bench.seal())
                states[b] = bench.held(bench.state)
    finally:
        jobs.put(None)
        thread.join()
    assert not troubles
    assert len(stored) == 125 and any(len(paths) > 2 for _, paths in stored)
    for sealed, paths in stored[::6]:
        assert bench.come_back(sealed, paths) == states[sealed.batch]

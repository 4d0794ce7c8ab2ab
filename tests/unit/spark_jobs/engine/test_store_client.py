"""A checkpoint store whose client raises what it likes: state is stored or restored late, never lost, and never poison."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.errors import DamagedError, StoreError
from reprise.spark_jobs.node import snapshots
from reprise.spark_jobs.node.command import Install
from reprise.spark_jobs.node.installing import FIRST_PAUSE_S, LONGEST_PAUSE_S, Attempt
from reprise.spark_jobs.node.snapshots import SnapshotWriter
from reprise.spark_jobs.operators import KeyedCount
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.snapshot import StateFile
from tests.support.engine_worlds import begun
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, past, tick

STATE: Tables = {"t": pa.table({"n": [1]})}


class ClientError(Exception):
    """As botocore has it: a plain Exception."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = begun(DIAMOND, tmp_path, "ab")
    world.run(lambda e: past(20)(e) and e.punctuations.newest >= 10)
    return world


class Refusing:
    """In the place of `read_state`: raises for one partition until it is told not to; the hosts' time is `now`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, world: World, error: Exception) -> None:
        self.error: Exception | None = error
        self.calls, self.now = 0, 0.0
        real = CheckpointStore.read_state

        def read(store: CheckpointStore, file: StateFile) -> dict[str, pa.Table]:
            if "count.1" in file.path:
                self.calls += 1
                if self.error is not None:
                    raise self.error
            return real(store, file)

        monkeypatch.setattr(CheckpointStore, "read_state", read)
        world.nodes.lose("b")
        world.nodes.start("c")
        for host in world.nodes.hosts.values():
            host.clock = lambda: self.now
        world.want(2, world.engine.punctuations.newest, world.spread("a", "c"))


@pytest.mark.wide
@pytest.mark.parametrize(
    "error",
    [
        ClientError("SlowDown"),
        *(pytest.param(e, marks=pytest.mark.wide) for e in (StoreError("away"), OSError("EIO"))),
    ],
)
def test_a_partition_whose_state_cannot_be_read_now_is_installed_later(
    monkeypatch: pytest.MonkeyPatch, world: World, tmp_path: Path, error: Exception
) -> None:
    refusing = Refusing(monkeypatch, world, error)
    engine, k = world.engine, world.engine.desired.checkpoint
    tick(world, 4)
    assert refusing.calls == 1
    assert not engine.failed
    assert not engine.bad_checkpoints
    assert engine.positions["count.1"] == k
    assert "count.1" not in engine.at_work
    assert engine.at_work.keys() == world.topology.partitions.keys() - {"count.1"}
    assert not engine.done
    assert not engine.idle
    assert any(
        "count.1: cannot be installed from checkpoint" in p and str(error) in p for p in engine.problems
    )
    refusing.error = None
    tick(world)
    assert refusing.calls == 1  # not yet: attempts are not made with each command
    refusing.now = FIRST_PAUSE_S
    tick(world)
    assert refusing.calls == 2
    assert "count.1" in engine.at_work
    world.run(lambda e: e.done)
    expected = begun(DIAMOND, tmp_path, "a", name="expected")
    expected.run(lambda e: e.done)
    assert world.output() == expected.output()


def test_attempts_come_later_and_later() -> None:
    attempt, pauses = Attempt(Install(10)), []
    for _ in range(8):
        before = attempt
        attempt = attempt.later(100.0)
        pauses.append(attempt.due - 100.0)
        assert attempt.install == before.install
    assert pauses[0] == FIRST_PAUSE_S
    assert pauses[-1] == LONGEST_PAUSE_S
    assert all(later <= 2 * earlier for earlier, later in itertools.pairwise(pauses))


def test_a_damaged_checkpoint_fails_the_partition(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    Refusing(monkeypatch, world, DamagedError("its SHA-256 is not the manifest's"))
    tick(world)
    assert str(world.engine.failed["count.1"]).startswith("checkpoint: its SHA-256")
    assert world.engine.bad_checkpoints == {world.engine.desired.checkpoint}


def test_code_that_raises_while_restoring_is_poison(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    def restore(*_: Any) -> Any:
        raise KeyError("counts")

    monkeypatch.setattr(KeyedCount, "restore", restore)
    world.nodes.lose("b")
    world.nodes.start("c")
    world.want(2, world.engine.punctuations.newest, world.spread("a", "c"))
    tick(world)
    assert world.engine.failed["count.1"] == Failure(
        FailureKind.POISON, "partition count.1: KeyError: 'counts'"
    )


def test_a_partition_that_is_dropped_meanwhile_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    refusing = Refusing(monkeypatch, world, StoreError("away"))
    tick(world)
    k = world.engine.desired.checkpoint
    world.want(2, k, {p: n for p, n in world.spread("a", "c").items() if p != "count.1"}, retain=True)
    refusing.error, refusing.now = None, 1000.0
    tick(world)
    assert refusing.calls == 1
    assert all("count.1" not in host.runtimes for host in world.nodes.hosts.values())


# -- storing -----------------------------------------------------------------------------------------------------------


class Store:
    """In the place of a checkpoint store: `errors` are raised first; `gate` must be set before anything is stored."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.names = list(errors), list[str]()
        self.entered, self.gate, self.stored = threading.Event(), threading.Event(), threading.Event()
        self.gate.set()

    def write_state(
        self, position: int, partition: str, incarnation: str, tables: Mapping[str, Any]
    ) -> StateFile:
        self.entered.set()
        assert self.gate.wait(300)
        if self.errors:
            raise self.errors.pop(0)
        self.names.append(f"cp-{position}/{partition}.{incarnation}")
        self.stored.set()
        return StateFile(self.names[-1], 1, "x")


def writer(store: Store) -> SnapshotWriter:
    return SnapshotWriter(store, "host-1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error", [TypeError("no table"), KeyError("x"), ClientError("SlowDown"), OSError("full")]
)
def test_whatever_a_store_s_client_raises_the_snapshot_is_stored_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(snapshots, "RETRY_S", 0.01)
    store = Store(error)
    writing = writer(store)
    writing.keep((20,), {"count.1": "1.1.1"})
    writing.submit("count.1", "1.1.1", 20, lambda: STATE)
    assert store.stored.wait(300)
    writing.close()
    acks, problems = writing.collect()
    assert [(a.partition, a.installation, a.position) for a in acks] == [("count.1", "1.1.1", 20)]
    assert problems == [f"count.1: checkpoint 20 not stored: {type(error).__name__}: {error}"]


def test_what_is_submitted_before_anything_is_known_to_be_installed_is_stored() -> None:
    store = Store()
    writing = writer(store)
    writing.submit("count.1", "1.1.1", 20, lambda: STATE)
    assert store.stored.wait(300)
    writing.close()
    assert [a.partition for a in writing.collect()[0]] == ["count.1"]


def test_whatever_an_operator_s_encoding_raises_other_snapshots_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "RETRY_S", 0.01)

    def broken() -> Tables:
        raise TypeError("not iterable")

    store = Store()
    writing = writer(store)
    writing.keep((20,), {"count.1": "1.1.1", "count.2": "1.1.2"})
    writing.submit("count.1", "1.1.1", 20, broken)
    writing.submit("count.2", "1.1.2", 20, lambda: STATE)
    assert store.stored.wait(300)
    writing.close()
    acks, problems = writing.collect()
    assert [a.partition for a in acks] == ["count.2"]
    assert set(problems) == {"count.1: checkpoint 20 not stored: TypeError: not iterable"}


def test_what_is_queued_of_a_dropped_installation_is_forgotten() -> None:
    store = Store()
    store.gate.clear()
    writing = writer(store)
    writing.keep((20,), {"a.0": "1.1.1", "b.0": "1.1.2"})
    writing.submit("a.0", "1.1.1", 20, lambda: STATE)  # being stored when the rollback comes
    writing.submit("b.0", "1.1.2", 20, lambda: STATE)  # queued
    assert store.entered.wait(300)
    writing.submit("c.0", "1.1.3", 20, None)  # stored already
    writing.keep((20,), {"a.0": "1.2.4", "b.0": "1.2.5"})
    writing.submit("a.0", "1.2.4", 20, lambda: STATE)
    store.gate.set()
    writing.close()
    acks, _ = writing.collect()
    assert [(a.partition, a.installation) for a in acks] == [("a.0", "1.2.4")]
    assert store.names == ["cp-20/a.0.host-1.1.1.1", "cp-20/a.0.host-1.1.2.4"]

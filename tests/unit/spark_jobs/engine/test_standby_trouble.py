"""Active standbys that come to nothing: they harm nobody, hold up nobody, and begin anew after pauses that grow."""

# ruff: noqa: F811 - fixtures of the tests of active standbys, which hold here as well
from __future__ import annotations

import threading
from pathlib import Path

import pytest

from reprise.spark_jobs.engine import standbys as driver_standbys
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.node import restoring
from reprise.spark_jobs.node.installing import Preparing
from reprise.spark_jobs.node.restoring import Prepared
from reprise.spark_jobs.node.runtime import Runtime
from tests.support.hashtags import WITH_STANDBYS
from tests.unit.spark_jobs.engine.test_standbys import (
    AT,
    all_ready,
    expected,  # noqa: F401
    finish,
    goes_to_its_standby,
    watch,  # noqa: F401
    world_of,
)
from tools.testbed.local_engine import World, past, tick
from tools.testbed.waiting import HANGS_S

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")

LONG = WITH_STANDBYS.replace("batches: 60", "batches: 400")
OFTEN = LONG.replace("everyBatches: 10", "everyBatches: 2")
assert WITH_STANDBYS != LONG != OFTEN


def with_checkpoint(folder: Path) -> World:
    """A checkpoint is complete, and nobody has a standby yet."""
    world = world_of(folder, {})
    world.run(lambda e: e.punctuations.newest >= 10 and past(12)(e))
    return world


@pytest.mark.slow
@pytest.mark.wide
def test_a_standby_that_raises_begins_anew_after_pauses_that_grow(tmp_path: Path) -> None:
    world = world_of(tmp_path, {"count.0": "d"}, OFTEN)
    installed, begun, now = Preparing.installed, list[float](), [1000.0]
    world.engine.standbys.clock = lambda: now[0]

    def raises(preparing: Preparing, *rest: object) -> Runtime:
        if preparing.install.shadow:
            begun.append(now[0])
            raise ValueError("no")
        return installed(preparing, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Preparing, "installed", raises)
        for later, count in ((0, 2), (0.75, 2), (0.25, 3), (1.75, 3), (0.25, 4), (3.75, 4)):
            now[0] += later
            world.run(lambda _, count=count: len(begun) >= count)
            newest = world.engine.punctuations.newest
            world.run(lambda e, k=newest: e.punctuations.newest > k + 4)
            assert len(begun) == count, "though it could have begun from a new checkpoint"
        assert world.engine.failed == {}
        assert world.engine.figures.failed_jobs == 0
        assert any("its standby on d: poison" in said for said in world.engine.problems)
    now[0] += driver_standbys.LONGEST_PAUSE_S
    world.run(all_ready)
    goes_to_its_standby(world)
    world.run(lambda e: e.done)
    assert len(world.output()) == 401 * 3


def test_pauses_end_with_a_standby_that_was_of_use(tmp_path: Path) -> None:
    world = world_of(tmp_path, {"count.0": "d"})
    now = [1000.0]
    known = world.engine.standbys
    known.clock = lambda: now[0]

    def at_work(_: Engine) -> bool:
        return "count.0" in known.there and known.there["count.0"].at_work

    world.run(at_work)
    for _ in range(5):
        known._falls_out("count.0", "a test", None)
        now[0] += 100
        world.run(at_work)
    known._falls_out("count.0", "a test", None)
    known._begin(world.engine, "count.0", "d", 0)
    known._falls_out("count.0", "a test", None)
    assert known._falls["count.0"].until - now[0] == 32.0
    now[0] += 32
    world.run(at_work)
    now[0] += driver_standbys.LONGEST_PAUSE_S + 1
    known._falls_out("count.0", "a test", None)
    assert known._falls["count.0"].until == now[0]


@pytest.mark.wide
def test_a_standby_whose_checkpoint_is_damaged_begins_from_the_next_one(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """It is said; the partition goes on, and nobody goes back."""
    world = with_checkpoint(tmp_path)
    newest = world.engine.punctuations.newest
    snapshot = world.engine.restore_point.manifest(newest).snapshots["count.0"]
    assert snapshot.file is not None
    path = world.checkpoints / snapshot.file.path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    world.forget()
    world.want(1, 0, AT, standbys={"count.0": "d"})
    world.run(lambda e: any("count.0: its standby on d: checkpoint" in said for said in e.problems))
    assert world.engine.bad_checkpoints == set()
    assert world.engine.failed == {}
    assert world.engine.progress.standbys == {}
    world.run(all_ready)
    assert world.engine.punctuations.newest > newest
    assert world.engine.desired.generation == 1
    goes_to_its_standby(world)
    finish(world, expected)


def test_a_lost_partition_does_not_wait_for_what_a_standby_reads(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has not answered the standby, and answers the partition."""
    monkeypatch.setattr(restoring, "PARALLEL", 1)
    world = with_checkpoint(tmp_path)
    world.nodes.patient = False
    prepare, begun, released = Preparing.__call__, threading.Event(), threading.Event()

    def hangs(preparing: Preparing) -> Prepared:
        if preparing.install.shadow:
            begun.set()
            assert released.wait(HANGS_S)
        return prepare(preparing)

    monkeypatch.setattr(Preparing, "__call__", hangs)
    world.want(1, 0, AT, standbys={"count.1": "d"})
    world.run(lambda _: begun.is_set())
    world.nodes.lose("c")
    tick(world, 2)
    world.want(1, world.engine.punctuations.newest, {**AT, "count.0": "d"}, retain=True,
               standbys={"count.1": "d"})  # fmt: skip
    try:
        world.run(lambda e: "count.0" in e.at_work)
        assert "count.1" not in world.engine.progress.standbys
    finally:
        released.set()
    finish(world, expected)

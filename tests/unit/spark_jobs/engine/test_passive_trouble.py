"""Trouble of passive standbys, and in the middle of promotions: all is shown once and as without a failure, and nobody else
is touched."""

# ruff: noqa: F811 - fixtures of the tests of active standbys, which hold here as well
from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.jobs import STAGES
from reprise.spark_jobs.errors import SinkError
from reprise.spark_jobs.node import deltas, passive
from reprise.spark_jobs.node.deltas import StateCopy
from reprise.spark_jobs.node.passive import PassiveStandby
from reprise.spark_jobs.node.wire import decode_table
from reprise.spark_jobs.operators import RunningAggregate
from reprise.spark_jobs.sinks import FileSink
from tests.unit.spark_jobs.engine.test_passive_standbys import (
    ARRAYS,
    PAGED,
    Expected,
    ready_at,
    sent,
    through,
    world_of,
)
from tests.unit.spark_jobs.engine.test_standbys import (
    AT,
    all_ready,
    expected,  # noqa: F401
    finish,
    goes_to_its_standby,
    recover,
    watch,  # noqa: F401
)
from tools.testbed.local_engine import World, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")


def power_cut(*_: int) -> None:
    raise ChainError("power cut")


def lost(world: World, partition: str) -> FailureKind | None:
    failure = world.engine.failed.get(partition)
    return failure.kind if failure else None


@pytest.mark.wide
@pytest.mark.parametrize("left", [-1, 4])
def test_a_copy_that_is_less_than_the_driver_knows_is_not_promoted(
    tmp_path: Path, expected: Expected, left: int
) -> None:
    """The driver has not heard that it was emptied, and upstreams send what follows what it knows."""
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(25))
    standby = sent(world, "d", "count.0")
    standby.copy = StateCopy(left)
    world.nodes.interrupt = power_cut
    world.nodes.lose("c")
    tick(world)
    world.nodes.interrupt = lambda *_: None
    assert recover(world) == {"count.0"}
    tick(world, 2)
    assert lost(world, "count.0") is FailureKind.STATE_LOST
    assert recover(world) == set()
    finish(world, expected)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, AttributeError])
def test_a_standby_that_raises_fails_no_job(
    tmp_path: Path, expected: Expected, error: type[Exception]
) -> None:
    """It has what it had, says so, and is sent the rest with the next delta."""
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(12))
    was = world.engine.progress.standbys["count.0"]

    def raises(*_: object) -> None:
        raise error("no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateCopy, "take", raises)
        tick(world, 12)
        assert world.engine.figures.failed_jobs == 0
        assert sent(world, "d", "count.0").position == was
    assert any(f"waits for the next delta: {error.__name__}: no" in said for said in world.engine.problems)
    world.run(all_ready)
    goes_to_its_standby(world)
    finish(world, expected)


def test_a_copy_that_cannot_be_restored_is_given_up_and_the_checkpoint_is_used(
    tmp_path: Path, expected: Expected
) -> None:
    """The partition is not set aside: what is wrong may be the copy."""
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(25))

    def raises(*_: object) -> None:
        raise ValueError("not a state")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningAggregate, "restore", raises)
        goes_to_its_standby(world)
        tick(world, 2)
    assert lost(world, "count.0") is FailureKind.OTHER
    assert (
        "could not take its place: partition count.0: ValueError: not a state"
        in world.engine.failed["count.0"].reason
    )
    assert recover(world) == set()
    finish(world, expected)


def in_promotion(world: World, patch: pytest.MonkeyPatch) -> None:
    """`count.0` is being promoted on `d`, whose sink does not answer."""
    write = FileSink.open

    def slow(sink: FileSink, *rest: object) -> None:
        if sink.folder.parts[-2:] == ("count", "0"):
            raise SinkError("no answer")
        write(sink, *rest)  # type: ignore[arg-type]

    patch.setattr(FileSink, "open", slow)
    goes_to_its_standby(world)
    tick(world, 2)
    assert "count.0" in world.engine.installing


@pytest.mark.wide
@pytest.mark.parametrize("text", [ARRAYS, PAGED], ids=["arrays", "paged"])
def test_it_is_moved_while_it_is_promoted(tmp_path: Path, expected: Expected, text: str) -> None:
    """It begins at the checkpoint where it goes; what was on its way to become the partition is dropped."""
    world = world_of(tmp_path, {"count.0": "d"}, text)
    world.run(ready_at(25))
    with pytest.MonkeyPatch.context() as patch:
        in_promotion(world, patch)
        newest = world.engine.punctuations.newest
        world.want(1, newest, {**AT, "count.0": "a"}, retain=True)
        assert world.engine.positions["count.0"] == newest
        tick(world, 2)
        assert "count.0" not in world.nodes.hosts["d"].runtimes
    finish(world, expected)
    assert world.engine.desired.generation == 1


def test_its_standby_is_lost_while_it_is_promoted(tmp_path: Path, expected: Expected) -> None:
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(25))
    with pytest.MonkeyPatch.context() as patch:
        in_promotion(world, patch)
        world.nodes.lose("d")
        tick(world, 2)
        assert lost(world, "count.0") is FailureKind.NODE_LOST
    newest = world.engine.punctuations.newest
    assert recover(world) == set()
    assert world.engine.positions["count.0"] == newest
    finish(world, expected)


def test_jobs_fail_while_it_is_promoted(tmp_path: Path, expected: Expected) -> None:
    """Its host has taken it over in a job of which the driver hears nothing: it is told again, and promotes once."""
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(25))
    world.nodes.lose("c")
    tick(world, 2)

    def at_the_end(_: int, stage: int, slot: int) -> None:
        if (stage, slot) == (2, 0):
            raise ChainError("power cut")

    assert recover(world) == {"count.0"}
    world.nodes.interrupt = at_the_end
    tick(world, 3)
    installed = world.nodes.hosts["d"].runtimes["count.0"]
    assert not isinstance(installed, PassiveStandby)
    world.nodes.interrupt = lambda *_: None
    tick(world)
    assert world.nodes.hosts["d"].runtimes["count.0"] is installed
    assert world.engine.at_work["count.0"] >= 25 - 8
    finish(world, expected)
    assert world.engine.desired.generation == 1


@pytest.mark.wide
def test_a_partition_that_was_given_up_sends_to_no_standby_of_its_successor(
    tmp_path: Path, expected: Expected
) -> None:
    """It still runs where it was, with its old orders: what it sends, to whom it was told then, is for an installation that
    is nowhere any more; and what it shows is what its successor shows."""
    world = world_of(tmp_path, {"count.0": "d"}, PAGED)
    world.run(ready_at(12))
    zombie, bodies = world.nodes.hosts["c"], []
    with pytest.MonkeyPatch.context() as patch:
        through(patch, lambda *one: bodies.append(one[1:]) or one)
        world.run(lambda e: len(bodies) > 1)
    goes_to_its_standby(world)
    recover(world, {"count.0": "a"})
    world.run(lambda e: all_ready(e) and e.progress.standbys["count.0"] > 20)
    fresh, successor = sent(world, "a", "count.0"), world.nodes.hosts["d"].runtimes["count.0"]
    before = (fresh.position, successor.position, world.output())
    zombie.run(1.0)
    assert zombie.command is not None
    outgoing = zombie.sender.outgoing(zombie.command)
    for host in (world.nodes.hosts["a"], world.nodes.hosts["d"]):
        for message, body in [*bodies, *(one for slot in outgoing.values() for one in slot)]:
            host.deliver(replace(message, table=decode_table(body)))
    assert (fresh.position, successor.position) == before[:2]
    assert {n: world.output()[n] for n in before[2]} == before[2]
    finish(world, expected)


@pytest.mark.wide
def test_what_is_called_ready_could_be_sent_what_follows(tmp_path: Path, expected: Expected) -> None:
    """Buffers are full, so what only a copy would need is dropped, and most of what is sent to it is lost: it is always some
    batches behind what was dropped.  After no job does it count as ready then."""
    text = ARRAYS.replace("bufferMemory: 1Mi", "bufferMemory: 4Ki, bufferDisk: 4Ki")
    late = text.replace("everyBatches: 10", "everyBatches: 1000")
    assert ARRAYS != text != late
    world = world_of(tmp_path, {"count.0": "d"}, late)
    made = itertools.count()
    seen = {True: 0, False: 0}

    def held() -> int:
        """The batch behind which upstreams could send everything."""
        runtimes = [r for host in world.nodes.hosts.values() for r in host.runtimes.values()]
        return max(r.buffers["count.0"].floor - 1 for r in runtimes if "count.0" in r.buffers)

    with pytest.MonkeyPatch.context() as patch:
        through(patch, lambda *one: None if next(made) % 4 else one)
        while not world.engine.done and min(world.engine.positions.values(), default=0) < 61:
            tick(world)
            standby = world.engine.standbys.there.get("count.0")
            if standby is not None and standby.at_work:
                able = standby.position >= held()
                seen[able] += 1
                assert able or "count.0" not in world.engine.progress.standbys
    assert seen[True]
    assert seen[False]
    finish(world, expected)


@pytest.mark.wide
@pytest.mark.parametrize(
    "trouble", ["too large", "cannot be frozen", "is not taken", "is not taken at first"]
)
def test_what_comes_to_nothing_is_tried_after_pauses_that_grow(
    tmp_path: Path, expected: Expected, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """It may be the whole state each time, which the partition would encode in every stage of every job."""
    monkeypatch.setattr(passive, "FIRST_PAUSE_S", 0.01)
    world = world_of(tmp_path, {"count.0": "d"})
    if trouble != "is not taken at first":
        world.run(ready_at(12))
    jobs, times = Counter[int](), dict[int, float]()
    made = passive._made

    def counted(*rest: object) -> bytes:
        jobs[world.engine.jobs] += 1
        times.setdefault(world.engine.jobs, world.nodes.clock())
        if trouble == "cannot be frozen":
            raise ValueError("no")
        return made(*rest)  # type: ignore[arg-type]

    def refused(*_: object) -> None:
        raise BufferError("full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passive, "_made", counted)
        if trouble == "too large":
            patch.setattr(deltas, "MOST_BYTES", 10)
        if trouble.startswith("is not taken"):
            patch.setattr(PassiveStandby, "_take", refused)
        world.run(lambda e: e.done)
        world.run(lambda _: len(jobs) >= 8)
        # to one that has something goes more in a later stage, when there is more, as nobody has heard of trouble then
        assert max(jobs.values()) <= (STAGES - 1 if trouble == "is not taken" else 1)
        pauses = [later - earlier for earlier, later in itertools.pairwise(times.values())]
        assert all(pause >= 0.01 * 2 ** (i - 1) for i, pause in enumerate(pauses[1:7], 1))
        assert "count.0" not in world.engine.progress.standbys
    world.run(all_ready)
    finish(world, expected)


def test_progress_ends_the_pauses_of_a_sender_and_so_does_another_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passive, "FIRST_PAUSE_S", 1.0)
    monkeypatch.setattr(passive, "LONGEST_PAUSE_S", 64.0)
    sent = passive._Sent("1.0.1")

    def tried(jobs: range, known: int, epoch: int = 1) -> list[int]:
        """The jobs, of a second each, in which something is sent when it is due in each."""
        found = []
        for job in jobs:
            order = epoch, job
            if not sent.waits(order, known, float(job)):
                sent.tried(order, None, float(job))
                found.append(job)
                assert not sent.waits(order, known, float(job)), "it is the same job, which may send more"
        return found

    assert tried(range(1, 300), 4) == [1, 2, 3, 5, 9, 17, 33, 65, 129, 193, 257]
    assert tried(range(300, 312), 8) == [300, 301, 302, 304, 308]
    assert tried(range(1, 3), 8, epoch=2) == [1]

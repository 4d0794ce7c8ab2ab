"""Trouble of operators of which a replay may differ, and of their passive standbys: whatever a driver has not heard counts
as if it had happened, and none of them comes back alone but out of its standby."""

# ruff: noqa: F811 - fixtures of the tests of such operators, which hold here as well
from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from reprise.algorithms.positions import Origin
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine import standbys
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.jobs import STAGES
from reprise.spark_jobs.engine.standbys import MOST_JOBS
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.deltas import Delta, Entry, Outputs
from reprise.spark_jobs.node.passive import PassiveStandby
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.topology import expand, from_object, load_text
from tests.support.coin import EVERY, TOLD_TO_TWO
from tests.support.engine_worlds import placed
from tests.unit.spark_jobs.engine.test_arbitrary_standbys import (
    AT,
    STANDBYS,
    Readers,
    back,
    finish,
    is_ready,
    readers,  # noqa: F401
    recover,
    world_of,
)
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")


def stays_lost(world: World) -> bool:
    return "told.0" in world.engine.failed and "told.0" not in world.engine.positions


def fails(world: World, stage: int, times: int) -> None:
    """Jobs that end at a stage of the first task there."""

    def power_cut(_job: int, at: int, _slot: int) -> None:
        if at == stage:
            raise ChainError("power cut")

    world.nodes.interrupt = power_cut
    tick(world, times)
    world.nodes.interrupt = lambda *_: None


@pytest.mark.parametrize("stage", range(STAGES))
def test_what_has_run_in_a_job_that_failed_does_not_come_back_alone(
    tmp_path: Path, readers: Readers, stage: int
) -> None:
    """Nobody has reported that it was installed, and others may have what it gave."""
    world = world_of(tmp_path)
    fails(world, stage, 1)
    world.nodes.lose("c")
    tick(world)
    world.want(1, 0, AT | {"told.0": "a"}, retain=True)
    tick(world, 2)
    assert stays_lost(world)
    readers.go_back(0)
    back(world, readers)
    finish(world, readers)
    assert world.engine.desired.generation == 2


def test_one_that_a_decision_takes_back_by_itself_stays_lost(tmp_path: Path, readers: Readers) -> None:
    """By who takes it for deterministic: code that does not run yet says so.  What it has given is with its readers."""
    world = world_of(tmp_path)
    world.run(lambda e: past(25)(e) and is_ready(e))
    world.nodes.lose("c", "d")
    tick(world)
    engine, newest = world.engine, world.engine.punctuations.newest
    for generation, node in ((2, "a"), (3, "b")):
        line = {"told.0": Origin(generation, newest)}
        world.want(1, newest, AT | {"told.0": node}, retain=True, lines=line)
        tick(world, 2)
        assert stays_lost(world)
    assert engine.progress.output_waits == {"told.0"}
    world.nodes.start("c", "d")
    back(world, readers)
    finish(world, readers)
    assert engine.desired.generation == 2


@pytest.mark.parametrize(
    "says", ["      deterministic: false\n", ""], ids=["by the resource", "by its class"]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_reader_has_no_active_standby_whoever_asks_for_it(
    tmp_path: Path, readers: Readers, seed: int, says: str
) -> None:
    """What its output has not shown is kept until a checkpoint covers it, and a standby takes that for shown.  The resource
    is refused, and one that was taken before is read without that."""
    text = TOLD_TO_TWO.replace("      deterministic: false\n", says)
    text = text.replace("output: {priority: 3}", "output: {priority: 3}\n      availability: active-standby")
    world = placed(from_object(yaml.safe_load(text)), tmp_path, AT, STANDBYS | {"left.0": "c"})
    engine = world.engine
    world.run(lambda e: past(23 + seed)(e) and is_ready(e))
    assert engine.standbys.able == {"told.0"}
    assert engine.standbys.there.keys() == {"told.0"}
    world.nodes.lose("a")
    tick(world, 2)
    world.want(
        1,
        engine.punctuations.newest,
        engine.desired.assignment | {"left.0": "c", "tweets.0": "b"},
        retain=True,
    )
    finish(world, readers)
    assert engine.desired.generation == 1


def test_jobs_that_fail_say_nothing_of_a_standby(
    tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While output waits.  The node of its partition may be lost, and nobody knows yet."""
    released, due = [8], Engine._due
    monkeypatch.setattr(Engine, "_due", lambda engine: min(due(engine), released[0]))
    monkeypatch.setattr(standbys, "MOST_S", 0.0)
    text = TOLD_TO_TWO.replace(f"every: {EVERY}", "every: 1000").replace(
        "everyBatches: 10", "everyBatches: 1000"
    )
    world = world_of(tmp_path, text)
    engine = world.engine
    world.run(lambda e: is_ready(e) and e.progress.standbys["told.0"] == 8 and past(8)(e))
    released[0] = 13
    world.run(lambda e: e.positions["told.0"] > e.progress.standbys["told.0"], limit=20)
    there = engine.standbys.there["told.0"].installation
    fails(world, 0, 3 * MOST_JOBS)
    assert engine.standbys.there["told.0"].installation == there
    released[0] = 1000
    world.nodes.lose("c")
    tick(world)
    assert recover(world, "a")
    finish(world, readers)
    assert engine.desired.generation == 1


@pytest.mark.parametrize("whole", [False, True], ids=["what-differs", "everything"])
def test_of_a_delta_that_finds_no_room_nothing_stays(tmp_path: Path, whole: bool) -> None:
    """Its partition may be lost before the next one: then others give these batches anew, to all of their readers."""
    partition = expand(load_text(TOLD_TO_TWO)).partitions["told.0"]
    budget = Budget(100, 0, tmp_path)
    standby = PassiveStandby(partition, "1", budget)

    def take(base: int | None, position: int, size: int) -> list[str]:
        batches = range(1 if base is None else base + 1, position + 1)
        outputs = {
            t: Outputs(batches[0], [Entry(b, None, bytes([b]) * size) for b in batches])
            for t in standby.buffers
        }
        table = Delta("1", base, position, outputs).encode()
        return standby.take(Message("told.0", "told.0", position, None, table))

    assert take(None, 2, 10) == []
    (said,) = take(None if whole else 2, 4, 20)
    assert "its standby waits for the next delta" in said
    assert standby.copy.position == (-1 if whole else 2)
    there = set() if whole else {1, 2}
    assert all(buffer.entries.keys() == there for buffer in standby.buffers.values())
    assert budget.memory == (0 if whole else 40)
    standby.buffers["left.0"].trim(2)
    standby.buffers["right.0"].trim(2)
    assert take(None if whole else 2, 4, 10) == []
    assert all({3, 4} <= buffer.entries.keys() for buffer in standby.buffers.values())


def test_on_a_full_node_no_two_readers_are_given_different_rows(tmp_path: Path, readers: Readers) -> None:
    """The copy has room for some of what it is sent, and its partition is lost then."""
    world = world_of(tmp_path, TOLD_TO_TWO.replace("everyBatches: 10", "everyBatches: 1000"))
    world.run(lambda e: past(12)(e) and is_ready(e))
    world.want(1, 0, AT, retain=True, standbys=STANDBYS)  # nothing makes room
    tick(world)
    standby = world.nodes.hosts["d"].runtimes["told.0"]
    assert isinstance(standby, PassiveStandby)
    position, budget = standby.copy.position, standby.buffers["left.0"].budget
    biggest = max(e.size for buffer in standby.buffers.values() for e in buffer.entries.values())
    budget.memory_limit, budget.disk_limit = budget.memory + biggest + 1, 0
    for _ in range(20):
        tick(world)
        if any("waits for the next delta" in problem for problem in world.engine.problems):
            break
    assert standby.copy.position == position
    assert all(max(buffer.entries) <= position for buffer in standby.buffers.values())
    world.nodes.lose("c")
    tick(world)
    budget.memory_limit, budget.disk_limit = 2**20, 2**20
    assert recover(world, "a")
    finish(world, readers)
    assert world.engine.desired.generation == 1


def test_while_a_reader_is_lost_what_is_kept_for_it_does_not_fill_the_node_without_end(
    tmp_path: Path, readers: Readers
) -> None:
    """Nothing makes room then, as no checkpoint is complete.  What waits for the standby takes more, and nothing else."""
    world = world_of(tmp_path)
    world.run(lambda e: past(15)(e) and is_ready(e))
    engine, newest = world.engine, world.engine.punctuations.newest
    others = {p: n for p, n in AT.items() if p != "right.0"}
    world.want(1, newest, others, retain=True, standbys=STANDBYS)
    tick(world, 2)
    buffers = world.nodes.hosts["c"].runtimes["told.0"].buffers
    budget = buffers["left.0"].budget
    budget.memory_limit, budget.disk_limit = budget.memory, 0
    limit, ahead = budget.memory, 0
    for _ in range(60):
        tick(world)
        biggest = max(entry.size for buffer in buffers.values() for entry in buffer.entries.values())
        ahead = max(ahead, (budget.memory - limit) / (biggest * len(buffers)))
    assert ahead <= engine_module.WINDOW, "more waits than is released ahead of readers"
    assert engine.positions["told.0"] < 50
    world.want(1, newest, AT, retain=True, standbys=STANDBYS)
    finish(world, readers)
    assert engine.desired.generation == 1


def test_standbys_that_are_named_say_which_wait(tmp_path: Path) -> None:
    assert world_of(tmp_path, standbys=STANDBYS).engine.progress.output_waits == {"told.0"}
    alone = TOLD_TO_TWO.replace("deterministic: false", "deterministic: true")
    steady = world_of(tmp_path / "steady", alone.replace("coin:Told", "coin:Steady"))
    assert steady.engine.progress.output_waits == frozenset()

"""What partitions are restored from, by rounds or by lines: what senders may forget, and what stays stored for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.engine.engine_spec import EngineSpec
from reprise.spark_jobs.engine.origins import (
    begins_at,
    complete_checkpoints,
    condemn,
    covered_now,
    find_origins,
    reads_from,
)
from reprise.spark_jobs.errors import DamagedError, StoreError
from reprise.spark_jobs.topology import load_text, override
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, past, tick

OWN = {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory", "recovery.bufferMemory": "16Mi"}


pytestmark = pytest.mark.usefixtures("lines_at_once")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(
        load_text(DIAMOND, changes={"checkpoint.keep": 2, "checkpoint.everyBatches": 4}), tmp_path, "w"
    )
    made.nodes.start("a", "b", "c")
    made.want(1, 0, made.spread("a", "b"))
    return made


@pytest.fixture
def lines(tmp_path: Path) -> World:
    """The same stream, whose partitions store themselves by their own clocks."""
    made = World(override(load_text(DIAMOND), OWN), tmp_path, "lines")
    made.nodes.start("a", "b", "c")
    made.want(1, 0, made.spread("a", "b"))
    return made


def with_checkpoints(world: World, many: int = 1) -> list[int]:
    """Runs until so many checkpoints are complete; their names."""
    found: list[int] = []
    while len(found) < many:
        before = world.engine.punctuations.newest
        world.run(lambda e, before=before: e.punctuations.newest > before)  # type: ignore[misc]
        found.append(world.engine.punctuations.newest)
    return found


def test_with_rounds_all_begin_at_the_checkpoint_and_go_back_alone(world: World) -> None:
    (newest,) = with_checkpoints(world)
    desired = world.engine.desired
    moved = EngineSpec(desired.seq + 1, 1, newest, {**desired.assignment, "count.0": "c"}, False, True)
    assert not find_origins(world.engine, moved, {"count.0"}, set(), False), "nobody goes back with it"
    install = world.engine.restore_point.installs["count.0"]
    assert install.position == newest and install.file is not None


def test_a_checkpoint_that_is_not_there_changes_nothing(world: World) -> None:
    (newest,) = with_checkpoints(world)
    before = world.engine.restore_point.installs
    desired = world.engine.desired
    nowhere = EngineSpec(desired.seq + 1, 2, newest + 5, desired.assignment, False, True)
    with pytest.raises(DamagedError):
        find_origins(world.engine, nowhere, set(desired.assignment), set(desired.assignment), True)
    assert world.engine.restore_point.installs is before


def test_positions_of_what_is_installed_are_those_of_the_snapshot(world: World) -> None:
    (newest,) = with_checkpoints(world)
    world.run(past(newest + 3))
    world.want(2, newest, world.engine.desired.assignment)
    assert {begins_at(world.engine, p) for p in world.topology.partitions} == {newest}
    assert reads_from(world.engine, "tweets.0") == newest


def test_a_source_that_is_behind_its_checkpoint_reads_from_where_it_is(world: World) -> None:
    world.run(past(4))
    assert reads_from(world.engine, "tweets.0") == 0, "everything may still go back to the beginning"
    (newest,) = with_checkpoints(world)
    world.want(1, newest, world.engine.desired.assignment)
    world.engine.positions["tweets.0"] = newest - 2
    assert reads_from(world.engine, "tweets.0") == newest - 2
    world.engine.positions["tweets.0"] = newest + 9
    assert reads_from(world.engine, "tweets.0") == newest


def test_senders_forget_what_the_newest_checkpoint_covers_and_no_more(world: World) -> None:
    assert covered_now(world.engine) == Positions(0)
    (newest,) = with_checkpoints(world)
    assert covered_now(world.engine).everybody <= newest
    world.want(1, newest, world.engine.desired.assignment)
    tick(world)
    assert covered_now(world.engine) == Positions(world.engine.punctuations.newest)


def test_what_is_restored_from_stays_while_an_incident_is_open(world: World) -> None:
    """Of checkpoints as many are kept as the resource says, and all from the one on that is still needed."""
    first, *_ = with_checkpoints(world, 1)
    world.want(1, first, world.engine.desired.assignment, retain=True)
    *_, newest = with_checkpoints(world, 4)
    assert {first, newest} <= set(world.engine.store.known())
    world.want(1, newest, world.engine.desired.assignment)
    (last,) = with_checkpoints(world)
    assert {newest, last} <= set(world.engine.store.known())
    assert first not in world.engine.store.known()


def test_a_damaged_one_is_condemned_by_its_position(world: World) -> None:
    (newest,) = with_checkpoints(world)
    condemn(world.engine, "count.0", newest, "x.state")
    assert world.engine.bad_checkpoints == {newest}


def test_a_store_that_is_away_leaves_the_checkpoint_for_the_next_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreError("the store is away")

    world.run(past(3))
    with monkeypatch.context() as patch:
        patch.setattr(type(world.engine.restore_point), "complete", away)
        before = world.engine.punctuations.newest
        tick(world, 4)
        assert world.engine.punctuations.newest == before
        assert any("the store is away" in said for said in world.engine.problems)
    complete_checkpoints(world.engine)
    assert world.engine.punctuations.newest > before, "what was acknowledged meanwhile is complete"


def test_old_ones_that_cannot_be_removed_go_with_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> int:
        raise StoreError("cannot remove")

    with monkeypatch.context() as patch:
        patch.setattr(type(world.engine.store), "prune", away)
        (newest,) = with_checkpoints(world)
    assert newest == world.engine.punctuations.newest, "it is complete all the same"
    assert "cannot remove" in world.engine.problems
    with_checkpoints(world, 4)
    assert newest not in world.engine.store.known()


def test_with_lines_each_goes_on_from_its_own_snapshot(lines: World) -> None:
    lines.run(past(25))
    assert lines.engine.lines.active
    covered = covered_now(lines.engine)
    for partition in lines.topology.partitions:
        assert covered.of(partition) <= lines.engine.positions[partition]
    lost = {p for p, n in lines.engine.desired.assignment.items() if n == "b"}
    lines.nodes.lose("b")
    tick(lines)
    placed = {**lines.engine.desired.assignment, **dict.fromkeys(lost, "c")}
    lines.want(1, lines.engine.desired.checkpoint, placed)
    for partition in lost:
        assert begins_at(lines.engine, partition) == lines.engine.positions[partition]

"""A checkpoint store that refuses for a while, as a full disk does: all goes on, late, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.storage.files import Chunks, Files
from reprise.spark_jobs.topology import load_text, override
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, past, tick

LAST = 61


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(override(load_text(DIAMOND), {"checkpoint.everyBatches": 10}), tmp_path, "w")
    world.nodes.start("a", "b")
    return world


def said(text: str) -> Callable[[Engine], bool]:
    return lambda engine: any(text in problem for problem in engine.problems)


def finished(world: World) -> None:
    world.run(lambda e: e.done, limit=20_000)
    assert world.engine.positions["top.0"] == LAST
    assert len(world.output()) == 4 * LAST


@pytest.mark.wide
def test_state_that_cannot_be_stored_is_stored_later(world: World) -> None:
    blocker = world.checkpoints / "cp-00000010"
    blocker.write_text("not a folder")
    world.want(1, 0, world.spread("a", "b"))
    world.run(lambda e: said("checkpoint 10 not stored")(e) and past(30)(e))
    assert world.engine.punctuations.newest != 10
    blocker.unlink()
    finished(world)
    assert world.engine.store.positions()[-1] == LAST


def test_a_record_that_cannot_be_written_makes_no_checkpoint_until_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Files.replace

    def refuses(self: Files, relative: str, data: bytes | Chunks) -> None:
        if "cp-00000010/COMPLETE" in relative:
            raise StoreError(f"cannot write {relative}: no space left")
        replace(self, relative, data)

    monkeypatch.setattr(Files, "replace", refuses)
    world.want(1, 0, world.spread("a", "b"))
    world.run(said("cannot write cp-00000010/COMPLETE"), limit=20_000)
    assert 10 not in world.engine.store.positions()
    assert world.engine.punctuations.newest < 10
    monkeypatch.undo()
    finished(world)


def test_without_ranges_on_record_no_batch_is_released(world: World) -> None:
    folder = world.checkpoints / "ranges"
    folder.write_text("not a folder")
    world.want(1, 0, world.spread("a", "b"))
    tick(world, 3)
    assert said("cannot write ranges/")(world.engine)
    assert set(world.engine.positions.values()) == {0}
    folder.unlink()
    finished(world)

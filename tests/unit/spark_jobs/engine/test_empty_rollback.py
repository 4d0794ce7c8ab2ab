"""Everything goes back and nothing is installed yet, as no node has room: what is asked of a rollback is asked later."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.errors import CheckpointError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from tests.support.engine_worlds import begun
from tests.unit.spark_jobs.engine.test_recovery import COIN, DIAMOND
from tools.testbed.local_engine import World, tick


def world_with_two_checkpoints(tmp_path: Path, topology: str) -> tuple[World, int]:
    """At work behind its newest checkpoint, and the position of the one before."""
    world = begun(topology, tmp_path, "ab", ahead=3)
    world.run(lambda e: e.punctuations.newest >= 20)
    tick(world)
    *_, older, _ = world.engine.store.positions()
    return world, older


def test_newer_checkpoints_count_no_more_when_what_went_back_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one of them would close the incident, sources would forget what is still to be read, and all stand still."""
    world, older = world_with_two_checkpoints(tmp_path, DIAMOND)
    withdrawn: list[int] = []
    monkeypatch.setattr(CheckpointStore, "withdraw", lambda _, after: withdrawn.append(after))
    world.want(2, older, {}, retain=True)
    assert not withdrawn
    world.want(2, older, world.spread("a", "b"), retain=True)
    assert withdrawn == [older], "a manifest that nobody confirmed would count for the next driver"
    assert world.engine.progress.covers.everybody == older
    tick(world)
    world.want(2, older, world.spread("a", "b"))
    world.run(lambda e: e.done)
    assert world.output()


def test_what_may_come_out_otherwise_does_not_go_back_behind_what_is_shown(tmp_path: Path) -> None:
    world, older = world_with_two_checkpoints(tmp_path, COIN)
    world.want(2, older, {}, retain=True)
    with pytest.raises(CheckpointError, match="shown"):
        world.want(2, older, world.spread("a", "b"), retain=True)
    assert older in world.engine.bad_checkpoints

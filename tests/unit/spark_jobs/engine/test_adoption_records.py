"""What a driver that is to go on with what lives finds of the drivers before it: one that has asked and did not believe the
answer, and hosts that heard nothing of what it decided instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.engine.adoption import adopt
from tests.unit.spark_jobs.engine.test_adoption import (
    NODES,
    begun,
    decide,
    follows,
    installed,
    next_driver,
    resource_of,
)
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, tick

pytestmark = pytest.mark.usefixtures(
    "exchange", "small_windows"
)  # drivers change far from the end of the stream


def disbelieved(folder: Path) -> World:
    """A driver has found records that know less than the hosts, as after a mirror has taken over, and is to restore all."""
    world = begun(resource_of(DIAMOND), folder)
    world.run(lambda e: e.punctuations.newest >= 10)
    desired = next_driver(world)
    written, world.engine.ledger.written = world.engine.ledger.written, 3
    assert "on record up to batch 3 only" in adopt(world.engine, desired, world.nodes.living())
    world.engine.ledger.written = written
    decide(world, 2, world.engine.punctuations.newest, world.spread(*NODES))
    return world


def test_what_a_driver_did_not_believe_the_next_one_does_not_believe_either(tmp_path: Path) -> None:
    """It may have said by then what else those batches are, so the records go as far as the hosts again."""
    world = disbelieved(tmp_path)
    before = installed(world)
    assert "has not obeyed the last driver" in follows(world)
    assert not world.engine.positions and installed(world) == before


def test_what_it_has_restored_instead_is_gone_on_with(tmp_path: Path) -> None:
    world = disbelieved(tmp_path)
    tick(world, 3)
    before = installed(world)
    assert follows(world) == ""
    assert world.engine.installation == before

"""A node has notice while something else is lost, or is being restored: what has a standby goes on there while it still
runs, nobody goes back, and all is shown once; whatever is lost in the middle of the job that promotes."""

# ruff: noqa: F811 - fixtures of the tests of active standbys, which hold here as well
from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hashtags import WITH_STANDBYS
from tests.support.losses import tick_losing
from tests.unit.spark_jobs.engine.test_passive_standbys import ARRAYS
from tests.unit.spark_jobs.engine.test_standbys import (
    expected,  # noqa: F401 - the output without a failure
    finish,
    recover,
    watch,  # noqa: F401 - H1 and H2 in every job here, too
    world_of,
)
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("few_batches_ahead")


def in_an_incident(folder: Path, text: str, when: str) -> World:
    """Node `b` is lost, with a source and two operators; `count.0` runs on node `c` and has its standby on node `a`."""
    world = world_of(folder, text=text)
    world.run(past(25))
    world.nodes.lose("b")
    world.nodes.start("e")
    tick(world, 2)
    assert {"tweets.1", "parse.1", "count.1"} == world.engine.failed.keys()
    if when != "lost":
        recover(world)
    if when == "at work":
        world.run(lambda e: e.at_work.keys() == e.desired.assignment.keys())
    return world


def hand_over(world: World) -> None:
    """What a coordinator decides when node `c` has notice."""
    engine = world.engine
    assert "count.0" in engine.progress.standbys
    at = {**engine.desired.assignment, "count.0": "a"}
    standbys = {p: n for p, n in engine.desired.standbys.items() if p != "count.0"}
    world.want(engine.desired.generation, engine.punctuations.newest, at, retain=True, standbys=standbys)


LOSSES = [("", 0), *((node, stage) for node in "ca" for stage in (0, 1, 2))]
"""Nothing, the node that the partition leaves, or the one to which it goes, at a stage of the job that promotes."""
CASES = [
    pytest.param(text, when, lost, stage, id=f"{kind}-{when}-{lost or 'nothing'}-{stage}")
    for kind, text in {"active": WITH_STANDBYS, "passive": ARRAYS}.items()
    for when in ("being restored", "lost", "at work")
    for lost, stage in LOSSES
]


@pytest.mark.wide
@pytest.mark.parametrize(("text", "when", "lost", "stage"), CASES)
def test_a_partition_goes_on_where_its_standby_is_while_something_is_lost(
    tmp_path: Path, expected: dict[str, bytes], text: str, when: str, lost: str, stage: int
) -> None:
    world = in_an_incident(tmp_path, text, when)
    engine = world.engine
    newest, before = engine.punctuations.newest, dict(engine.positions)
    hand_over(world)
    assert engine.positions["count.0"] >= newest
    assert {**before, "count.0": 0} == {**engine.positions, "count.0": 0}, "somebody goes back"
    read = engine.figures.states_here + engine.figures.states_there

    tick_losing(world, lost, stage)
    tick(world, 2)
    if lost != "a":
        assert "count.0" in world.nodes.hosts["a"].runtimes
        assert engine.at_work["count.0"] >= newest
        assert "c" not in world.nodes.hosts or "count.0" not in world.nodes.hosts["c"].runtimes
    if not lost and when != "being restored":
        assert engine.figures.states_here + engine.figures.states_there == read, "a state was read"
    recover(world)
    finish(world, expected)
    if not lost:
        assert engine.desired.generation == 1, "everything went back"

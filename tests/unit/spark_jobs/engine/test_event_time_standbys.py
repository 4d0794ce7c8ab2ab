"""Windows of event time with standbys: one copy goes on; where both are lost, the window begins anew at the first row of an
open one, as it says by its state, and nothing of it is read from a store (docs/decisions/0069-both-copies-are-lost.md)."""

# ruff: noqa: F811 - fixtures of the tests of other windows, which hold here as well
from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.operators import TumblingWindow
from reprise.spark_jobs.topology import load_text
from tests.unit.spark_jobs.engine.test_both_copies_lost import (
    MODES,
    NODES,
    few_batches_ahead,  # noqa: F401
    loses_at,
    stands_between_checkpoints,
    with_mode,
)
from tests.unit.spark_jobs.engine.test_standbys import recover
from tests.unit.spark_jobs.engine.test_upstream_backup import (
    Watch,
    fed,
    finish,
    restore,
    watch,  # noqa: F401 - what is given again is what was given before
)
from tests.unit.spark_jobs.engine.test_upstream_event_time import (
    AT,
    TOPOLOGY,
    expected,  # noqa: F401 - the output without a failure, which is the same
)
from tools.testbed.local_engine import World

pytestmark = pytest.mark.long


def world_of(folder: Path, mode: str) -> World:
    """`window` has standbys, that of `window.0` on a node that has nothing else; that partition shares its own with
    `soon.0`, which comes from its checkpoint.  All have come to the middle of the window of batches 22 to 28."""
    world = World(load_text(TOPOLOGY, changes=with_mode(mode, ["window"])), folder, "w")
    world.engine.begin(0)
    world.nodes.start(*NODES)
    world.want(1, 0, AT, standbys={"window.0": "e"})
    stands_between_checkpoints(world)
    return world


@pytest.mark.wide
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_both_are_lost_at_any_stage_and_nothing_of_the_window_is_read(
    tmp_path: Path, expected: dict[str, bytes], mode: str, stage: int, watch: Watch
) -> None:
    watch.begin()
    world = world_of(tmp_path, mode)
    loses_at(world, stage, "d", "e")
    engine = world.engine
    assert set(engine.failed) == {"window.0", "soon.0"}
    assert engine.progress.backed == {"window.0"}
    for folder in world.checkpoints.glob("cp-*"):
        for file in folder.glob("window.0.*"):
            file.unlink()  # whoever would read it would see that it is gone
    restore(world, "a", "b")
    assert fed(world) == {"window.0"}
    install = engine.upstream.install("window.0")
    assert install is not None and install.replays_to is not None
    assert engine.punctuations.newest <= install.position < install.replays_to
    finish(world, expected)
    assert "window.0" not in watch.read
    assert engine.desired.generation == 1


@pytest.mark.wide
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_a_window_goes_on_where_its_standby_is_whenever_its_node_is_lost(
    tmp_path: Path, expected: dict[str, bytes], mode: str, stage: int, watch: Watch
) -> None:
    watch.begin()
    world = world_of(tmp_path, mode)
    loses_at(world, stage, "d")
    assert recover(world) == {"window.0"}
    assert fed(world) == set()
    finish(world, expected)
    assert "window.0" not in watch.read
    assert world.engine.desired.generation == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_window_that_says_too_late_a_batch_is_found(
    tmp_path: Path, expected: dict[str, bytes], mode: str, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check that the tests here rest on can fail."""
    watch.begin()
    monkeypatch.setattr(TumblingWindow, "oldest_needed_behind", lambda self, state, batch: batch + 1)
    world = world_of(tmp_path, mode)
    loses_at(world, 0, "d", "e")
    restore(world, "a", "b")
    assert "window.0" in fed(world)
    with pytest.raises(AssertionError, match="window"):
        finish(world, expected)

"""Hosts whose messages travel by an exchange: whatever is late or lost, the sink output is what it would have been."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reprise.spark_jobs.topology import StreamTopology
from tests.support.engine_worlds import begun
from tests.support.pumped_engine import PumpedNodes, SometimesChained
from tests.unit.spark_jobs.engine import test_recovery, test_scope
from tools.testbed import local_engine
from tools.testbed.local_engine import World

FEEDBACK = Path("examples/feedback.yaml")


@pytest.fixture(scope="module")
def resource(text: str) -> StreamTopology:
    return test_scope.resource_of(text)


@pytest.mark.usefixtures("by_an_exchange")
def test_output_is_the_same_as_by_the_chain(
    resource: StreamTopology, expected: dict[str, bytes], tmp_path: Path
) -> None:
    world = begun(resource, tmp_path)
    world.run(lambda e: e.done)
    assert world.output() == expected
    assert isinstance(world.nodes, PumpedNodes) and world.nodes.delivered > 20


@pytest.mark.wide
@pytest.mark.usefixtures("by_an_exchange")
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(2, 6))]
)
def test_losses_failed_jobs_partial_plans_and_new_drivers_change_no_byte(
    resource: StreamTopology, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    test_recovery.test_random_losses(resource, expected, tmp_path, seed)


@pytest.mark.usefixtures("by_an_exchange")
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(2, 6))]
)
def test_survivors_of_losses_at_any_moment_go_on(
    text: str, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    test_scope.test_random_losses_at_any_stage_change_no_byte_and_take_nobody_back(
        text, expected, tmp_path, seed
    )


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(2, 6))]
)
def test_an_exchange_takes_over_from_jobs_and_jobs_from_an_exchange(
    text: str, expected: dict[str, bytes], tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "LocalNodes", SometimesChained)
    test_scope.test_random_losses_at_any_stage_change_no_byte_and_take_nobody_back(
        text, expected, tmp_path, seed
    )


def test_worlds_are_of_the_kind_that_is_asked_for(resource: StreamTopology, tmp_path: Path) -> None:
    assert not isinstance(World(resource, tmp_path, "w").nodes, PumpedNodes)


@pytest.mark.usefixtures("by_an_exchange")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(1, 4))])
def test_output_that_a_replay_could_change_is_shown_once(tmp_path: Path, seed: int) -> None:
    """An operator that is not deterministic: its output waits for a checkpoint, and what was shown stands."""
    world = begun(test_recovery.COIN, tmp_path / f"{seed}")
    dice = random.Random(seed)
    shown: dict[str, bytes] = {}
    for generation in (2, 3):
        wanted = 15 * (generation - 1) + dice.randrange(5)
        before = len(shown)
        world.run(lambda e, n=wanted, m=before: e.done or (e.horizon > n and len(world.output()) > m))
        shown = world.output()
        world.nodes.lose(dice.choice(sorted(world.nodes.hosts)))
        world.nodes.start(f"new{generation}")
        world.want(generation, world.engine.punctuations.newest, world.spread(*world.nodes.hosts))
    world.run(lambda e: e.done)
    after = world.output()
    assert shown and all(after[name] == rows for name, rows in shown.items())
    assert world.engine.final is not None
    assert len(after) == world.engine.final * len(world.topology.queries)

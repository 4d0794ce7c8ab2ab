"""A long stop of a live stream: what came due is released by windows, and replays read the same ranges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.engine.engine import WINDOW
from reprise.spark_jobs.state.release import Release
from reprise.spark_jobs.topology import load_text
from tests.support import live_engine as live
from tests.unit.spark_jobs.state.test_release import Machine
from tools.testbed.local_engine import World, tick

LIVE = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: live}
spec:
  batch: {interval: 500ms}
  sources: [{name: in, class: "tests.support.live_engine:Live", parallelism: 2}]
  operators:
    - {name: all, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: in}], output: {}}
  checkpoint: {everyBatches: 400}
"""


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def world(tmp_path: Path, machine: Machine) -> World:
    """Down for sixty hours at two batches a second, with a log that has grown meanwhile."""
    live.END = 0
    world = World(load_text(LIVE), tmp_path, "w")
    (world.checkpoints / "clock.json").write_text(json.dumps({"started": machine.wall}))
    machine.passes(60 * 3600.0)
    live.END = 5000
    world.nodes.start("a", "b")
    world.engine.release = machine.release(world.checkpoints, 0.5)
    world.engine.begin(0)
    return world


def test_batches_ledger_and_commands_stay_small_whatever_came_due(world: World) -> None:
    engine = world.engine
    assert any("batches came due" in p for p in engine.problems)
    world.want(1, 0, world.spread("a", "b"), retain=True)
    for _ in range(12):
        slowest = min(engine.positions.values())
        tick(world)
        assert engine.horizon <= slowest + WINDOW
        sizes = [p.stat().st_size for p in (world.checkpoints / "ranges").iterdir() if p.is_file()]
        assert max(sizes) < 60 * WINDOW
        orders = Dispatch(world.topology).orders(["a", "b"], engine._commands(["a", "b"]))
        assert max(map(len, orders)) < 100 * WINDOW
    assert min(engine.positions.values()) > WINDOW, "and it goes on"


def test_a_source_that_has_far_to_go_is_told_its_ranges_in_several_commands(world: World) -> None:
    """The others have gone on for long when it comes back."""
    engine = world.engine
    there = {p: "a" for p in world.topology.order if p != "in.1"}
    world.want(1, 0, there, retain=True)
    world.run(lambda e: e.positions["in.0"] >= 256)
    engine.ledger.reach(20 * WINDOW)
    engine.horizon = 20 * WINDOW
    world.want(1, 0, {**there, "in.1": "b"}, retain=True)
    told = engine._commands(["a", "b"])[1].ranges["in.1"]
    assert (min(told), max(told)) == (1, 2 * WINDOW)
    tick(world)
    told = engine._commands(["a", "b"])[1].ranges["in.1"]
    assert (min(told), max(told)) == (2 * WINDOW + 1, 4 * WINDOW)


def test_a_replay_after_the_stop_shows_the_same(world: World, machine: Machine, tmp_path: Path) -> None:
    world.want(1, 0, world.spread("a", "b"), retain=True)
    world.run(lambda e: e.punctuations.newest > 0 and min(e.positions.values()) > e.punctuations.newest)
    newest, before = world.engine.punctuations.newest, min(world.engine.positions.values())
    shown = {name: data for name, data in world.output().items() if name.endswith(".jsonl")}
    live.END = 9000
    world.nodes.lose("a", "b")
    world.nodes.start("c")
    world.driver().release = Release(
        str(world.checkpoints),
        0.5,
        wall=lambda: machine.wall,
        elapsed=lambda: machine.elapsed,
        epoch=world.engine.epoch,
    )
    world.engine.begin(newest)
    world.want(2, newest, world.spread("c"), retain=True)
    world.run(lambda e: min(e.positions.values()) > before + WINDOW)
    again = world.output()
    assert shown
    assert {name: again[name] for name in shown} == shown
    rows = [json.loads(line)["n"] for name, data in sorted(again.items()) for line in data.splitlines()]
    assert sorted(rows) == sorted([*range(5000)] * 2 + [*range(5000, 9000)] * 2), "each once a partition"

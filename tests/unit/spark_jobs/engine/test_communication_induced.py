"""Communication-induced checkpoints in engine and hosts: output is as without failures, and where replays differ no snapshot
is useless, also after everything has gone back.  What own clocks promise it keeps as well: `test_uncoordinated`."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.checkpoints import useless
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.local_lines import LocalLines
from reprise.spark_jobs.node.command import Ack
from reprise.spark_jobs.node.induced import INDUCED, Induced
from reprise.spark_jobs.node.local_state import LocalState
from reprise.spark_jobs.node.snapshots import SnapshotWriter
from reprise.spark_jobs.state.snapshot import Kind
from reprise.spark_jobs.topology import load_text, override
from tests.support.engine_worlds import begun
from tests.support.losses import lose_a_node_or_everything
from tests.support.seeds import soak_seeds
from tests.unit.spark_jobs.engine.test_uncoordinated import in_the_middle, no_waiting, restore, to_the_end  # noqa: F401
from tools.testbed.local_engine import MANY, World, past, tick

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("exchange", "lines_at_once", "no_waiting")]

BATCHES = 60
LOOP = f"""
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: loop}}
spec:
  batch: {{interval: 100ms}}
  sources:
    - {{name: tweets, class: "reprise.spark_jobs.sources:HashtagSource",
        with: {{rate: 100, interval: 100ms, batches: {BATCHES}, tags: 9}}}}
  operators:
    - {{name: toss, class: "tests.support.coin:Told", inputs: [{{from: tweets}}, {{from: pass, feedback: true}}]}}
    - {{name: total, class: "tests.support.coin:Ledger", inputs: [{{from: toss}}], output: {{}}}}
    - {{name: pass, class: "reprise.spark_jobs.operators:Map", with: {{select: [total]}}, inputs: [{{from: total}}]}}
  checkpoint: {{everyBatches: 8, protocol: communication-induced, log: checkpointed}}
  nodes: {{count: 2}}
"""
"""A cycle of three whose replays differ."""
SEEDS = [0, 1, *soak_seeds(10)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """Where each partition was ever stored, in what has not been undone (`goes_back`)."""
    found: defaultdict[str, set[int]] = defaultdict(lambda: {0})
    acknowledge = LocalLines.acknowledge

    def noted(self: LocalLines, ack: Ack) -> None:
        found[ack.partition].add(ack.position)
        acknowledge(self, ack)

    monkeypatch.setattr(LocalLines, "acknowledge", noted)
    return found


def goes_back(taken: dict[str, set[int]], world: World) -> None:
    """Everything stands at a line now: what came after it never was."""
    for partition, snapshot in world.engine.lines.origins.items():
        taken[partition] = {k for k in taken[partition] if k <= snapshot.position}


def useless_of(taken: dict[str, set[int]], world: World) -> int:
    return useless({p: sorted(at) for p, at in taken.items()}, world.topology)


def assert_one_story(output: dict[str, bytes]) -> None:
    """Each row of the sum is what was tossed, and what is heard of it is the row before."""
    rows = [json.loads(data) for _, data in sorted(output.items()) if data]
    assert len(rows) >= BATCHES - 1
    assert all(row["total"] == row["own"] for row in rows)
    assert all(b["heard"] == a["total"] and b["total"] == a["total"] + b["toss"] for a, b in pairwise(rows))


@pytest.mark.usefixtures("exchange")
def test_no_snapshot_is_useless_and_lines_go_on(tmp_path: Path, taken: dict[str, set[int]]) -> None:
    world = begun(load_text(LOOP), tmp_path)
    world.run(past(BATCHES - 10))
    lines = world.engine.lines
    assert min(s.position for s in lines.line.values()) > BATCHES - 10 - 3 * 8
    assert lines.forced > 0
    assert Kind.FORCED in {s.kind for known in lines.snapshots.values() for s in known}
    assert world.engine.figures.header_bytes > 0
    to_the_end(world)
    assert useless_of(taken, world) == 0
    assert_one_story(world.output())


def test_without_forced_snapshots_the_same_clocks_leave_useless_ones(
    tmp_path: Path, taken: dict[str, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Induced, "forced", lambda *_: False)
    world = begun(load_text(LOOP), tmp_path)
    to_the_end(world)
    assert useless_of(taken, world) > 0


def test_where_messages_do_not_say_anything_nothing_is_sent_or_stored_for_it(tmp_path: Path) -> None:
    world = begun(override(load_text(LOOP), {"checkpoint.protocol": "uncoordinated"}), tmp_path)
    in_the_middle(world)
    assert (world.engine.figures.header_bytes, world.engine.lines.forced) == (0, 0)
    assert not any(INDUCED.encode() in file.read_bytes() for file in world.checkpoints.glob("cp-*/*.state"))


@pytest.mark.usefixtures("exchange")
@pytest.mark.parametrize("seed", SEEDS)
def test_losses_of_some_and_of_all_tell_one_story_and_leave_nothing_useless(
    tmp_path: Path, taken: dict[str, set[int]], seed: int
) -> None:
    """What partitions know of each other goes back with them."""
    dice = random.Random(seed)
    world = begun(load_text(LOOP), tmp_path)
    shown: dict[str, bytes] = {}
    for k in range(4):
        tick(world, dice.randint(4, 14))
        assert shown.items() <= world.output().items(), "what was shown stays"
        shown = world.output()
        lose_a_node_or_everything(world, dice)
        world.nodes.start(f"new{k}")
        newest = world.engine.punctuations.newest
        world.want(10 + k, newest, dict.fromkeys(world.topology.order, f"new{k}"), retain=True)
        at = {p: s.position for p, s in world.engine.lines.origins.items()}
        assert (
            at["total.0"] <= at["toss.0"]
            and at["pass.0"] <= at["total.0"]
            and at["toss.0"] - 1 <= at["pass.0"]
        )
        goes_back(taken, world)
    to_the_end(world)
    assert shown.items() <= world.output().items()
    assert_one_story(world.output())
    assert useless_of(taken, world) == 0


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
@pytest.mark.parametrize("differs", [True, False], ids=["replays differ", "replays are the same"])
def test_a_node_that_dies_in_a_forced_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool, differs: bool
) -> None:
    """With the batch that has forced it not applied anywhere, or applied, and nobody told of the snapshot."""
    forced: list[str] = []
    submit = SnapshotWriter.submit_local

    def noted(
        self: SnapshotWriter,
        partition: str,
        installation: str,
        position: int,
        state: LocalState,
        pause_s: float = 0.0,
    ) -> None:
        if state.forced and position > 9:
            forced.append(partition)
            nodes = world.engine.desired.assignment
            if not stored and nodes[partition] == nodes[forced[0]]:
                return
        submit(self, partition, installation, position, state, pause_s)

    def dies(_job: int, _stage: int, _slot: int) -> None:
        if forced and (node := world.engine.desired.assignment[forced[0]]) in world.nodes.hosts:
            world.nodes.lose(node)
            raise ChainError(f"{node} is gone")

    resource = load_text(LOOP)
    if not differs:
        resource = override(resource, {"operators[toss].class": "tests.support.coin:Steady"})
    world = begun(resource, tmp_path)
    monkeypatch.setattr(SnapshotWriter, "submit_local", noted)
    world.nodes.interrupt = dies
    for _ in range(MANY):
        tick(world)
        assert not world.engine.done, "one is forced before the end"
        if forced and len(world.nodes.hosts) < 3:
            break
    assert forced, f"none was forced: {world.engine.problems}"
    monkeypatch.setattr(SnapshotWriter, "submit_local", submit)
    world.nodes.interrupt = lambda *_: None
    tick(world)
    world.nodes.start("d")
    generation = world.engine.desired.generation
    restore(world, "d", generation + differs)
    tick(world, 3)
    assert not world.engine.not_kept
    to_the_end(world)
    assert_one_story(world.output())


def test_a_damaged_forced_snapshot_falls_back_and_says_so(tmp_path: Path) -> None:
    """Where replays are the same: else what was shown, as the line covered it, would be made differently now."""
    resource = override(load_text(LOOP), {"operators[toss].class": "tests.support.coin:Steady"})
    world = begun(resource, tmp_path)
    world.run(lambda e: _forced(world) and e.punctuations.newest > 4 and past(24)(e))
    world.forget()
    lost = _forced(world)[0]
    damaged = world.engine.lines.line[lost]
    assert damaged.file is not None
    (world.checkpoints / damaged.file.path).write_bytes(b"damaged")
    world.nodes.lose(*world.nodes.hosts)
    world.nodes.start("d")
    newest = world.engine.punctuations.newest
    world.driver()
    world.engine.begin(newest)
    world.want(9, newest, world.spread("d"), retain=True)
    world.run(lambda e: lost in e.failed, limit=8)
    said = [p for p in world.engine.problems if "cannot be used" in p]
    assert any(f"{lost}: its snapshot of batch {damaged.position} cannot be used" in p for p in said)
    world.want(10, world.engine.punctuations.newest, world.spread("d"), retain=True)
    assert world.engine.positions[lost] < damaged.position
    to_the_end(world)
    assert_one_story(world.output())


def _forced(world: World) -> list[str]:
    """Partitions whose snapshot on record was forced."""
    return [p for p, s in world.engine.lines.line.items() if s.kind is Kind.FORCED]

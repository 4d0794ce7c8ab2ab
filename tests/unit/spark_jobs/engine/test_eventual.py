"""Partitions that are stored slot by slot: whatever is lost and when, no byte of the output changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.node import partition_log
from reprise.spark_jobs.node.logged import LoggedRuntime
from reprise.spark_jobs.state.snapshot import Kind
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support.engine_worlds import all_anew, begun
from tests.support.losses import lose_at_any_stage
from tests.unit.spark_jobs.engine.test_uncoordinated import (
    ends_though_it_was_dropped,
    installed,
    restore,
    to_the_end,
)
from tools.testbed.local_engine import World, past, tick

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("exchange", "lines_at_once")]

WINDOWS = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: windows}
spec:
  sources:
    - name: tweets
      class: reprise.spark_jobs.sources:HashtagSource
      parallelism: 2
      with: {rate: 400, interval: 100ms, batches: 28, tags: 60, seed: 7}
  operators:
    - name: parse
      class: reprise.spark_jobs.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags], select: ["hashtags AS tag", time]}
      inputs: [{from: tweets, forward: true}]
    - name: window
      class: reprise.spark_jobs.operators:CountWindow
      parallelism: 3
      with: {size: 12, keys: [tag], aggregate: {"n": count()}}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 3}
    - name: timed
      class: reprise.spark_jobs.operators:SlidingWindow
      parallelism: 2
      with: {size: 600ms, slide: 200ms, keys: [tag], aggregate: {"n": count()}}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 5}
    - name: again
      class: reprise.spark_jobs.operators:CountWindow
      parallelism: 2
      with: {size: 7, keys: [tag], aggregate: {"n": sum(n)}}
      inputs: [{from: window, by: [tag]}]
    - name: count
      class: reprise.spark_jobs.operators:KeyedCount
      parallelism: 2
      with: {keys: [tag]}
      inputs: [{from: again, by: [tag]}, {from: window, by: [tag]}]
    - name: top
      class: reprise.spark_jobs.operators:TopK
      with: {by: count, k: 5, keys: [tag]}
      inputs: [{from: count}]
      output: {priority: 9}
  checkpoint: {everyBatches: 5}
  recovery: {bufferMemory: 64Ki}
  nodes: {count: 3}
"""
SLOTTED = ("window", "timed", "again", "count")
PACES = {
    "tight": {"extent": 30, "replay": 200, "spend": "1ms", "every": "1ms"},
    "loose": {"extent": 100_000, "replay": 1_000_000, "spend": "1ms", "every": "1ms"},
}


def resource_of(pace: str, **changes: object) -> StreamTopology:
    eventual = {
        "checkpoint.protocol": "eventual",
        "checkpoint.log": "checkpointed",
        "checkpoint.eventual": PACES[pace],
    }
    return override(load_text(WINDOWS), {**eventual, **changes})


@pytest.fixture(params=["tight", pytest.param("loose", marks=pytest.mark.wide)])
def pace(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """With coordinated checkpoints and no failure."""
    world = begun(load_text(WINDOWS), tmp_path_factory.mktemp("fault-free"))
    world.run(lambda e: e.done)
    found = world.output()
    assert all(
        any(rows for path, rows in found.items() if path.startswith(f"{o}/")) for o in ("timed", "window")
    )
    return found


def logs(world: World) -> dict[str, LoggedRuntime]:
    return {
        p: runtime
        for host in world.nodes.hosts.values()
        for p, runtime in host.runtimes.items()
        if isinstance(runtime, LoggedRuntime)
    }


def apart(world: World, least: int = 1) -> dict[str, tuple[int, int]]:
    """Partitions whose newest snapshot has slots of different ages: T and t_c."""
    newest = {p: known[-1] for p, known in world.engine.lines.snapshots.items()}
    return {p: (s.position, s.sent) for p, s in newest.items() if s.sent >= s.position + least}


@pytest.mark.parametrize("pace", PACES)
def test_without_a_failure_nothing_changes_and_slots_are_stored(
    pace: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    world = begun(resource_of(pace), tmp_path)
    world.run(past(18))
    found = logs(world)
    assert found.keys() == {p for p in world.topology.order if p.split(".")[0] in SLOTTED}
    assert any(runtime.log is not None and runtime.log.written for runtime in found.values())
    kinds = {s.kind for known in world.engine.lines.snapshots.values() for s in known}
    assert kinds >= {Kind.WINDOW_LOG, Kind.LOCAL}
    assert apart(world), "slots have different ages"
    to_the_end(world)
    assert world.output() == expected
    assert {s.sent for s in world.engine.lines.line.values()} == {world.engine.final}
    assert {s.position for s in world.engine.lines.line.values()} == {world.engine.final}


def test_who_is_lost_goes_back_to_its_oldest_slot_and_nobody_else_does(
    pace: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """Readers that stay further than the oldest slot are sent what the log has; batches in between give nothing."""
    world = begun(resource_of(pace), tmp_path)
    world.run(lambda e: past(11)(e) and any(p.startswith("window") for p in apart(world, 2)))
    lost = next(p for p in apart(world, 2) if p.startswith("window"))
    assignment = dict(world.engine.desired.assignment)
    world.want(
        1, world.engine.punctuations.newest, {p: n for p, n in assignment.items() if p != lost}, retain=True
    )
    tick(world, 3)
    newest = world.engine.lines.snapshots[lost][-1]
    before = installed(world)
    world.want(1, world.engine.punctuations.newest, assignment, retain=True)
    assert newest.sent > newest.position == world.engine.positions[lost]
    tick(world, 4)
    assert not world.engine.not_kept
    after = installed(world)
    assert {p: i for p, i in after.items() if p != lost} == before
    assert logs(world)[lost].replays_to == newest.sent
    to_the_end(world)
    assert world.output() == expected


SHORT = ((0, "loose"), (4, "loose"), (2, "tight"))
SEEDS = [
    pytest.param(seed, pace, marks=[] if (seed, pace) in SHORT else pytest.mark.wide)
    for seed in range(12)
    for pace in PACES
]


@pytest.mark.parametrize(("seed", "pace"), SEEDS)
def test_random_losses_at_any_stage_change_no_byte(
    pace: str, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    """One node after the other, also while what the one before had is being restored; senders and receivers alike."""
    dice = random.Random(seed)
    world = begun(resource_of(pace), tmp_path)
    tick(world, dice.randint(1, 17))
    for k in range(4):
        lose_at_any_stage(world, dice)
        if dice.random() < 0.4 and len(world.nodes.hosts) > 1:
            world.nodes.lose(dice.choice(sorted(world.nodes.hosts)))
        tick(world, dice.randint(0, 3))
        world.nodes.start(f"new{k}")
        restore(world, f"new{k}")
        tick(world, dice.randint(0, 6))
        assert not world.engine.not_kept
        if dice.random() < 0.5:
            desired = world.engine.desired
            world.want(desired.generation, world.engine.punctuations.newest, desired.assignment)
            tick(world, dice.randint(0, 10))
    to_the_end(world)
    assert world.output() == expected


@pytest.mark.parametrize(("seed", "pace"), SEEDS)
def test_a_new_driver_goes_on_from_the_line_on_record(
    pace: str, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    world = begun(resource_of(pace), tmp_path)
    for _ in range(3):
        tick(world, dice.randint(1, 12))
        newest = world.engine.punctuations.newest
        recorded = {p: (s.position, s.sent) for p, s in world.engine.lines.line.items()}
        all_anew(world, world.epochs + 5, "d", "e")
        assert world.engine.positions == {p: position for p, (position, _) in recorded.items()}
        assert world.engine.horizon >= max(sent for _, sent in recorded.values())
        tick(world, dice.randint(0, 5))
        if dice.random() < 0.5:
            desired = world.engine.desired
            world.want(desired.generation, newest, desired.assignment)
    to_the_end(world)
    assert world.output() == expected


def damage(world: World, path: str) -> None:
    (world.checkpoints / path).write_bytes((world.checkpoints / path).read_bytes()[:-9])


@pytest.mark.parametrize("which", ["newest", pytest.param("earlier", marks=pytest.mark.wide)])
def test_a_damaged_segment_is_passed_over_and_said(
    which: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    world = begun(resource_of("loose"), tmp_path)

    def with_others(world: World) -> list[str]:
        known = world.engine.lines.snapshots
        return [p for p in apart(world) if known[p][-1].file is not None and known[p][-1].file.others]

    world.run(lambda e: past(10)(e) and bool(with_others(world)))
    world.forget()
    lost = with_others(world)[0]
    damaged = world.engine.lines.snapshots[lost][-1]
    assert damaged.file is not None
    damage(world, damaged.file.path if which == "newest" else damaged.file.others[-1])
    assignment = dict(world.engine.desired.assignment)
    world.want(1, 0, {p: n for p, n in assignment.items() if p != lost}, retain=True)
    tick(world)
    for _ in range(6):
        world.want(1, 0, assignment, retain=True)
        world.run(lambda e: lost not in e.installing, limit=8)
        if lost not in world.engine.failed:
            break
        assert world.engine.failed[lost].kind is FailureKind.CHECKPOINT
        world.want(1, 0, {p: n for p, n in assignment.items() if p != lost}, retain=True)
        tick(world)
    assert any(f"{lost}: its snapshot of batch" in problem for problem in world.engine.problems)
    ends_though_it_was_dropped(world)
    assert world.output() == expected


def test_a_store_that_refuses_for_a_while_loses_nothing(
    pace: str, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that is not stored is in the next one, whichever comes first."""
    monkeypatch.setattr("reprise.spark_jobs.node.snapshots.RETRY_S", 0.0)
    world, dice = begun(resource_of(pace), tmp_path), random.Random(5)
    for host in world.nodes.hosts.values():
        monkeypatch.setattr(host, "clock", host.clock)
    store = partition_log.Sealed.encode

    def sometimes(self: partition_log.Sealed) -> bytes:
        if dice.random() < 0.5:
            raise StoreError("the store is away")
        return store(self)

    monkeypatch.setattr(partition_log.Sealed, "encode", sometimes)
    world.run(past(14))
    world.nodes.lose("b")
    tick(world)
    world.nodes.start("d")
    restore(world, "d")
    tick(world, 3)
    to_the_end(world)
    assert world.output() == expected


def test_a_snapshot_names_a_bounded_number_of_segments_and_old_ones_go(
    expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_log, "MOST_SEGMENTS", 2)
    world = begun(resource_of("loose", **{"checkpoint.everyBatches": 2}), tmp_path)
    lines, most = world.engine.lines, 0
    while not world.engine.done:
        tick(world)
        files = [s.file for known in lines.snapshots.values() for s in known if s.file is not None]
        most = max([most, *(len(file.others) for file in files)])
        there = {str(p.relative_to(world.checkpoints)) for p in world.checkpoints.glob("cp-*/*.*")}
        assert {path for file in files for path in file.paths} <= there
    assert most == 2
    assert len(there) < lines.taken, "some were removed"
    for position in world.engine.store.positions():
        world.engine.store.verify(position)
    assert world.output() == expected


@pytest.mark.parametrize("then", ["coordinated", pytest.param("uncoordinated", marks=pytest.mark.wide)])
def test_another_protocol_goes_on_from_a_line_of_logs_and_back(
    then: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    world = begun(resource_of("loose"), tmp_path)
    world.run(lambda e: past(11)(e) and bool(apart(world)))
    eventual = world.resource
    log = {"checkpoint.log": "checkpointed" if then == "uncoordinated" else "none"}
    other = override(eventual, {"checkpoint.protocol": then, "checkpoint.eventual": None, **log})
    for resource, until in ((other, 19), (eventual, 28)):
        world.nodes.lose(*world.nodes.hosts)
        world.nodes.start("d", "e")
        world.resource = resource
        newest = world.engine.punctuations.newest
        world.driver()
        world.engine.begin(world.engine.punctuations.newest)
        world.want(
            world.epochs + 4,
            max(newest, world.engine.punctuations.newest),
            world.spread("d", "e"),
            retain=True,
        )
        tick(world, 3)
        desired = world.engine.desired
        world.want(desired.generation, world.engine.punctuations.newest, desired.assignment)
        world.run(lambda e, u=until: past(u)(e) or e.done)  # type: ignore[misc]
    to_the_end(world)
    assert world.output() == expected


def test_a_drain_ends_at_a_line_without_replay(expected: dict[str, bytes], tmp_path: Path) -> None:
    world = begun(resource_of("loose"), tmp_path)
    world.run(lambda e: past(11)(e) and bool(apart(world)))
    world.engine.drain.asked = True
    world.run(lambda e: e.drained is not None)
    assert {(s.position, s.sent) for s in world.engine.lines.line.values()} == {(world.engine.drained,) * 2}
    newest = world.engine.punctuations.newest
    world.driver()
    world.engine.begin(newest)
    world.want(9, newest, world.spread("a", "b"), retain=True)
    to_the_end(world)
    assert world.output() == expected

"""Partitions that go on from different snapshots: the output stays what it would have been, and others stay at work."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.algorithms.positions import Origin, Positions
from reprise.algorithms.recovery_line import Edge, line
from reprise.algorithms.recovery_line import World as Lines
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.engine_spec import EngineSpec
from reprise.spark_jobs.errors import CheckpointError
from reprise.spark_jobs.node.buffers import EdgeBuffer
from reprise.spark_jobs.node.orders import Orders
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.snapshot import Kind, Snapshot
from reprise.spark_jobs.topology import StreamTopology, Topology, load_text, override
from tests.support.engine_worlds import begun, fault_free
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, past, tick

EVERY, KEPT = "everyBatches: 10", "everyBatches: 5, keep: 1"
BATCHES = 21
"""Until after the checkpoint at 15, which follows the two that lines are of."""


@pytest.fixture(scope="module", params=["diamond", pytest.param("feedback", marks=pytest.mark.wide)])
def resource(request: pytest.FixtureRequest) -> StreamTopology:
    text = DIAMOND if request.param == "diamond" else Path("examples/feedback.yaml").read_text()
    return override(load_text(text.replace(EVERY, KEPT)), {"sources[tweets].with.batches": BATCHES})


@pytest.fixture(scope="module")
def expected(resource: StreamTopology, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fault_free(begun(resource, tmp_path_factory.mktemp("fault-free"), "ab"))


@pytest.fixture
def world(resource: StreamTopology, tmp_path: Path) -> World:
    return begun(resource, tmp_path)


def two_checkpoints(world: World) -> tuple[int, int]:
    """The two newest, while the stream stands a little behind them: however fast the machine is, it has not ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 2)
        world.run(lambda e: e.horizon >= 12)
    world.engine.want(replace(world.engine.desired, paused=True))
    world.run(lambda e: e.store.positions()[-2:] == [5, 10] and past(e.horizon)(e), limit=20_000)
    world.engine.want(replace(world.engine.desired, paused=False))
    return 5, 10


def anew(world: World) -> None:
    """Everything is lost, the driver too."""
    world.nodes.lose(*world.nodes.hosts)
    world.nodes.start("e", "f")
    world.driver()


def watched(world: World) -> Callable[[Engine], bool]:
    """As `until` of `World.run`: the end of the stream, with invariant B1 looked at after each job: a cursor is never at a
    batch that was dropped before it was sent."""

    def done(engine: Engine) -> bool:
        for host in world.nodes.hosts.values():
            for runtime in host.runtimes.values():
                for buffer in runtime.buffers.values():
                    behind = [b for b in buffer.entries if b > buffer.cursor]
                    if behind and not runtime.partition.is_source:
                        assert buffer.cursor in buffer.entries, (buffer.source, buffer.target, buffer.cursor)
        return engine.done

    return done


def is_valid(topology: Topology, at: Positions, old: int, new: int) -> bool:
    """By the definition of a line, where every partition has snapshots at `old` and `new` and nobody kept any output.  A
    source has a state of its own, its watermark, so it is a partition like another here."""
    parts = topology.partitions
    edges = [Edge(u.partition, p, int(u.feedback)) for p, part in parts.items() for u in part.upstream]
    fed_back = {p: {e.target: at.of(p) for e in edges if e.source == p and e.delay} for p in parts}
    known = {
        p: (Snapshot(p, at.of(p), None, Snapshot.round(p, 0).kind, at.of(p), at.of(p) + 1, 1, fed_back[p]),)
        for p in parts
    }
    found = line(Lines(edges, frozenset(), known, {}, {}, 1, frozenset(parts)), set(parts))
    return isinstance(found, dict) and old <= at.oldest and at.newest <= new


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.wide) for seed in (1, 2, 3))])
def test_after_a_total_loss_every_valid_line_gives_the_same_output(
    world: World, expected: dict[str, bytes], seed: int
) -> None:
    """All that feeds one partition, and it, go back further than the others."""
    old, new = two_checkpoints(world)
    back = world.topology.upstream_of([random.Random(seed).choice(world.topology.order)])
    lines = {p: Origin(1, old) for p in back}
    assert is_valid(world.topology, Positions(new, dict.fromkeys(back, old)), old, new)
    anew(world)
    world.want(2, new, world.spread("e", "f"), lines=lines)
    assert world.engine.positions == {p: old if p in back else new for p in world.topology.partitions}
    world.run(watched(world))
    assert world.output() == expected


def test_those_whose_origin_changes_go_back_and_the_others_keep_their_installation(
    world: World, expected: dict[str, bytes]
) -> None:
    """Everybody keeps what it has put out since the checkpoint, so any of them can be fed again from there."""
    _, k = two_checkpoints(world)
    assignment = world.engine.desired.assignment
    world.want(2, k, assignment, retain=True)
    world.run(past(k + 8))
    hosts = world.nodes.hosts.values()
    before = {p: i for host in hosts for p, i in host.installed.items()}
    chosen = world.topology.order[len(world.topology.order) // 2 :][:2]
    world.want(2, k, assignment, retain=True, lines={p: Origin(3, k) for p in chosen})
    assert {p for p, x in world.engine.positions.items() if x == k} == set(chosen)
    assert world.engine.horizon > k, "what was released stays released"
    tick(world)
    after = {p: i for host in hosts for p, i in host.installed.items()}
    assert {p for p in before if before[p] != after[p]} == set(chosen)
    world.want(2, k, assignment, retain=True, lines={p: Origin(3, k) for p in chosen})
    world.run(past(k + 8))
    assert {p: i for host in hosts for p, i in host.installed.items()} == after, (
        "the same line changes nothing"
    )
    world.run(lambda e: e.punctuations.newest > k)
    world.want(2, k, assignment)
    world.run(watched(world))
    assert world.output() == expected


def test_a_partition_that_makes_batches_again_does_not_send_what_was_applied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, k = two_checkpoints(world)
    assignment = world.engine.desired.assignment
    world.want(2, k, assignment, retain=True)
    world.run(past(k + 8))
    reached = dict(world.engine.positions)
    (again, *_) = (p for p in world.topology.order if not world.topology.partitions[p].is_source)
    sent: list[Message] = []
    real = EdgeBuffer.pending

    def pending(self: EdgeBuffer, applied: int, upto: int) -> Iterator[tuple[Message, bytes]]:
        for message, body in real(self, applied, upto):
            sent.append(message)
            yield message, body

    monkeypatch.setattr(EdgeBuffer, "pending", pending)
    world.want(2, k, assignment, retain=True, lines={again: Origin(3, k)})
    assert world.engine.positions[again] == k < reached[again]
    world.run(lambda e: e.positions[again] >= reached[again])
    assert not [m for m in sent if m.source == again and m.batch < reached[m.target]]


def test_a_line_behind_trimmed_input_or_shown_output_is_refused_and_changes_nothing(world: World) -> None:
    old, new = two_checkpoints(world)
    anew(world)
    world.engine.ledger.trimmed = new
    (first, *_) = world.topology.order
    with pytest.raises(CheckpointError, match=f"behind batch {old}"):
        world.want(2, new, world.spread("e", "f"), lines={first: Origin(1, old)})
    assert world.engine.desired == EngineSpec()
    assert not world.engine.positions
    assert world.engine.bad_checkpoints == {old}


def test_a_damaged_file_condemns_the_checkpoint_that_it_is_of(world: World) -> None:
    old, new = two_checkpoints(world)
    anew(world)
    files = world.engine.store.manifest(old).files
    partition = next(p for p in world.topology.order if p in files)
    (world.checkpoints / files[partition].path).write_bytes(b"damaged")
    lines = {p: Origin(1, old) for p in world.topology.upstream_of([partition])}
    world.want(2, new, world.spread("e", "f"), lines=lines)
    world.run(lambda e: bool(e.failed), limit=5)
    assert world.engine.bad_checkpoints == {old}


def test_checkpoints_that_a_line_restores_from_are_kept_until_another_is_desired(world: World) -> None:
    old, new = two_checkpoints(world)
    anew(world)
    (first, *_) = world.topology.order
    world.want(2, new, world.spread("e", "f"), lines={first: Origin(1, old)})
    world.run(lambda e: e.punctuations.newest > new)
    assert old in world.engine.store.positions()
    world.want(2, new, world.engine.desired.assignment)
    assert world.engine.positions[first] == new, "another origin"


def test_commands_do_not_grow_with_a_global_line(world: World) -> None:
    world.run(past(12))
    (command, *_) = world.engine._commands(sorted(world.nodes.hosts))
    newest = world.engine.punctuations.newest
    assert command.covered == Positions(newest)
    (order, *_) = Dispatch(world.topology).orders(["a"], [command])
    assert json.loads(order)["covered"] == {"everybody": newest, "others": {}}
    assert Orders().read(order).covered == command.covered


def test_another_checkpoint_of_the_same_generation_is_only_what_a_lost_one_is_restored_from(
    world: World,
) -> None:
    """What the end of an incident says: nobody goes back for it."""
    old, new = two_checkpoints(world)
    before = world.engine.installation.copy()
    assignment = world.engine.desired.assignment
    world.want(1, old, assignment)
    world.want(1, new, assignment)
    world.want(1, new, assignment, lines={world.topology.order[-1]: Origin(1, old)})
    assert world.engine.installation == before
    (last, *_) = reversed(world.topology.order)
    world.want(1, new, {**assignment, last: next(n for n in world.nodes.hosts if n != assignment[last])})
    assert world.engine.positions[last] == new
    assert {p for p in before if world.engine.installation[p] != before[p]} == {last}


def test_a_checkpoint_whose_partitions_are_at_different_positions_is_restored_as_a_line(
    world: World, expected: dict[str, bytes]
) -> None:
    """Another protocol has left it.  Where none of its partitions holds output for the others, older ones are taken, too."""
    old, new = two_checkpoints(world)
    (path,) = world.checkpoints.glob(f"cp-{new:08d}/COMPLETE*.json")
    manifest = Manifest.from_json(json.loads(path.read_text()))
    last = world.topology.order[-1]
    ahead = replace(Manifest.of_round(old, {}, {}).snapshot(last), kind=Kind.LOCAL)
    older = world.engine.store.manifest(old).snapshot(last)
    behind = replace(ahead, file=older.file)
    line_of_it = replace(manifest, snapshots={**manifest.snapshots, last: behind})
    text = json.dumps(line_of_it.to_json())
    anew(world)
    before = world.engine.desired
    path.write_text(text.replace('"local"', '"of a kind that comes later"'))
    with pytest.raises(CheckpointError, match="written by a newer version"):
        world.want(2, new, world.spread("e", "f"))
    assert world.engine.desired == before
    assert world.engine.bad_checkpoints == set(), "or the coordinator would go back to an older one"
    assert world.engine.punctuations.newest == new
    path.write_text(text)
    world.engine.restore_point.clock = lambda: math.inf
    world.want(2, new, world.spread("e", "f"))
    # those before it go back to the beginning, as only `new` and that are kept; who reads it over a feedback edge is one of
    # these, and needs its first batch
    feeds_back = any(u.feedback for p in world.topology.partitions.values() for u in p.upstream)
    assert world.engine.positions[last] == (0 if feeds_back else old)
    world.run(lambda e: e.done)
    assert world.output() == expected

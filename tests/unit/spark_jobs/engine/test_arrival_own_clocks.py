"""`batch.order: arrival` where partitions store themselves by their own clocks: snapshots with uneven inputs, the line that
everything goes back to, and that whatever is lost the rows shown are those of a run in one process without failures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.algorithms.recovery_line import Heard
from reprise.spark_jobs.engine import local_lines
from reprise.spark_jobs.engine.arrival import of_one_count, require_even
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.errors import StoreError, SupersededError
from reprise.spark_jobs.node import buffers
from reprise.spark_jobs.node import host as host_module
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.revision import RevisionError
from reprise.spark_jobs.state.snapshot import Kind, Snapshot
from reprise.spark_jobs.topology import StreamTopology, override
from tests.support.seeds import seeds
from tests.support.straggling import Straggler
from tests.unit.spark_jobs.engine import test_arrival
from tests.unit.spark_jobs.engine.test_arrival import (
    Rows,
    another_driver,
    early,
    runtimes,
    shown,
    started,
)
from tools.testbed.local_engine import World, past, tick, tick_with_cuts

expected, nothing_held_back, resource = (
    test_arrival.expected,
    test_arrival.nothing_held_back,
    test_arrival.resource,
)
"""Fixtures."""

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("exchange")]

OWN_CLOCKS = {
    "checkpoint.protocol": "uncoordinated",
    "checkpoint.log": "checkpointed",
    "checkpoint.everyBatches": 6,
    "recovery.bufferMemory": "16Mi",
}


@pytest.fixture
def own(resource: StreamTopology) -> StreamTopology:
    return override(resource, OWN_CLOCKS)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lines are recorded with each job, and states are all installed within a stage."""
    monkeypatch.setattr(local_lines, "RECORD_S", 0.0)
    monkeypatch.setattr(local_lines, "SHARE", 0)
    monkeypatch.setattr(host_module, "JOIN_S", 10.0)
    yield


def test_rows_are_those_of_the_definition(own: StreamTopology, expected: Rows, tmp_path: Path) -> None:
    world = started(own, tmp_path, "a", "b", "c", "d")
    world.run(lambda e: e.done)
    assert shown(world) == expected
    assert early(world) > 0
    assert world.engine.lines.taken > len(world.topology.partitions)


def uneven(world: World) -> set[str]:
    """Partitions of which some snapshot has an input that is further than its position."""
    return {p for p, known in world.engine.lines.snapshots.items() for s in known if not s.even}


def has_no_orphan(world: World) -> None:
    """What everything goes back to: nobody has taken what its sender makes again, and who is sent what is there."""
    lines = world.engine.lines
    origins = {**lines.origins, **lines._pinned}
    for partition in world.topology.partitions.values():
        for upstream in partition.upstream:
            heard = origins[partition.id].inputs.get(upstream.partition)
            if heard is None or world.topology.partitions[upstream.partition].is_source:
                continue  # a source makes the same rows again
            sender = origins[upstream.partition]
            assert heard.taken <= sender.sent, (partition.id, upstream.partition)
            assert sender.channels.get(partition.id, sender.first) <= heard.marker + 1


def all_back(world: World, *nodes: str, generation: int | None = None) -> None:
    """As the coordinator orders it where a replay may differ."""
    again = world.engine.desired.generation + 1 if generation is None else generation
    world.want(again, world.engine.punctuations.newest, world.spread(*nodes))


@pytest.mark.wide
def test_a_straggler_holds_nobody_up_and_snapshots_have_what_is_under_way(
    own: StreamTopology, expected: Rows, tmp_path: Path
) -> None:
    """With rounds the fast input waits at the marker of the next checkpoint; here it goes on, and after everything was lost
    what was applied early counts once."""
    world = started(own, tmp_path, "a", "b", "c", "d")
    for upto in range(3, 16):
        Straggler.upto = upto
        tick(world, 4)
    fast = [
        c
        for r in runtimes(world).values()
        for u, c in r.frontier.channels.items()
        if u.startswith("parse") and r.position == 15
    ]
    assert fast and {c.complete for c in fast} == {25}, "as far as batches are under way"
    assert uneven(world) >= {"all.0", "meet.0"}
    world.run(lambda e: e.punctuations.newest > 0)
    kinds = {s.kind for p, s in world.engine.lines.line.items() if p.startswith("all")}
    assert kinds == {Kind.ARRIVAL}
    world.nodes.lose("a", "b", "c", "d")
    tick(world)
    world.nodes.start("e", "f")
    world.forget()
    all_back(world, "e", "f")
    has_no_orphan(world)
    assert any(not s.even for s in world.engine.lines.origins.values())
    assert any(len(s.channels) for p, s in world.engine.lines.origins.items() if p.startswith("all"))
    Straggler.upto = None
    world.run(lambda e: e.done)
    assert shown(world) == expected


def lost_at_random(world: World, rng: random.Random, expected: Rows) -> None:
    """Nodes at any stage, jobs, drivers, a straggler that comes and goes; a part of the partitions comes back later."""
    fresh, before = 4, shown(world)
    for _ in range(6):
        Straggler.upto = rng.choice([None, world.engine.horizon + rng.randint(0, 12)])
        tick_with_cuts(world, rng, rng.randint(1, 10))
        now = shown(world)
        assert all(before[p] <= now[p] <= rows for p, rows in expected.items()), "what is shown stays"
        before = now
        if rng.random() < 0.25:
            another_driver(world)
            all_back(world, *world.nodes.hosts, generation=world.epochs * 100)
            continue
        lost = rng.sample(list(world.nodes.hosts), rng.randint(1, 3))
        world.nodes.lose(*lost)
        if rng.random() < 0.5:
            tick(world)
        names = [f"n{fresh + 1 + i}" for i in range(len(lost))]
        fresh += len(lost)
        world.nodes.start(*names)
        everything = world.spread(*world.nodes.hosts)
        late = rng.sample(sorted(everything), rng.choice([0, 0, 4]))
        generation = world.engine.desired.generation + rng.choice([0, 1, 1])
        part = {p: n for p, n in everything.items() if p not in late}
        world.want(generation, world.engine.punctuations.newest, part, retain=rng.random() < 0.5)
        has_no_orphan(world)
        tick(world, rng.randint(0, 4))
        world.want(generation, world.engine.punctuations.newest, everything, retain=rng.random() < 0.3)


@pytest.mark.wide
@seeds([0], range(1, 4), 26)
def test_random_losses(own: StreamTopology, expected: Rows, tmp_path: Path, seed: int) -> None:
    world = started(own, tmp_path, "n1", "n2", "n3", "n4")
    lost_at_random(world, random.Random(seed), expected)
    comes_to_its_end(world, expected)


def comes_to_its_end(world: World, expected: Rows) -> None:
    Straggler.upto = None
    world.want(10_000, world.engine.punctuations.newest, world.spread(*world.nodes.hosts))
    world.run(lambda e: e.done)
    assert shown(world) == expected


@pytest.mark.parametrize("memory", ["64Ki", "8Ki"])
@pytest.mark.wide
def test_random_losses_on_nodes_that_are_full(
    own: StreamTopology, expected: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    """Output that nobody has stored is dropped there where its readers have applied it, so lines lie further back."""
    monkeypatch.setattr(buffers, "IN_FLIGHT", 2000)
    full = override(own, {"recovery.bufferMemory": memory, "recovery.bufferDisk": memory})
    world = started(full, tmp_path, "n1", "n2", "n3", "n4")
    lost_at_random(world, random.Random(memory), expected)
    comes_to_its_end(world, expected)


@pytest.mark.wide
def test_one_that_is_lost_in_the_same_generation_takes_everything_back(
    own: StreamTopology, expected: Rows, tmp_path: Path
) -> None:
    """Whoever orders it back alone: what it made may be shown, and would be made differently."""
    world = started(own, tmp_path, "a", "b", "c", "d")
    world.run(lambda e: e.punctuations.newest > 4 and past(14)(e))
    before = dict(world.engine.installation)
    world.nodes.lose("b")
    tick(world)
    world.nodes.start("e")
    moved = {p: "e" if n == "b" else n for p, n in world.engine.desired.assignment.items()}
    world.want(1, world.engine.punctuations.newest, moved, retain=True)
    assert not before.items() & world.engine.installation.items()
    has_no_orphan(world)
    world.want(1, world.engine.punctuations.newest, moved)
    world.run(lambda e: e.done)
    assert shown(world) == expected


@pytest.mark.wide
def test_a_damaged_snapshot_is_passed_over_and_said(
    own: StreamTopology, expected: Rows, tmp_path: Path
) -> None:
    world = started(override(own, {"checkpoint.keep": 9}), tmp_path, "a", "b", "c")
    world.run(lambda e: e.punctuations.newest > 12 and past(24)(e))
    lost = "windows.1"
    chosen = world.engine.lines._total()
    assert chosen is not None
    file = chosen[lost].file
    assert file is not None
    (world.checkpoints / file.path).write_bytes(b"damaged")
    world.nodes.lose("a", "b", "c")
    tick(world)
    world.nodes.start("d", "e")
    world.forget()
    all_back(world, "d", "e")
    tick(world, 3)
    assert any("cannot be used" in said for said in world.engine.problems)
    all_back(world, "d", "e")
    has_no_orphan(world)
    world.run(lambda e: e.done)
    assert shown(world) == expected


def drained(world: World) -> int:
    world.engine.drain.asked = True
    world.run(lambda e: e.drained is not None)
    k = world.engine.drained
    assert k is not None and k < 61
    return k


ALIGNED = {"batch.order": "aligned"}


@pytest.mark.parametrize(
    "changes",
    [
        [OWN_CLOCKS, ALIGNED, OWN_CLOCKS],
        [OWN_CLOCKS, {**OWN_CLOCKS, **ALIGNED}, OWN_CLOCKS],
        [OWN_CLOCKS, {}, OWN_CLOCKS],
    ],
    ids=["aligned", "aligned by own clocks", "rounds"],
)
@pytest.mark.wide
def test_order_and_protocol_change_where_the_stream_has_drained(
    resource: StreamTopology, expected: Rows, tmp_path: Path, changes: list[dict[str, object]]
) -> None:
    """The line is even there, so numbers of messages begin anew, whatever goes on from it."""
    world, nodes = started(resource, tmp_path, "a", "b", "c"), ("a", "b", "c")
    orders = [override(resource, change) for change in changes]
    for number, after in enumerate(orders, start=2):
        Straggler.upto = world.engine.horizon + 2
        tick(world, 3)
        Straggler.upto = None
        k = drained(world)
        world.forget()
        world.resource = after
        another_driver(world)
        require_even(after, world.engine.store, world.engine.punctuations.newest)
        world.want(number * 10, k, world.spread(*nodes))
        world.run(past(k + 1))
        if number < 4:  # everything is lost when perhaps nobody has stored itself yet
            world.nodes.lose(*nodes)
            tick(world)
            world.nodes.start(*nodes)
            all_back(world, *nodes)
            world.run(past(k + 1))
    world.run(lambda e: e.done)
    assert shown(world) == expected


@pytest.mark.parametrize("exchange", ["chained"], indirect=True)  # counts jobs
def test_lines_before_the_numbers_began_anew_are_left_out_though_the_even_line_is_replaced(
    own: StreamTopology, tmp_path: Path
) -> None:
    """While one input stands still behind a drain, the line of that name is recorded again, and is not even any more: a
    driver that begins then must not take a message of before for one of those that have its number now."""
    keeping = override(own, {"checkpoint.keep": 9})
    world, nodes = started(keeping, tmp_path, "a", "b", "c"), ("a", "b", "c")
    for upto in range(3, 9):
        Straggler.upto = upto
        tick(world, 4)
    Straggler.upto = None
    k = drained(world)
    assert world.engine.store.positions()[0] < k
    world.forget()
    another_driver(world)
    Straggler.upto = k
    world.want(20, k, world.spread(*nodes))
    for ahead in range(1, 25):
        world.engine.release.ahead = ahead
        tick(world, 2)
        if any(s.position > k for s in world.engine.lines.line.values()):
            break
    line = world.engine.lines.line
    assert world.engine.punctuations.newest == k and {k} < {s.position for s in line.values()}
    assert world.engine.store.positions()[0] < k
    another_driver(world)
    lines = world.engine.lines
    lines.begin(k)
    assert lines.line == line
    known = {s.position for known in lines.snapshots.values() for s in known}
    assert min(known - {0}) == k, "beside the state in the beginning, from where everybody goes back"
    assert world.engine.restore_point.manifest(k).numbered_from == k


@pytest.mark.wide
def test_a_line_that_an_earlier_driver_replaces_late_does_not_count(
    own: StreamTopology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen while it writes the line of a name that is there, with snapshots of what it made; its successor goes on
    from what was there, and makes the messages of these numbers in another order."""
    world, nodes = started(override(own, {"checkpoint.keep": 9}), tmp_path, "a", "b", "c"), ("a", "b", "c")
    Straggler.upto = 8
    tick(world, 10)
    while world.engine.punctuations.newest <= 6:
        Straggler.upto += 1
        tick(world)
    old, frozen = world.engine, list[Manifest]()
    name, began = old.punctuations.newest, dict(old.lines.line)

    def freezes(manifest: Manifest) -> None:
        frozen.append(manifest)
        raise StoreError("it does not answer")

    with monkeypatch.context() as held:
        held.setattr(old.store, "complete", freezes)
        for ahead in range(11, 40):
            old.release.ahead = ahead
            tick(world)
    late = [m for m in frozen if m.position == name][-1]
    files = {p: file.path for p, file in late.files.items() if file != began[p].file}
    assert any(p.startswith("parse") for p in files)
    world.nodes.lose(*nodes)
    world.nodes.start(*nodes)
    world.forget()
    another_driver(world)
    Straggler.upto, second = None, world.engine
    world.want(20, name, world.spread(*nodes))
    second.lines._next_s = float("inf")  # it records nothing before all are further

    def all_further(_: Engine) -> bool:
        total = second.lines._total()
        return total is not None and min(s.position for s in total.values()) > name

    world.run(all_further)
    second.lines._next_s = float("-inf")
    world.run(lambda e: e.punctuations.newest > name)
    with pytest.raises(SupersededError):
        old.store.complete(late)
    world.forget()
    another_driver(world)
    world.engine.lines.begin(second.punctuations.newest)
    known = world.engine.lines.snapshots
    for partition, path in files.items():
        assert path not in {s.file.path for s in known[partition] if s.file is not None}


def stored(partition: str, position: int, sent: int, taken: int | None) -> Snapshot:
    inputs = {} if taken is None else {"a.0": Heard(position, taken)}
    return Snapshot(partition, position, None, Kind.ARRIVAL, sent, sent + 1, 1, {}, None, inputs)


def test_of_one_count_are_the_lines_whose_numbers_begin_where_those_of_the_newest_do(
    own: StreamTopology,
) -> None:
    def uneven(name: int) -> dict[str, Snapshot]:
        return {
            "b.0": stored("b.0", name, name + 1, name + 1),
            "c.0": stored("c.0", name + 2, name + 2, None),
        }

    found = {name: uneven(name) for name in (3, 6, 9, 12, 15)}
    begun = {3: 0, 6: 0, 9: 9, 12: 9, 15: 9}
    kept, began = of_one_count(own, found, [3, 6, 9, 12, 15], begun)
    assert (sorted(kept), began) == ([9, 12, 15], 9)
    kept, _ = of_one_count(own, {k: found[k] for k in (3, 6, 9, 15)}, [3, 6, 9, 12, 15], begun)
    assert sorted(kept) == [15], "12 is damaged"
    even = {"b.0": stored("b.0", 18, 21, 18), "c.0": stored("c.0", 18, 30, None)}
    kept, began = of_one_count(own, {**found, 18: even}, [3, 6, 9, 12, 15, 18], {**begun, 18: 9})
    assert (sorted(kept), began) == ([18], 18)
    assert kept[18]["b.0"].sent == 18 and not kept[18]["b.0"].inputs
    kept, began = of_one_count(
        own, {**found, 18: even, 21: uneven(21)}, [15, 18, 21], {**begun, 18: 9, 21: 9}
    )
    assert (sorted(kept), began) == ([15, 18, 21], 9), "the stream went on through an even line"


@pytest.mark.wide
def test_another_order_goes_on_from_no_line_with_inputs_that_are_not_even(
    own: StreamTopology, resource: StreamTopology, tmp_path: Path
) -> None:
    world = started(own, tmp_path, "a", "b", "c")
    for upto in range(3, 16):
        Straggler.upto = upto
        tick(world, 4)
    world.run(lambda e: e.punctuations.newest > 0)
    tick(world, 2)
    newest, shown_before = world.engine.punctuations.newest, world.output()
    assert not all(s.even for s in world.engine.lines.line.values())
    require_even(own, world.engine.store, newest)
    own_aligned = override(own, {"batch.order": "aligned"})
    for other in (own_aligned, resource, override(resource, {"batch.order": "aligned"})):
        with pytest.raises(RevisionError, match=r"only `batch.order: arrival` with `checkpoint.protocol: un"):
            require_even(other, world.engine.store, newest)
        world.resource = other
        another_driver(world)
        with pytest.raises(RevisionError):
            world.want(5, newest, world.spread("a", "b", "c"))
        assert world.output() == shown_before

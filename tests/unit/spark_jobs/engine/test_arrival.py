"""`batch.order: arrival` in an engine on local nodes: what is applied when, and that whatever is lost the rows shown are
those of a run in one process without failures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.errors import CheckpointError
from reprise.spark_jobs.node.arrival import ArrivalRuntime
from reprise.spark_jobs.node.counters import APPLIED_EARLY
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import encoded
from reprise.spark_jobs.state.revision import RevisionError, Revisions, differences, revision_of
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support.engine_worlds import begun
from tests.support.straggling import Straggler
from tools.testbed.local_engine import World, past, tick, tick_with_cuts

pytestmark = pytest.mark.usefixtures("exchange")

ARRIVAL = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: arrival}
spec:
  batch: {interval: 100ms, order: arrival}
  sources:
    - name: east
      class: reprise.spark_jobs.sources:HashtagSource
      parallelism: 2
      with: {rate: 400, interval: 100ms, batches: 60, tags: 60, seed: 7}
    - name: west
      class: tests.support.straggling:Straggler
      with: {rate: 150, interval: 100ms, batches: 60, tags: 60, seed: 8}
  operators:
    - name: parse
      class: reprise.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags], select: ["hashtags AS tag", "time"]}
      inputs: [{from: east, forward: true}]
    - name: read
      class: reprise.operators:FlatMap
      with: {explode: [hashtags], select: ["hashtags AS tag", "time"]}
      inputs: [{from: west}]
    - name: all
      class: reprise.operators:Union
      parallelism: 2
      inputs: [{from: parse, by: [tag]}, {from: read, by: [tag]}]
      output: {}
    - name: windows
      class: reprise.operators:TumblingWindow
      parallelism: 3
      with: {size: 400ms, keys: [tag], aggregate: {seen: count()}}
      inputs: [{from: all, by: [tag]}]
      output: {priority: 3}
    - name: totals
      class: reprise.operators:TumblingWindow
      with: {size: 800ms, aggregate: {seen: sum(seen)}}
      inputs: [{from: windows}]
      output: {priority: 9}
    - name: meet
      class: reprise.operators:WindowedJoin
      parallelism: 2
      with: {left: parse, right: read, keys: [tag], within: 100ms}
      inputs: [{from: parse, by: [tag]}, {from: read, by: [tag]}]
      output: {}
  checkpoint: {everyBatches: 10}
  recovery: {bufferMemory: 64Ki}
  nodes: {count: 4}
"""

Rows = dict[str, Counter[bytes]]


@pytest.fixture(scope="module")
def resource() -> StreamTopology:
    return load_text(ARRIVAL)


@pytest.fixture(scope="module")
def expected(resource: StreamTopology) -> Rows:
    return definition(resource)


def definition(resource: StreamTopology) -> Rows:
    """The rows of each output partition, without their order, as the definition of the topology has them."""
    found: Rows = {}
    outputs = {o.name for o in resource.operators if o.output is not None}
    for batch in run_local(resource):
        for partition, table in batch.items():
            if partition.rpartition(".")[0] in outputs:
                lines = b"" if table is None else encoded("jsonl", table)
                found.setdefault(partition, Counter()).update(lines.splitlines())
    assert all(found.values())
    return found


@pytest.fixture(autouse=True)
def nothing_held_back() -> Iterator[None]:
    yield
    Straggler.upto = None


def shown(world: World) -> Rows:
    """The rows of the files, and that there is one file for each batch."""
    found: Rows = {p: Counter() for p in world.topology.queries}
    batches: dict[str, list[int]] = {p: [] for p in world.topology.queries}
    for name, data in sorted(world.output().items()):
        operator, index, file = name.split("/")
        found[f"{operator}.{index}"].update(data.splitlines())
        batches[f"{operator}.{index}"].append(int(file.removeprefix("batch-").removesuffix(".jsonl")))
    for partition, numbers in batches.items():
        assert numbers == list(range(1, len(numbers) + 1)), partition
    return found


AHEAD = 10
"""Batches that are under way at once."""


def started(resource: StreamTopology, folder: Path, *nodes: str) -> World:
    return begun(resource, folder, nodes, ahead=AHEAD)


def another_driver(world: World) -> None:
    newest = world.engine.punctuations.newest
    world.driver()
    world.engine.punctuations.newest, world.engine.release.ahead = newest, AHEAD


def runtimes(world: World) -> Mapping[str, ArrivalRuntime]:
    found = {p: r for h in world.nodes.hosts.values() for p, r in h.runtimes.items()}
    return {p: r for p, r in found.items() if isinstance(r, ArrivalRuntime)}


def has_newer(checkpoint: int) -> Callable[[Engine], bool]:
    return lambda e: e.punctuations.newest > checkpoint or e.done


def early(world: World) -> int:
    return sum(counted.get(APPLIED_EARLY, 0) for counted in world.engine.counters.values())


@pytest.mark.long
def test_rows_are_those_of_the_definition(resource: StreamTopology, expected: Rows, tmp_path: Path) -> None:
    world = started(resource, tmp_path, "a", "b", "c", "d")
    world.run(lambda e: e.done)
    assert shown(world) == expected
    final = world.engine.final
    assert final is not None and len(world.output()) == final * len(world.topology.queries)
    assert early(world) > 0
    assert all(r.position == final and r.frontier.position == final for r in runtimes(world).values())


@pytest.mark.wide
def test_a_fast_input_is_applied_while_a_slow_one_is_missing(
    resource: StreamTopology, expected: Rows, tmp_path: Path
) -> None:
    """And what comes of it goes on to the operators behind, whose batch is not complete either."""
    Straggler.upto = 12
    world = started(resource, tmp_path, "a", "b", "c", "d")
    tick(world, 30)
    found = runtimes(world)
    fast = [
        r.frontier.channels[u] for r in found.values() for u in r.frontier.channels if u.startswith("parse")
    ]
    assert {c.complete for c in fast} == {20}, "the marker of the next checkpoint holds them up"
    assert {found[p].position for p in ("all.0", "all.1", "meet.0", "windows.0", "totals.0")} == {12}
    behind = [
        r.frontier.channels[f"all.{k}"] for p, r in found.items() if p.startswith("windows") for k in (0, 1)
    ]
    assert all(c.complete == 12 for c in behind) and any(c.taken > found["all.0"].marker[12] for c in behind)
    ahead = [t for r in (found["all.0"], found["all.1"]) for t in [(r.staged or {}).get(13)] if t is not None]
    east = max(t["time"].to_pylist()[-1] for t in ahead)
    assert east >= 19 * 100_000, "rows of batch 20 are applied"
    assert max(b for p in found.values() for b in p.staged or {12: None}) <= 13
    Straggler.upto = None
    world.run(lambda e: e.done)
    assert shown(world) == expected


def test_aligned_partitions_wait_for_the_slow_input(resource: StreamTopology, tmp_path: Path) -> None:
    """The same in the other order: the test above does not pass by itself."""
    Straggler.upto = 12
    world = started(override(resource, {"batch.order": "aligned"}), tmp_path, "a", "b", "c", "d")
    tick(world, 30)
    hosted = {p: r for h in world.nodes.hosts.values() for p, r in h.runtimes.items()}
    assert not any(isinstance(r, ArrivalRuntime) for r in hosted.values())
    waiting = hosted["all.0"]
    assert isinstance(waiting, OperatorRuntime) and waiting.position == 12
    assert max(waiting.inbox["parse.0"]) > 13 and waiting.staged is None
    assert early(world) == 0 and world.engine.arrival.order is None
    assert world.engine.progress.deterministic


@pytest.mark.wide
def test_no_checkpoint_has_rows_of_later_batches(
    resource: StreamTopology, expected: Rows, tmp_path: Path
) -> None:
    """Everything up to a checkpoint is shown with it and nothing else: a prefix of the definition, to the row."""
    Straggler.upto = 22
    world = started(resource, tmp_path, "a", "b", "c", "d")
    world.run(lambda e: e.punctuations.newest == 20)
    tick(world, 20)
    assert world.engine.punctuations.newest == 20
    so_far = {p: Counter[bytes]() for p in expected}
    for batch in run_local(resource, 20):
        for p, rows in so_far.items():
            if (table := batch[p]) is not None:
                rows.update(encoded("jsonl", table).splitlines())
    assert shown(world) == so_far
    assert len(world.output()) == 20 * len(world.topology.queries)


@pytest.mark.wide
def test_orders_change_with_an_incident(resource: StreamTopology, expected: Rows, tmp_path: Path) -> None:
    world = started(resource, tmp_path, "a", "b", "c", "d")
    orders = [world.engine.arrival.order]

    def noted(engine: Engine) -> Engine:
        if engine.arrival.order != orders[-1]:
            orders.append(engine.arrival.order)
        return engine

    world.run(lambda e: noted(e).punctuations.newest >= 20)
    assert early(world) > 0
    k = world.engine.punctuations.newest
    Straggler.upto = k + 12
    world.nodes.lose("c", "d")
    part = {p: n for p, n in world.spread("a", "b", "c", "d").items() if n in ("a", "b")}
    world.want(2, k, part, retain=True)
    tick(world, 5)
    noted(world.engine)
    assert not world.engine.counters.keys() - part.keys(), "who goes back and waits for room counts nothing"
    assert early(world) == 0
    world.nodes.start("e", "f")
    whole = {**world.spread("e", "f"), **part}
    world.want(2, k, whole, retain=True)
    world.run(lambda e: past(k + 12)(noted(e)))
    tick(world, 3)
    assert all(r.ordered and r.early == 0 for r in runtimes(world).values())
    assert all(r.sent == r.position for r in runtimes(world).values()), "one message a batch"
    world.want(2, k, whole)
    tick(world, 5)
    assert early(world) > 0
    Straggler.upto = None
    world.run(lambda e: noted(e).done)
    assert orders == [None, "arrival", "aligned", "arrival"]
    assert shown(world) == expected


@pytest.mark.wide
def test_an_incident_that_begins_with_uneven_inputs(
    resource: StreamTopology, expected: Rows, tmp_path: Path
) -> None:
    """A partition that has applied one input further than another goes on aligned without a rollback, as before a move."""
    Straggler.upto = 12
    world = started(resource, tmp_path, "a", "b")
    tick(world, 20)
    uneven = {
        p for p, r in runtimes(world).items() if len({c.complete for c in r.frontier.channels.values()}) > 1
    }
    assert uneven >= {"all.0", "all.1", "meet.0", "meet.1"}
    world.want(1, 0, world.spread("a", "b"), retain=True)
    Straggler.upto = 17
    tick(world, 20)
    assert {runtimes(world)[p].position for p in uneven} == {17}
    assert {c.complete for p in uneven for c in runtimes(world)[p].frontier.channels.values()} == {17, 20}
    world.want(1, 0, world.spread("a", "b"))
    Straggler.upto = None
    world.run(lambda e: e.done)
    assert shown(world) == expected


@pytest.mark.wide
def test_nobody_goes_back_alone(resource: StreamTopology, expected: Rows, tmp_path: Path) -> None:
    world = started(resource, tmp_path, "a", "b", "c", "d")
    world.run(lambda e: e.punctuations.newest >= 20)
    k = world.engine.punctuations.newest
    assert not world.engine.progress.deterministic
    world.nodes.lose("b")
    moved = {p: "a" if n == "b" else n for p, n in world.engine.desired.assignment.items()}
    with pytest.raises(
        CheckpointError, match="cannot go back alone: in generation 1 input was applied in the order"
    ):
        world.want(1, k, moved)
    with pytest.raises(
        CheckpointError, match=r"does not go back behind checkpoint 20, .*: input is applied as it arrives"
    ):
        world.want(2, 10, moved)
    world.want(2, k, moved)
    world.run(lambda e: e.done)
    assert shown(world) == expected


@pytest.mark.wide
def test_what_failed_on_a_node_that_goes_on_waits_until_all_go_back(
    resource: StreamTopology, expected: Rows, tmp_path: Path
) -> None:
    """As when an executor dies alone: the next desired state has its partitions on the same node, and must be taken over,
    as the coordinator decides nothing before that is said."""
    world = started(resource, tmp_path, "a", "b", "c", "d")
    world.run(lambda e: e.punctuations.newest >= 20)
    k, same = world.engine.punctuations.newest, dict(world.engine.desired.assignment)
    lost = {p for p, node in same.items() if node == "b"}
    world.nodes.lose("b")
    tick(world)
    world.nodes.start("b")
    world.want(1, 0, same)
    tick(world, 3)
    assert world.engine.failed.keys() == lost and not lost & world.engine.positions.keys()
    world.want(2, k, same)
    world.run(lambda e: e.done)
    assert shown(world) == expected


@pytest.mark.wide
def test_a_late_partition_begins_at_the_checkpoint_of_its_generation(
    resource: StreamTopology, expected: Rows, tmp_path: Path
) -> None:
    """Its upstreams apply in the order of arrival meanwhile; what they have sent since is kept for it."""
    world = World(override(resource, {"recovery.bufferMemory": "16Mi"}), tmp_path, "w")
    world.nodes.start("a", "b")
    everything = world.spread("a", "b")
    late = {"windows.1", "totals.0", "meet.1"}
    world.want(1, 0, {p: n for p, n in everything.items() if p not in late})
    world.run(lambda e: e.positions["all.0"] >= 15)
    assert runtimes(world)["all.0"].sent > 15
    world.want(1, 0, everything)
    world.run(lambda e: e.done)
    assert shown(world) == expected


def loses_at_random(world: World, rng: random.Random) -> None:
    """Nodes at any stage, jobs, drivers, a straggler that comes and goes; incidents with and without aligned order.  `world`
    was started on four nodes; at the end the stream has ended."""
    generation, fresh = 1, 4
    for _ in range(7):
        Straggler.upto = rng.choice([None, world.engine.horizon + rng.randint(0, 12)])
        tick_with_cuts(world, rng, rng.randint(1, 8))
        k, before = world.engine.punctuations.newest, world.engine.desired.assignment
        generation += 1
        if rng.random() < 0.2:
            another_driver(world)
            world.want(generation, k, world.spread(*world.nodes.hosts))
            continue
        lost = rng.sample(list(world.nodes.hosts), rng.randint(1, 2))
        world.nodes.lose(*lost)
        left, retain = {p: n for p, n in before.items() if n not in lost}, rng.random() < 0.6
        if retain:  # in parts, without another rollback
            world.want(generation, k, left, retain=True)
            tick(world, rng.randint(0, 4))
        else:
            left = {}
        names = [f"n{fresh + 1 + i}" for i in range(len(lost))]
        fresh += len(lost)
        world.nodes.start(*names)
        world.want(generation, k, {**world.spread(*world.nodes.hosts), **left}, retain=retain)
        if retain:
            Straggler.upto = None
            world.run(has_newer(k))
            world.want(generation, k, world.engine.desired.assignment)
    Straggler.upto = None
    world.run(lambda e: e.done)


def test_the_order_does_not_change_behind_batches_that_may_be_shown(
    resource: StreamTopology, tmp_path: Path
) -> None:
    aligned = override(resource, {"batch.order": "aligned"})
    assert [found.path for found in differences(aligned, resource)] == ["batch.order"]
    assert differences(aligned, aligned) == []
    world = started(aligned, tmp_path, "a", "b", "c")
    location = str(world.checkpoints)
    before = Revisions(location, revision_of(aligned), world.fence)
    assert before.begin(0, 0, False, list) == ""
    world.run(past(15))
    another_driver(world)
    after = Revisions(location, revision_of(resource), world.fence)
    with pytest.raises(RevisionError):
        after.begin(world.engine.punctuations.newest, world.engine.ledger.written, False, list)

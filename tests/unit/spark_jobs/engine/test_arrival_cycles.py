"""Cycles in the order of arrival in an engine on local nodes: what goes round is one batch further each time, checkpoints
have what is under way, and whatever is lost the rows shown are those of a run in one process without failures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from reprise.spark_jobs.engine import local_lines
from reprise.spark_jobs.engine.savepoints import SavepointTaker
from reprise.spark_jobs.node.channels import CHANNELS
from reprise.spark_jobs.node.state_tables import FEEDBACK
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.state.savepoints import Savepoints
from reprise.spark_jobs.topology import StreamTopology, load_text, load_topology, override
from tests.support.straggling import Straggler
from tests.unit.spark_jobs.engine import test_arrival
from tests.unit.spark_jobs.engine.test_arrival import (
    AHEAD,
    Rows,
    another_driver,
    definition,
    early,
    runtimes,
    shown,
    started,
)
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange")

nothing_held_back = test_arrival.nothing_held_back
"""A fixture."""

BATCHES, QUIET, LAPS = 44, 16, 3
GOES_ROUND = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: laps}
spec:
  batch: {interval: 100ms, order: arrival}
  sources:
    - name: east
      class: tests.support.cycles:Quiet
      parallelism: 2
      with: {rate: 200, interval: 100ms, batches: 44, quiet: 16, tags: 40, seed: 7}
    - name: west
      class: tests.support.cycles:QuietStraggler
      with: {rate: 80, interval: 100ms, batches: 44, quiet: 16, tags: 40, seed: 8}
  operators:
    - name: parse
      class: reprise.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags], select: ["hashtags AS tag", time, "3 AS laps"]}
      inputs: [{from: east, forward: true}]
    - name: read
      class: reprise.operators:FlatMap
      with: {explode: [hashtags], select: ["hashtags AS tag", time, "3 AS laps"]}
      inputs: [{from: west}]
    - name: round
      class: reprise.operators:Union
      parallelism: 2
      inputs: [{from: parse, by: [tag]}, {from: back, by: [tag], feedback: true}, {from: read, by: [tag]}]
      output: {priority: 3}
    # Goes on with the rows that have laps left, in other partitions than they came from.
    - name: back
      class: reprise.operators:Map
      parallelism: 3
      with: {select: [tag, time, "laps - 1 AS laps"], where: laps > 0}
      inputs: [{from: round, by: [time]}]
    - name: counted
      class: tests.support.cycles:Nth
      deterministic: true
      parallelism: 2
      inputs: [{from: back, by: [tag]}]
      output: {priority: 9}
  checkpoint: {everyBatches: 5}
  recovery: {bufferMemory: 1Mi}
  nodes: {count: 4}
"""


def reachability() -> StreamTopology:
    """The cyclic query of the examples, on a graph that grows and comes to rest."""
    resource, changes = load_topology("examples/reachability.yaml"), dict[str, object]()
    graph = {"rate": 8, "nodes": 60, "interval": "500ms", "batches": BATCHES, "quiet": QUIET, "seed": 3}
    for kind in ("links", "sources", "deletes"):
        changes[f"sources[{kind}].class"] = "tests.support.cycles:Growing"
        changes[f"sources[{kind}].with"] = {"kind": kind, **graph}
    return override(
        resource,
        {
            **changes,
            "batch": {"interval": "100ms", "order": "arrival"},
            "checkpoint": {"everyBatches": 5},
            "recovery.bufferMemory": "1Mi",
        },
    )


Case = tuple[StreamTopology, Rows]


@pytest.fixture(scope="module", params=["laps", "reachability"])
def case(request: pytest.FixtureRequest) -> Case:
    """A topology with a cycle, and its rows."""
    resource = load_text(GOES_ROUND) if request.param == "laps" else reachability()
    return resource, comes_to_rest(resource)


@pytest.fixture(scope="module")
def laps() -> Case:
    resource = load_text(GOES_ROUND)
    return resource, comes_to_rest(resource)


def comes_to_rest(resource: StreamTopology) -> Rows:
    """The rows of its definition, where nothing goes round any more at the end: else they are not the same in each order."""
    *_, last = run_local(resource)
    assert not any(table is not None and table.num_rows for table in last.values())
    return definition(resource)


@pytest.mark.wide
def test_what_goes_round_waits_for_an_input_that_stands_still(laps: Case, tmp_path: Path) -> None:
    """While work on other inputs from outside goes on up to the next checkpoint."""
    resource, expected = laps
    Straggler.upto = 12
    world = started(resource, tmp_path, "a", "b", "c", "d")
    world.engine.release.ahead = 4  # no punctuation is passed over
    world.run(past(12))
    tick(world, 10)
    found = {p: r for p, r in runtimes(world).items() if p.startswith(("round", "back"))}
    assert {r.position for r in found.values()} == {12}
    outside = {p: found[p].frontier.channels for p in ("round.0", "round.1")}
    fast = {channels[f"parse.{k}"].complete for channels in outside.values() for k in (0, 1)}
    assert fast == {15}, "the marker of the next checkpoint holds them up"
    cyclic = [c for r in found.values() for c in r.frontier.channels.values() if c.cyclic]
    assert {c.complete for c in cyclic} == {12, 13}
    sent = {p: r.sent for p, r in found.items()}
    tick(world, 30)
    assert {p: r.sent for p, r in found.items()} == sent
    Straggler.upto = None
    world.run(lambda e: e.done)
    assert shown(world) == expected
    is_one_lap_further_with_each_batch(world)


def is_one_lap_further_with_each_batch(world: World) -> None:
    """What has laps left in one batch of `round` is in the next one, and nothing else has been round there."""
    batches: dict[str, Counter[tuple[object, ...]]] = {}
    for name, data in world.output().items():
        if name.startswith("round"):
            rows = map(row_of, map(json.loads, data.splitlines()))
            batches.setdefault(name.rpartition("/")[2], Counter()).update(rows)
    in_order = [rows for _, rows in sorted(batches.items())]
    assert len(in_order) == BATCHES + 1
    for before, after in pairwise(in_order):
        goes_on = Counter({(tag, time, laps - 1): n for (tag, time, laps), n in before.items() if laps})  # type: ignore[operator]
        assert Counter({row: n for row, n in after.items() if row[2] != LAPS}) == goes_on


@pytest.mark.wide
def test_a_checkpoint_has_the_rows_of_its_batch_that_go_round(laps: Case, tmp_path: Path) -> None:
    """All that was made of the last batch, in however many messages, and nothing else."""
    resource, _ = laps
    Straggler.upto = 14
    world = started(resource, tmp_path, "a", "b", "c", "d")
    world.engine.release.ahead = 4
    world.run(past(14))
    tick(world, 10)
    Straggler.upto = 15
    world.run(lambda e: e.punctuations.newest == 15)
    back = [r for p, r in runtimes(world).items() if p.startswith("back")]
    assert any(r.marker[15] - r.marker[14] > 1 for r in back)
    under_way = Counter[tuple[object, ...]]()
    for name, table in stored(world, 15):
        if name.startswith(FEEDBACK):
            under_way.update(map(row_of, table.to_pylist()))
    tick(world, 2)
    files = [data for name, data in world.output().items() if name.startswith("round") and "00000015" in name]
    made = [json.loads(line) for data in files for line in data.splitlines()]
    goes_on = [row | {"laps": row["laps"] - 1} for row in made if row["laps"]]
    assert len(files) == 2 and goes_on and under_way == Counter(map(row_of, goes_on))


def row_of(row: Mapping[str, object]) -> tuple[object, ...]:
    return row["tag"], row["time"], row["laps"]


def stored(world: World, checkpoint: int) -> Iterator[tuple[str, pa.Table]]:
    """All tables of a checkpoint."""
    store = world.engine.store
    for snapshot in store.manifest(checkpoint).snapshots.values():
        if snapshot.file is not None:
            yield from store.read_state(snapshot.file).items()


@pytest.mark.wide
@pytest.mark.parametrize(
    "lost", [("b",), ("b", "c"), ("a", "b", "c", "d"), ()], ids=["one", "two", "all", "driver"]
)
def test_everything_goes_back_to_the_checkpoint(case: Case, tmp_path: Path, lost: tuple[str, ...]) -> None:
    resource, expected = case
    Straggler.upto = 12
    world = started(resource, tmp_path, "a", "b", "c", "d")
    for upto in (12, 18, 23):
        Straggler.upto = upto
        world.run(past(upto))
        tick(world, 3)
        k = world.engine.punctuations.newest
        assert k >= upto - 10
        world.nodes.lose(*lost)
        world.nodes.start(*lost)
        if not lost:
            another_driver(world)
        world.want(world.engine.desired.generation + 1, k, world.spread("a", "b", "c", "d"))
    Straggler.upto = None
    world.run(lambda e: e.done)
    assert shown(world) == expected


@pytest.mark.wide
def test_an_incident_with_a_part_of_the_cycle(case: Case, tmp_path: Path) -> None:
    """Those that are lost come back later, in aligned order, and are sent what was kept for them."""
    resource, expected = case
    world = started(override(resource, {"recovery.bufferMemory": "16Mi"}), tmp_path, "a", "b", "c", "d")
    Straggler.upto = 18
    world.run(past(18))
    tick(world, 3)
    k, whole = world.engine.punctuations.newest, world.spread("a", "b", "c", "d")
    world.nodes.lose("c", "d")
    left = {p: n for p, n in whole.items() if n in ("a", "b")}
    world.want(2, k, left, retain=True)
    tick(world, 5)
    world.nodes.start("e", "f")
    world.want(2, k, {**world.spread("e", "f"), **left}, retain=True)
    Straggler.upto = 24
    world.run(past(22))
    assert all(r.ordered and r.sent == r.position for r in runtimes(world).values()), "one message a batch"
    world.want(2, k, world.engine.desired.assignment)
    Straggler.upto = None
    world.run(lambda e: e.done)
    assert early(world) > 0
    assert shown(world) == expected


@pytest.mark.wide
def test_a_late_partition_of_the_cycle_begins_at_the_checkpoint_of_its_generation(
    laps: Case, tmp_path: Path
) -> None:
    """Those that it reads over the feedback edge go on as far as they can meanwhile."""
    resource, expected = laps
    world = World(override(resource, {"recovery.bufferMemory": "16Mi"}), tmp_path, "w")
    world.engine.release.ahead = AHEAD
    world.nodes.start("a", "b")
    everything = world.spread("a", "b")
    world.want(1, 0, {p: n for p, n in everything.items() if p not in {"round.1", "back.2", "counted.0"}})
    tick(world, 15)
    assert runtimes(world)["round.0"].position == 1, "it awaits what comes back of batch 1"
    world.want(1, 0, everything)
    world.run(lambda e: e.done)
    assert shown(world) == expected


@pytest.mark.wide
@pytest.mark.parametrize(
    ("protocol", "log"),
    [
        ("uncoordinated", "memory"),
        ("uncoordinated", "checkpointed"),
        ("communication-induced", "checkpointed"),
    ],
)
def test_order_and_protocol_change_together_with_rows_under_way(
    laps: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, log: str
) -> None:
    """What is on record of a feedback edge is whole messages then, with what these said in that protocol."""
    monkeypatch.setattr(local_lines, "RECORD_S", 0.0)
    resource, expected = laps
    before = override(
        resource, {"batch.order": "aligned", "checkpoint.protocol": protocol, "checkpoint.log": log}
    )
    world = started(before, tmp_path, "a", "b", "c")
    world.engine.release.ahead = 3
    world.run(lambda e: e.horizon >= 12)
    world.engine.drain.asked = True
    world.run(lambda e: e.drained is not None)
    drained = world.engine.drained
    assert drained is not None and drained < BATCHES
    assert any(name == CHANNELS and table.num_rows for name, table in stored(world, drained))
    world.resource = resource
    another_driver(world)
    for generation in (2, 3):
        world.want(generation, world.engine.punctuations.newest, world.spread("a", "b", "c"))
        world.run(past(drained + 3))
        world.nodes.lose("a", "b", "c")
        world.nodes.start("a", "b", "c")
    world.want(4, world.engine.punctuations.newest, world.spread("a", "b", "c"))
    world.run(lambda e: e.done)
    assert shown(world) == expected


@pytest.mark.wide
@pytest.mark.parametrize("order", ["arrival", "aligned"])
def test_another_topology_goes_on_from_a_savepoint_of_it(laps: Case, tmp_path: Path, order: str) -> None:
    resource, expected = laps
    first = started(resource, tmp_path, "a", "b", "c")
    first.run(past(2))  # on a slow machine the stream would be over before a later wish is carried out
    taker, wish = SavepointTaker(first.engine, first.fence), SavepointWish("before", "w1")
    for _ in range(2000):
        tick(first)
        taker.turn([wish])
        if taker.now is not None and wish.id in taker.now.done:
            break
    assert taker.now is not None and taker.now.done[wish.id] == ""
    savepoint = Savepoints(str(first.checkpoints)).read("before")
    assert 2 <= savepoint.position < BATCHES
    start = {"location": str(first.checkpoints), "savepoint": "before"}
    second = World(
        override(resource, {"checkpoint.startFrom": start, "batch.order": order}), tmp_path, "second"
    )
    second.nodes.start("x", "y")
    second.engine.begin(savepoint.position)
    second.want(1, savepoint.position, second.spread("x", "y"))
    second.run(lambda e: e.done)
    first.run(lambda e: e.done)
    together = {p: Counter[bytes]() for p in expected}
    for world, wanted in (
        (first, lambda b: b <= savepoint.position),
        (second, lambda b: b > savepoint.position),
    ):
        for name, data in world.output().items():
            operator, index, file = name.split("/")
            if wanted(int(file.removeprefix("batch-").removesuffix(".jsonl"))):
                together[f"{operator}.{index}"].update(data.splitlines())
    assert together == expected

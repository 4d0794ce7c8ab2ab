"""The engine and the hosts without Spark: whatever is lost, the sink output is what it would have been."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.errors import CheckpointError, DamagedError, StoreError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import StreamTopology, load_text
from tests.support.engine_worlds import begun, fault_free, still_shown
from tests.support.hashtags import counting
from tests.support.seeds import seeds
from tools.testbed.local_engine import World, past, tick, tick_with_cuts

DIAMOND = counting(
    "diamond",
    """
    - name: parse
      class: reprise.spark_jobs.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags], select: ["hashtags AS tag"]}
      inputs: [{from: tweets, forward: true}]
    - name: count
      class: reprise.spark_jobs.operators:KeyedCount
      parallelism: 3
      with: {keys: [tag]}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 3}
    - name: top
      class: reprise.spark_jobs.operators:TopK
      with: {by: count, k: 5, keys: [tag]}
      inputs: [{from: count}]
      output: {priority: 9}
""",
    rate=400,
    tags=200,
    memory="64Ki",
)


@pytest.fixture(scope="module", params=["diamond", pytest.param("feedback", marks=pytest.mark.wide)])
def resource(request: pytest.FixtureRequest) -> StreamTopology:
    if request.param == "diamond":
        return load_text(DIAMOND)
    return load_text(Path("examples/feedback.yaml").read_text())


@pytest.fixture(scope="module")
def expected(resource: StreamTopology, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    output = fault_free(begun(resource, tmp_path_factory.mktemp("fault-free"), "abcd"))
    assert any(output.values())
    return output


@pytest.fixture
def world(resource: StreamTopology, tmp_path: Path) -> World:
    return begun(resource, tmp_path, "abcd")


def test_two_nodes_lost_then_restored_one_by_one(world: World, expected: dict[str, bytes]) -> None:
    world.run(lambda e: past(25)(e) and e.punctuations.newest >= 10)
    k = world.engine.punctuations.newest
    assert k >= 10
    before = world.engine.desired.assignment
    world.nodes.lose("c", "d")
    survivors = {p: n for p, n in before.items() if n in ("a", "b")}
    world.want(2, k, survivors, retain=True)
    for _ in range(8):
        world.run(lambda e: True)
        tick(world)
    world.nodes.start("e")
    part = {**survivors, **{p: "e" for p in list(before)[::2] if p not in survivors}}
    world.want(2, k, part, retain=True)
    tick(world, 8)
    world.nodes.start("f")
    world.want(2, k, {**dict.fromkeys(before, "f"), **part}, retain=True)
    world.run(lambda e: e.punctuations.newest > k)
    world.want(2, k, world.engine.desired.assignment, retain=False)
    world.run(lambda e: e.done)
    assert world.output() == expected


def test_node_lost_in_the_middle_of_a_job(world: World, expected: dict[str, bytes]) -> None:
    world.run(past(22))

    def fail(job: int, stage: int, slot: int) -> None:
        if stage == 1 and slot == 2:
            raise ChainError("power cut")

    world.nodes.interrupt = fail
    tick(world)
    assert world.engine.failures == 1
    world.nodes.interrupt = lambda *_: None
    world.run(lambda e: e.done)  # nobody's state was lost: the job's messages are sent again
    assert world.output() == expected


def test_driver_restart_goes_on_from_the_checkpoint(world: World, expected: dict[str, bytes]) -> None:
    world.run(past(31))
    k = world.engine.punctuations.newest
    world.driver()
    world.engine.punctuations.newest = k
    world.want(2, k, world.spread("b", "c", "d"))
    world.run(lambda e: e.done)
    assert world.output() == expected


def test_a_store_that_goes_away_while_the_stream_goes_back_changes_nothing(
    world: World, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions that are ordered and not installed yet: they are still installed from where the desired state says."""
    world.run(lambda e: e.punctuations.newest >= 10)
    newest = world.engine.punctuations.newest
    world.want(2, newest, world.spread("a", "b", "c", "d"))
    before = dict(world.engine.restore_point.installs)
    assert world.engine.installing and any(install.file for install in before.values())

    def away(after: int) -> None:
        raise StoreError("cannot remove a manifest: the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "withdraw", lambda _, after: away(after))
        with pytest.raises(StoreError):
            world.want(3, 0, world.spread("b", "c", "d", "a"))
    assert world.engine.desired.generation == 2
    world.run(lambda e: e.done)
    assert world.output() == expected


def test_host_that_lost_its_state_is_noticed(world: World) -> None:
    world.run(past(15))
    world.nodes.lose("b")
    world.nodes.start("b")  # the same node with an empty host
    tick(world)
    assert world.engine.failures == 1, "it cannot work from what changed since orders that it never got"
    tick(world)
    lost = [p for p, n in world.engine.desired.assignment.items() if n == "b"]
    assert {world.engine.failed[p].kind for p in lost} == {FailureKind.STATE_LOST}
    # An empty host is told to install from the checkpoint of the desired state; it must not pretend to be further.
    assert all(world.engine.positions.get(p, 0) < 15 for p in lost)


@seeds(range(1), range(1, 5), 7)
def test_random_losses(
    resource: StreamTopology, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    """Losses, job failures, partial plans and driver restarts in random order."""
    rng = random.Random(seed)
    world = World(resource, tmp_path, "w")
    names = ["n1", "n2", "n3", "n4"]
    world.nodes.start(*names)
    world.want(1, 0, world.spread(*names))
    generation, fresh = 1, 4
    for _ in range(6):
        tick_with_cuts(world, rng, rng.randint(1, 6))
        k = world.engine.punctuations.newest
        desired = world.engine.desired
        if rng.random() < 0.2:
            world.driver()
            world.engine.punctuations.newest = k
            generation += 1
            world.want(generation, k, world.spread(*world.nodes.hosts))
            continue
        lost = rng.sample(list(world.nodes.hosts), rng.randint(1, 2))
        world.nodes.lose(*lost)
        survivors = {p: n for p, n in desired.assignment.items() if n not in lost}
        if not desired.retain:
            generation += 1
            base = k
        else:
            base = desired.checkpoint
        world.want(generation, base, survivors, retain=True)
        tick(world, rng.randint(0, 4))
        for _ in lost:
            fresh += 1
            world.nodes.start(f"n{fresh}")
            missing = [p for p in world.topology.order if p not in world.engine.desired.assignment]
            some = rng.sample(missing, rng.randint(0, len(missing)))
            world.want(
                generation,
                base,
                {**world.engine.desired.assignment, **dict.fromkeys(some, f"n{fresh}")},
                True,
            )
            tick(world, rng.randint(0, 4))
        rest = [p for p in world.topology.order if p not in world.engine.desired.assignment]
        world.want(
            generation, base, {**world.engine.desired.assignment, **dict.fromkeys(rest, f"n{fresh}")}, True
        )
        # as the coordinator does: only a checkpoint that all have reached ends the buffering, not one from before the loss
        newest, reached = world.engine.punctuations.newest, min(world.engine.positions.values())
        if rng.random() < 0.5 and base < newest <= reached:
            world.want(generation, base, world.engine.desired.assignment, retain=False)
    world.run(lambda e: e.done)
    assert world.output() == expected


COIN = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: coin}
spec:
  batch: {interval: 100ms}
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource",
        with: {rate: 100, interval: 100ms, batches: 45, tags: 9}}
  operators:
    - name: toss
      class: tests.support.coin:Toss
      deterministic: false
      inputs: [{from: tweets}]
    - name: total
      class: tests.support.coin:Total
      inputs: [{from: toss}]
      output: {}
  checkpoint: {everyBatches: 10}
  nodes: {count: 2}
"""


def test_output_that_a_replay_could_change_appears_with_its_checkpoint(tmp_path: Path) -> None:
    world = begun(COIN, tmp_path, "ab")
    world.run(
        lambda e: e.punctuations.newest >= 10
    )  # stored by a thread of its own, so not at any given batch
    k = world.engine.punctuations.newest
    tick(world)
    shown = world.output()
    assert k >= 10
    assert 0 < len(shown) <= world.engine.punctuations.newest
    world.nodes.lose("b")
    world.nodes.start("c")
    world.want(2, world.engine.punctuations.newest, world.spread("a", "c"), retain=True)
    world.run(lambda e: e.done)
    after = world.output()
    assert {name: after[name] for name in shown} == shown
    rows = [json.loads(data) for _, data in sorted(after.items()) if data]
    assert len(after) == world.engine.final
    # Each total is the one before plus its own toss: what is shown tells one story, although tosses were repeated.
    assert len(rows) > 40
    assert all(b["total"] == a["total"] + b["toss"] for a, b in pairwise(rows))


def test_nothing_goes_back_behind_output_that_is_shown_and_could_come_out_differently(tmp_path: Path) -> None:
    """A coordinator that decides on an old report names the checkpoint before the newest."""
    world = begun(COIN, tmp_path, "ab", ahead=3)
    world.run(lambda e: e.punctuations.newest >= 20)
    tick(world)
    *_, older, newest = world.engine.store.positions()
    with pytest.raises(CheckpointError, match=f"behind checkpoint {newest}, whose output is shown"):
        world.want(2, older, world.spread("a", "b"))
    assert world.engine.bad_checkpoints == {older}  # so the coordinator chooses another
    assert world.engine.desired.generation == 1
    world.want(2, newest, world.spread("a", "b"))
    world.run(lambda e: e.done)
    assert len(world.output()) == world.engine.final


def test_a_store_that_is_away_while_the_newest_is_damaged_condemns_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = begun(COIN, tmp_path, "ab", ahead=3)
    world.run(lambda e: e.punctuations.newest >= 20)
    *_, older, newest = world.engine.store.positions()
    (manifest,) = (world.checkpoints / f"cp-{newest:08d}").glob("COMPLETE*")
    manifest.write_text("{")
    world.forget()

    def away(_: object) -> list[int]:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "positions", away)
        with pytest.raises(DamagedError):
            world.want(2, newest, world.spread("a", "b"))
        assert "away" in world.engine.problems
        with pytest.raises(StoreError):
            world.want(2, older, world.spread("a", "b"))
    assert world.engine.bad_checkpoints == {newest}
    world.want(2, older, world.spread("a", "b"))
    assert world.engine.desired.checkpoint == older


def test_a_new_driver_that_has_nothing_to_install_yet_condemns_no_checkpoint(tmp_path: Path) -> None:
    world = begun(COIN, tmp_path, "ab", ahead=3)
    world.run(lambda e: e.punctuations.newest >= 10)
    engine = world.driver()
    newest = engine.punctuations.newest
    world.want(1, 0, {})
    assert (engine.bad_checkpoints, engine.punctuations.newest) == (set(), newest)


def test_a_drain_ends_when_output_is_shown_and_not_when_its_checkpoint_is_complete(tmp_path: Path) -> None:
    world = begun(COIN, tmp_path, "ab", ahead=3)
    world.run(lambda e: e.punctuations.newest >= 10)
    engine = world.driver()  # the one before has shown nothing of what its last checkpoint covers
    newest = engine.punctuations.newest
    engine.begin(newest)
    engine.drain.asked, engine.drain.shown_by = True, 0
    tick(world)
    assert engine.drained is None
    world.want(1, newest, world.spread("a", "b"))
    world.run(lambda e: e.drained is not None)
    assert engine.drained is not None
    assert len(world.output()) == engine.drained


def test_output_that_was_held_back_is_shown_by_code_that_holds_nothing_back(tmp_path: Path) -> None:
    world = begun(COIN, tmp_path, "ab", ahead=3)
    world.run(lambda e: e.punctuations.newest >= 10)
    shown = len(world.output())
    world.resource = load_text(COIN.replace("deterministic: false", "deterministic: true"))
    engine = world.driver()
    newest = engine.punctuations.newest
    assert shown < newest
    world.want(1, newest, world.spread("a", "b"))
    world.run(lambda e: e.done)
    assert len(world.output()) == engine.final


def test_where_the_newest_is_damaged_the_one_before_serves_and_what_differs_is_said(tmp_path: Path) -> None:
    world = begun(COIN, tmp_path, "ab", ahead=3)
    complete = world.engine.store.positions
    world.run(lambda _: len(complete()) > 1 and len(world.output()) >= complete()[-1])
    *_, older, newest = world.engine.store.positions()
    shown = world.output()
    (manifest,) = (world.checkpoints / f"cp-{newest:08d}").glob("COMPLETE*")
    manifest.write_text("{")
    world.forget()
    with pytest.raises(DamagedError):
        world.want(2, newest, world.spread("a", "b"))
    world.want(3, older, world.spread("a", "b"))
    world.run(lambda e: any("not identical" in problem for problem in e.problems) or e.done)
    still_shown(world, shown)
    assert any("not identical" in problem for problem in world.engine.problems)

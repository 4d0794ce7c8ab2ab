"""Losses after which nobody who lives goes back: survivors send what they have kept, and the output stays as it is."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from reprise.algorithms.positions import Origin
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support.engine_worlds import begun
from tests.support.losses import dies
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, tick

FEEDBACK = Path(__file__).parents[4] / "examples/feedback.yaml"
BATCHES = 40


def resource_of(text: str, **recovery: str) -> StreamTopology:
    changes: dict[str, object] = {f"recovery.{name}": value for name, value in recovery.items()}
    return override(load_text(text), {"sources[tweets].with.batches": BATCHES, **changes})


def in_the_middle(world: World) -> int:
    """Some batches behind a checkpoint, whose number it returns, in normal running and with some in flight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 3)
        world.run(lambda e: e.punctuations.newest >= 10 and not e.punctuations.open)
        newest = world.engine.punctuations.newest
        world.run(lambda e: e.horizon > newest + 4 and not e.punctuations.open)
    assert world.engine.punctuations.newest == newest
    return newest


def installed(world: World) -> dict[str, str]:
    return {p: i for host in world.nodes.hosts.values() for p, i in host.installed.items()}


def lose(world: World, *nodes: str) -> dict[str, str]:
    """What remains assigned when these nodes are gone, and the engine has noticed."""
    world.nodes.lose(*nodes)
    tick(world)
    assignment = world.engine.desired.assignment
    return {p: node for p, node in assignment.items() if node not in nodes}


def to_the_end(world: World, newest: int) -> None:
    """The incident is closed by a newer checkpoint, as the coordinator does, and the stream ends."""
    desired = world.engine.desired
    world.want(desired.generation, newest, desired.assignment, retain=True, lines=desired.lines)
    world.run(lambda e: e.punctuations.newest > newest)
    newer = world.engine.punctuations.newest
    lines = {p: Origin(o.generation, newer) for p, o in desired.lines.items()}
    world.want(desired.generation, newer, desired.assignment, lines=lines)
    world.run(lambda e: e.done)


@pytest.mark.wide
def test_survivors_keep_their_state_and_feed_what_is_restored_at_once_and_later(
    text: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    world = begun(resource_of(text), tmp_path)
    newest = in_the_middle(world)
    assert world.engine.progress.kept_since <= newest
    stays = lose(world, "b")
    before = {p: i for p, i in installed(world).items() if p in stays}
    lost = sorted(world.topology.partitions.keys() - stays.keys())
    world.nodes.start("d")
    world.want(1, newest, {**stays, lost[0]: "d"}, retain=True)
    assert world.engine.positions[lost[0]] == newest
    assert all(k > newest for p, k in world.engine.positions.items() if p in stays)
    tick(world, 5)
    world.want(1, newest, {**stays, **dict.fromkeys(lost, "d")}, retain=True)
    to_the_end(world, newest)
    assert {p: i for p, i in installed(world).items() if p in stays} == before
    assert not world.engine.not_kept
    assert world.output() == expected


@pytest.mark.parametrize(
    "limits", [{"scope": "global"}, {"bufferMemory": "12Ki"}], ids=["global", "no-memory"]
)
def test_where_output_was_not_kept_the_driver_says_so_and_a_rollback_mends_a_plan_that_relied_on_it(
    text: str, expected: dict[str, bytes], tmp_path: Path, limits: dict[str, str]
) -> None:
    world = begun(resource_of(text, **limits), tmp_path)
    newest = in_the_middle(world)
    assert world.engine.progress.kept_since > newest
    assert sum(held.disk for held in world.engine.buffers.values()) == 0, (
        "nothing is spilled while nothing fails"
    )
    survivor = min(n for n, held in world.engine.buffers.items() if held.since > newest)
    stays = lose(world, *sorted(set("abc") - {survivor}))  # who is asked for what it has dropped
    world.nodes.start("d")
    assignment = {**dict.fromkeys(world.topology.partitions, "d"), **stays}
    world.want(1, newest, assignment, retain=True)
    world.run(lambda e: bool(e.not_kept))
    world.want(2, newest, assignment, retain=True)
    assert not world.engine.not_kept
    to_the_end(world, newest)
    assert world.output() == expected


def test_ancestors_make_again_what_nobody_kept_and_the_others_stay(
    text: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    world = begun(resource_of(text, scope="ancestors"), tmp_path)
    newest = in_the_middle(world)
    stays = lose(world, "b")
    lost = world.topology.partitions.keys() - stays.keys()
    above = {p for p in world.topology.upstream_of(lost) if not world.topology.partitions[p].is_source} - lost
    before = {p: i for p, i in installed(world).items() if p in stays.keys() - above}
    world.nodes.start("d")
    lines = {p: Origin(2, newest) for p in above}
    world.want(1, newest, {**stays, **dict.fromkeys(lost, "d")}, retain=True, lines=lines)
    assert {p for p, k in world.engine.positions.items() if k == newest} == above | lost
    to_the_end(world, newest)
    assert {p: installed(world)[p] for p in before} == before
    assert not world.engine.not_kept
    assert world.output() == expected


TWO_READERS = DIAMOND.replace(
    "    - name: count\n",
    """    - name: other
      class: reprise.spark_jobs.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags], select: ["hashtags AS tag"]}
      inputs: [{from: tweets, forward: true}]
      output: {priority: 1}
    - name: count
""",
)


def test_a_reader_that_is_far_behind_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """Sources release for who is ahead, and read again for who is not."""
    world = begun(resource_of(TWO_READERS), tmp_path)
    newest = in_the_middle(world)
    stuck = world.engine.positions["other.0"]
    assignment = world.engine.desired.assignment
    hosts = world.nodes.hosts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 3)
        patch.setattr(engine_module.Engine, "_due", lambda _: BATCHES)
        patch.setattr(hosts[assignment["other.0"]].runtimes["other.0"], "advance", lambda _: False)
        world.want(1, newest, assignment, retain=True)
        world.run(lambda e: e.positions["parse.0"] > stuck + 6, limit=50)
        assert world.engine.positions["other.0"] == stuck
        held = hosts[assignment["tweets.0"]].runtimes["tweets.0"].buffers["other.0"].entries
        assert max(held, default=0) <= stuck + 3, "what is read again later is not held for it"
    world.run(lambda e: e.positions["other.0"] > stuck + 6)


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.wide) for s in range(1, 5))])
def test_random_losses_at_any_stage_change_no_byte_and_take_nobody_back(
    text: str, expected: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    world = begun(resource_of(text), tmp_path)
    newest = in_the_middle(world)
    for k in range(3):
        node = dice.choice(sorted(world.nodes.hosts))
        world.nodes.interrupt = dies(world, node, world.engine.jobs + dice.randint(1, 4), dice.randint(0, 2))
        tick(world, 8)
        world.nodes.interrupt = lambda *_: None
        assert node not in world.nodes.hosts
        world.nodes.start(f"new{k}")
        if not k:  # one may have been completed before that loss; of the rest of the incident it stays
            newest = world.engine.punctuations.newest
        assignment = world.engine.desired.assignment
        stays = {p: n for p, n in assignment.items() if n in world.nodes.hosts}
        before = {p: i for p, i in installed(world).items() if p in stays}
        instead = dict.fromkeys(assignment.keys() - stays.keys(), f"new{k}")
        world.want(1, newest, {**stays, **instead}, retain=True)
        tick(world, dice.randint(0, 6))
        assert {p: installed(world)[p] for p in before} == before
    assert not world.engine.not_kept
    to_the_end(world, newest)
    assert world.output() == expected


def test_what_is_kept_is_what_the_newest_checkpoint_does_not_cover(tmp_path: Path) -> None:
    world = begun(resource_of(DIAMOND), tmp_path)
    newest = in_the_middle(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 3)
        world.engine.tick(
            world.nodes.living(), threading.Event()
        )  # which tells the hosts of it, whenever it was complete
    assert world.engine.punctuations.newest == newest
    kept = [
        (buffer.floor, sorted(buffer.entries))
        for host in world.nodes.hosts.values()
        for runtime in host.runtimes.values()
        if not runtime.partition.is_source
        for buffer in runtime.buffers.values()
    ]
    assert kept
    assert all(floor == newest + 1 and batches[0] == newest + 1 for floor, batches in kept)
    world.run(lambda e: e.punctuations.newest > newest)
    tick(world)
    assert newest < world.engine.progress.kept_since <= world.engine.punctuations.newest


@pytest.mark.wide
def test_who_stands_before_the_newest_checkpoint_says_what_nobody_makes_again(tmp_path: Path) -> None:
    """Restored from one checkpoint while a newer one was complete; then what it reads is restored from the newer one."""
    calm = begun(resource_of(DIAMOND), tmp_path / "calm")
    calm.run(lambda e: e.done)
    world = begun(resource_of(DIAMOND), tmp_path)
    older = in_the_middle(world)
    assignment = dict(world.engine.desired.assignment)
    world.want(1, older, assignment, retain=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 3)
        world.run(lambda e: e.punctuations.newest > older)
    newer = world.engine.punctuations.newest
    world.nodes.start("d", "e")
    assignment = {**assignment, "count.0": "d"}
    world.want(1, older, assignment, retain=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 1)
        tick(world)
        world.want(1, newer, assignment)
        assert world.engine.positions["count.0"] < newer, world.engine.failed
        world.want(1, newer, {**assignment, "parse.0": "e"}, retain=True)
        world.run(lambda e: "count.0" in e.not_kept, limit=20)
    world.want(2, newer, {**assignment, "parse.0": "e"}, retain=True)
    to_the_end(world, newer)
    assert world.output() == calm.output()


def test_what_was_never_put_is_not_kept(tmp_path: Path) -> None:
    """Hosts that keep nothing make no output for partitions that are not at work, and say so."""
    world = World(resource_of(DIAMOND, scope="global"), tmp_path, "w")
    world.nodes.start("a", "b")
    above = ("tweets", "parse")
    world.want(1, 0, {p: "a" if p.startswith(above) else "b" for p in world.topology.partitions})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module.Engine, "_due", lambda _: 10)
        world.run(lambda e: e.punctuations.newest == 10 and set(e.positions.values()) == {10})
        tick(world)
        patch.setattr(engine_module.Engine, "_due", lambda _: 15)
        stays = lose(world, "b")
        world.run(lambda e: e.positions["parse.0"] == 15, limit=20)
        tick(world)
    assert world.engine.progress.kept_since == 15
    world.nodes.start("d")
    world.want(1, 10, {**dict.fromkeys(world.topology.partitions, "d"), **stays}, retain=True)
    world.run(lambda e: bool(e.not_kept), limit=20)


@pytest.mark.parametrize("scope", ["auto", "global"])
@pytest.mark.wide
def test_one_that_is_set_aside_does_not_fill_the_nodes_of_the_others(scope: str, tmp_path: Path) -> None:
    resource = resource_of(TWO_READERS, scope=scope, bufferMemory="32Ki", bufferDisk="16Ki")
    world = begun(override(resource, {"sources[tweets].with.batches": 150}), tmp_path)
    newest = in_the_middle(world)
    aside = {"count.0", "top.0"}
    world.want(1, newest, {p: n for p, n in world.engine.desired.assignment.items() if p not in aside})
    world.run(lambda e: e.final is not None and set(e.positions.values()) == {e.final}, limit=400)


def test_one_that_is_set_aside_holds_up_nobody_who_needs_it_not(tmp_path: Path) -> None:
    """Its readers are at work and stand still; sources go on without regard to them."""
    world = begun(resource_of(TWO_READERS), tmp_path)
    newest = in_the_middle(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 6)
        world.want(1, newest, {p: n for p, n in world.engine.desired.assignment.items() if p != "count.0"})
        stuck = world.engine.positions["top.0"]
        world.run(lambda e: min(e.positions["other.0"], e.positions["count.1"]) > stuck + 12, limit=60)
        assert world.engine.positions["top.0"] < stuck + 6

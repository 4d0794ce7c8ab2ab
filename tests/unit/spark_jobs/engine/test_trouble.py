"""What is not a node loss: code that raises, damaged checkpoints, a sink that cannot write, buffers that grow."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.outside import Outside
from reprise.spark_jobs.errors import CheckpointError, SourceError
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.sources import HashtagSource
from reprise.spark_jobs.topology import load_text, override
from tests.support.engine_worlds import begun, fault_free
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World, past, tick

RAISING = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: raising}
spec:
  batch: {interval: 100ms}
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource",
        with: {rate: 100, interval: 100ms, batches: 20, tags: 9}}
  operators:
    - {name: bad, class: "tests.support.coin:RaisesAt", with: {batch: 7}, inputs: [{from: tweets}], output: {}}
    - {name: good, class: "reprise.spark_jobs.operators:Sink", inputs: [{from: tweets}], output: {}}
  checkpoint: {everyBatches: 5}
  nodes: {count: 2}
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return begun(DIAMOND, tmp_path, "ab")


@pytest.fixture(scope="module")
def diamond_output(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fault_free(begun(DIAMOND, tmp_path_factory.mktemp("expected"), "a"))


def test_a_poison_batch_is_named_and_not_retried(tmp_path: Path) -> None:
    world = begun(RAISING, tmp_path, "ab")
    world.run(lambda e: e.done)
    engine = world.engine
    assert str(engine.failed["bad.0"]).startswith(
        "poison: operator bad, partition bad.0, batch 7: ValueError: no sevens"
    )
    assert "bad.0" not in engine.positions
    assert engine.positions["good.0"] == engine.final
    written = world.output()
    assert len([name for name in written if name.startswith("bad/")]) == 6
    assert len([name for name in written if name.startswith("good/")]) == engine.final


@pytest.mark.wide
def test_a_damaged_state_file_is_reported_and_the_one_before_serves(
    world: World, diamond_output: dict[str, bytes]
) -> None:
    world.run(lambda e: past(35)(e) and len(e.store.positions()) >= 2)
    k = world.engine.punctuations.newest
    older = world.engine.store.positions()[-2]
    victim = next((world.checkpoints / f"cp-{k:08d}").glob("count.1.*"))
    victim.write_bytes(victim.read_bytes()[:-3])
    world.forget()
    world.driver()
    world.want(2, k, world.spread("a", "b"))
    world.run(lambda e: bool(e.failed))
    assert "damaged" in world.engine.failed["count.1"].reason
    assert world.engine.bad_checkpoints == {k}
    world.want(3, older, world.spread("a", "b"))
    world.run(lambda e: e.done)
    assert world.output() == diamond_output


@pytest.mark.parametrize("retain", [False, True], ids=["blocking", "correlated"])
@pytest.mark.parametrize("driver", [pytest.param("stays", marks=pytest.mark.wide), "starts anew"])
def test_the_newest_checkpoint_is_damaged_when_a_node_is_lost(
    world: World, diamond_output: dict[str, bytes], retain: bool, driver: str
) -> None:
    """Blocking recovery buffers nothing: sources must keep what is read again from the older checkpoint."""
    world.run(lambda e: past(35)(e) and len(e.store.positions()) >= 2)
    k, older = world.engine.punctuations.newest, world.engine.store.positions()[-2]
    victim = next((world.checkpoints / f"cp-{k:08d}").glob("count.1.*"))
    victim.write_bytes(victim.read_bytes()[:-3])
    world.forget()
    if driver == "starts anew":
        world.driver()
    world.nodes.lose("b")
    world.nodes.start("c")
    world.want(2, k, world.spread("a", "c"), retain=retain)
    world.run(lambda e: bool(e.failed))
    assert world.engine.bad_checkpoints == {k}
    assert world.engine.punctuations.newest == older, (
        "what the coordinator hears of, should its own record be lost"
    )
    world.want(3, older, world.spread("a", "c"), retain=retain)
    world.run(lambda e: e.done)
    assert world.output() == diamond_output


@pytest.mark.parametrize("lost", [pytest.param("cp-*", marks=pytest.mark.wide), "*"])
def test_a_mirror_serves_where_checkpoints_or_all_files_of_the_stream_are_gone(
    tmp_path: Path, diamond_output: dict[str, bytes], lost: str
) -> None:
    mirror = tmp_path / "mirror"
    resource = override(load_text(DIAMOND), {"checkpoint.standby": [str(tmp_path / "none"), str(mirror)]})
    world = begun(resource, tmp_path, "ab")
    world.run(lambda e: past(35)(e) and bool(e.store.positions()))
    k = world.engine.store.positions()[-1]
    shutil.copytree(world.checkpoints, mirror)
    for path in world.checkpoints.glob(lost):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    world.driver()
    world.want(2, k, world.spread("a", "b"))
    world.run(lambda e: e.done)
    assert world.output() == diamond_output
    assert not world.engine.bad_checkpoints


def test_checkpoints_without_a_ledger_are_no_new_stream(world: World) -> None:
    world.run(lambda e: bool(e.store.positions()))
    (world.checkpoints / "stream.json").unlink()
    with pytest.raises(CheckpointError, match=r"neither .* nor a mirror has the ledger"):
        world.driver()


def test_a_checkpoint_without_manifest_is_refused(world: World) -> None:
    with pytest.raises(CheckpointError, match=r"COMPLETE\.json"):
        world.want(2, 77, world.spread("a", "b"))
    assert world.engine.bad_checkpoints == {77}


def test_a_sink_that_cannot_write_delays_and_loses_nothing(
    world: World, diamond_output: dict[str, bytes]
) -> None:
    world.run(past(12))
    folder = world.sink / "top" / "0"
    aside = folder.rename(folder.with_name("aside"))
    folder.write_text("not a folder")
    tick(world, 4)
    stuck = world.engine.positions["top.0"]
    assert any("top.0: batch" in p and "cannot write" in p for p in world.engine.problems)
    assert world.engine.positions["parse.0"] > stuck
    assert not world.engine.failed
    assert world.engine.progress.waits == {"top.0": Outside.SINK}
    folder.unlink()
    aside.rename(folder)
    world.run(lambda e: e.done)
    assert world.output() == diamond_output
    assert world.engine.progress.waits == {}


def test_a_source_that_cannot_be_read_is_waited_for_by_its_partition_alone(
    world: World, diamond_output: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(past(12))
    with monkeypatch.context() as away:
        away.setattr(HashtagSource, "read", refuses("the brokers are away"))
        tick(world, 4)
        sources = {p for p in world.topology.order if p.startswith("tweets.")}
        assert sources and world.engine.progress.waits == dict.fromkeys(sources, Outside.SOURCE)
        assert any("the brokers are away" in problem for problem in world.engine.problems)
        # of a partition that is not at work nothing is said
        world.want(1, 0, {p: n for p, n in world.spread("a", "b").items() if p != "tweets.0"})
        assert "tweets.0" not in world.engine.progress.waits
        world.want(1, 0, world.spread("a", "b"))
    world.run(lambda e: e.done)
    assert world.output() == diamond_output
    assert world.engine.progress.waits == {}


def test_a_source_that_cannot_say_what_there_is_to_read_is_waited_for(
    world: World, diamond_output: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver asks it, and no partition is refused anything."""
    world.run(past(12))
    with monkeypatch.context() as away:
        away.setattr(HashtagSource, "plan", refuses("no leader"))
        world.run(lambda e: bool(e.ledger.waits_for))
        assert world.engine.ledger.waits_for == "tweets"
        sources = {p for p in world.topology.order if p.startswith("tweets.")}
        assert world.engine.progress.waits == dict.fromkeys(sources, Outside.SOURCE)
        desired = world.engine.desired
        world.engine.want(replace(desired, seq=desired.seq + 1, paused=True))
        assert world.engine.progress.waits == {}, "who is paused asks for nothing"
        world.engine.want(replace(desired, seq=desired.seq + 2))
    world.run(lambda e: e.done)
    assert world.output() == diamond_output
    assert world.engine.progress.waits == {}


def refuses(why: str) -> Callable[..., object]:
    """A method of a source that is away."""

    def method(*_: object) -> object:
        raise SourceError(why)

    return method


def test_buffers_of_a_long_incident_stay_within_memory_and_spill(
    tmp_path: Path, diamond_output: dict[str, bytes]
) -> None:
    """Invariant R1: half the partitions are missing for the whole stream."""
    limit = 16 * 1024
    world = World(override(load_text(DIAMOND), {"recovery.bufferMemory": "16Ki"}), tmp_path, "w")
    world.nodes.start("a", "b")
    there = [p for p in world.topology.order if not p.startswith(("count", "top"))]
    world.want(1, 0, world.spread("a", "b", only=there), retain=True)
    most = 0
    final = len(diamond_output) // len(world.topology.queries)
    for _ in range(400):
        tick(world)
        most = max([most, *(held.memory for held in world.engine.buffers.values())])
        if min(world.engine.positions.values()) >= final:
            break
    assert min(world.engine.positions.values()) == final
    assert sum(held.disk for held in world.engine.buffers.values()) > limit
    assert most <= limit
    world.want(1, 0, world.spread("a", "b"), retain=True)
    world.run(lambda e: e.done)
    assert world.output() == diamond_output


def small(tmp_path: Path) -> World:
    """All partitions at work on two nodes that may buffer 24 KiB each and spill nothing; no checkpoint before the end."""
    changes = {"recovery.bufferMemory": "24Ki", "recovery.bufferDisk": "0", "checkpoint.everyBatches": 500}
    world = World(override(load_text(DIAMOND), changes), tmp_path, "w")
    world.nodes.start("a", "b")
    world.want(1, 0, world.spread("a", "b"), retain=True)
    return world


def test_full_buffers_do_not_stop_partitions_whose_targets_are_all_at_work(
    tmp_path: Path, diamond_output: dict[str, bytes]
) -> None:
    world = small(tmp_path)
    most = 0

    def done(_: object) -> bool:
        nonlocal most
        most = max([most, *(held.memory for held in world.engine.buffers.values())])
        return world.engine.done

    world.run(done)
    assert any("buffers of this node are full" in p for p in world.engine.problems)
    largest = 2 * 1024  # a batch of a partition, of which each may hold one beyond the limit
    assert most <= 24 * 1024 + 4 * largest
    assert world.output() == diamond_output


@pytest.mark.wide
def test_output_that_was_given_up_is_missed_only_by_who_needs_it_and_a_rollback_mends_it(
    tmp_path: Path, diamond_output: dict[str, bytes]
) -> None:
    world = small(tmp_path)
    world.run(lambda e: past(30)(e) and any("are full" in p for p in e.problems))
    assert not world.engine.not_kept
    world.nodes.lose("b")
    world.nodes.start("c")
    instead = {p: "c" if n == "b" else n for p, n in world.spread("a", "b").items()}
    world.want(1, 0, instead, retain=True)
    world.run(lambda e: bool(e.not_kept))
    assert all(instead[p] == "c" for p in world.engine.not_kept)
    world.want(2, 0, instead, retain=True)
    assert not world.engine.not_kept
    world.run(lambda e: e.done)
    assert world.output() == diamond_output


def one_kept(tmp_path: Path, **source: int) -> tuple[World, int, int]:
    """`keep: 1`, at the moment at which a further checkpoint is complete and nobody has heard of it; the one before, and
    it.  `source`: fields of the source that are others."""
    changes = {f"sources[tweets].with.{name}": value for name, value in source.items()}
    world = begun(override(load_text(DIAMOND), {"checkpoint.keep": 1, **changes}), tmp_path, "ab")
    world.run(lambda e: e.punctuations.newest > 0)
    named = world.engine.punctuations.newest
    world.run(lambda e: e.punctuations.newest > named)
    return world, named, world.engine.punctuations.newest


@pytest.mark.parametrize("damaged", [pytest.param(False, marks=pytest.mark.wide), True])
def test_what_a_coordinator_still_names_is_there_though_one_is_kept(
    tmp_path: Path, diamond_output: dict[str, bytes], damaged: bool
) -> None:
    """It decided on the report before: or, where the newest is damaged, it has nothing else to go back to."""
    world, named, newest = one_kept(tmp_path)
    if damaged:
        (manifest,) = (world.checkpoints / f"cp-{newest:08d}").glob("COMPLETE*")
        manifest.write_text("{")
        world.forget()
        with pytest.raises(CheckpointError, match="damaged"):
            world.want(2, newest, world.spread("a", "b"))
    world.nodes.lose("b")
    world.nodes.start("c")
    world.want(3, named, world.spread("a", "c"), retain=True)
    assert world.engine.bad_checkpoints == ({newest} if damaged else set())
    world.run(lambda e: e.done)
    assert world.output() == diamond_output


@pytest.mark.wide
def test_one_checkpoint_is_kept_beside_the_one_that_may_be_named(tmp_path: Path) -> None:
    world, named, newest = one_kept(
        tmp_path, batches=600
    )  # where storing is slow the second of 60 could be the last
    assert world.engine.store.positions() == [named, newest]
    world.run(lambda e: e.punctuations.newest > newest)
    assert named not in world.engine.store.positions()


def test_a_host_that_dies_alone_is_told_as_lost_and_begins_with_nothing_that_is_past(
    world: World, diamond_output: dict[str, bytes]
) -> None:
    """Its executor lives, and the next task starts another host there, which has never heard of its partitions."""
    world.run(lambda e: past(35)(e) and bool(e.punctuations.newest))
    mine = {p for p, node in world.engine.desired.assignment.items() if node == "b"}
    world.nodes.lose("b")
    world.nodes.start("b")
    world.run(lambda e: bool(e.failed), limit=5)
    assert world.engine.failed == dict.fromkeys(mine, Failure(FailureKind.STATE_LOST))
    assert not world.nodes.hosts["b"].installed
    world.want(2, world.engine.punctuations.newest, world.spread("a", "b"), retain=True)
    world.run(lambda e: e.done)
    assert world.output() == diamond_output


@pytest.mark.parametrize("how", [pytest.param("gone", marks=pytest.mark.wide), "damaged"])
def test_spilled_output_that_is_lost_fails_its_partition_which_makes_it_again(
    tmp_path: Path, diamond_output: dict[str, bytes], how: str
) -> None:
    """In an incident; who reads it comes back after its disk lost it.  Sources read their rows again."""
    world = World(override(load_text(DIAMOND), {"recovery.bufferMemory": "4Ki"}), tmp_path, "w")
    world.nodes.start("a", "b")
    there = [p for p in world.topology.order if not p.startswith(("count", "top"))]
    world.want(1, 0, world.spread("a", "b", only=there), retain=True)
    world.run(lambda e: min(e.positions.values()) >= 40)
    for spill in world.nodes.hosts["a"].folder.glob("*.spill"):
        spill.unlink() if how == "gone" else spill.write_bytes(spill.read_bytes()[::-1] + b"\n")
    whole = world.spread("a", "b")
    mine = [p for p in there if whole[p] == "a"]
    world.want(1, 0, whole, retain=True)
    world.run(lambda e: bool(e.failed))
    lost = {
        p
        for p, failure in world.engine.failed.items()
        if str(failure).startswith("lost output: output of parse")
    }
    assert lost == set(world.engine.failed) and lost <= set(mine)
    assert all(f".spill is {how}" in world.engine.failed[p].reason for p in lost)
    world.want(1, 0, {p: node for p, node in whole.items() if p not in lost}, retain=True)
    world.want(1, 0, whole, retain=True)
    world.run(lambda e: e.done)
    assert world.output() == diamond_output


@pytest.mark.wide
def test_feedback_that_was_spilled_is_in_the_checkpoint(tmp_path: Path) -> None:
    """A cycle's last output is a part of the state: without it the batch after a restoration would have other input."""
    text = Path("examples/feedback.yaml").read_text()
    outputs = []
    for memory in ("64Mi", "1"):
        changes = {"recovery.bufferMemory": memory, "checkpoint.everyBatches": 5}
        world = begun(override(load_text(text), changes), tmp_path, "ab", name=memory)
        world.run(lambda e: e.punctuations.newest >= 5)
        newest = world.engine.punctuations.newest
        for number in (2, 3):
            world.want(number, newest, world.spread("a", "b"))
        world.run(lambda e: e.done)
        outputs.append(world.output())
    assert outputs[0] == outputs[1]


def test_a_disk_that_does_not_answer_while_a_state_is_stored_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spilled feedback is a part of the state; not to have read it once is no poison."""
    asked: list[str] = []
    read = OperatorRuntime.loops

    def loops(self: OperatorRuntime) -> dict[str, bytes]:
        if self.feedback:
            asked.append(self.partition.id)
            if len(asked) == 1:
                raise OSError(5, "Input/output error")
        return read(self)

    monkeypatch.setattr(OperatorRuntime, "loops", loops)
    changes = {"recovery.bufferMemory": "1", "checkpoint.everyBatches": 5}
    world = begun(override(load_text(Path("examples/feedback.yaml").read_text()), changes), tmp_path, "ab")
    world.run(lambda e: e.punctuations.newest >= 5)
    assert asked[0] in asked[1:] and not world.engine.failed

"""Other code for a topology that runs: at a checkpoint after which nothing was released, or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.errors import OutDirError
from reprise.controller.local.report.layout import prepare
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper.session import SessionState
from reprise.spark_jobs.engine import local_lines
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.standbys import Standby
from reprise.spark_jobs.errors import StoreError, SupersededError
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.revision import RevisionError, Revisions, made_by_another, revision_of
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import StreamTopology, expand, load_text, override
from tests.support.local_driver import ROOT, LocalDriver, world_of
from tests.unit.controller.driver.test_loop import failing, problems, turns
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import World

OLD = override(load_text(DIAMOND), {"sources[tweets].with.batches": 45})
NEW = override(OLD, {"operators[top].with.k": 6})


@pytest.fixture
def at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalDriver:
    """In the middle between two checkpoints: batches are shown that the newest one does not cover."""
    world = world_of(OLD, tmp_path)
    world.engine.release.ahead = 3
    driver = started(world, MemoryServer(), 1, 0, monkeypatch)
    to_between(driver)
    return driver


def to_between(driver: LocalDriver) -> None:
    turns(driver, lambda: between(driver.engine))


def between(engine: Engine) -> bool:
    newest = engine.punctuations.newest
    return (
        newest >= 20
        and min(engine.positions.values(), default=0) > newest + 2
        and not engine.punctuations.open
    )


def started(
    world: World, tree: MemoryServer, generation: int, checkpoint: int, monkeypatch: pytest.MonkeyPatch
) -> LocalDriver:
    driver = LocalDriver(world, tree)
    driver.engine.release.ahead = 3
    monkeypatch.setattr(driver.channel.changed, "wait", lambda _=None: True)
    monkeypatch.setattr(driver.stop, "wait", lambda _=None: driver.stop.is_set())
    driver.want(generation, checkpoint, world.spread("a", "b"))
    return driver


def ask(driver: LocalDriver, epoch: int | None = None) -> None:
    life = driver.engine.epoch if epoch is None else epoch
    driver.tree.put(f"{ROOT}/commands/drain", json.dumps({"driver": str(life)}).encode())


def change(world: World, resource: StreamTopology) -> None:
    world.resource, world.topology = resource, expand(resource)


def expected(resource: StreamTopology, folder: Path) -> dict[str, bytes]:
    world = world_of(resource, folder)
    world.want(1, 0, world.spread("a", "b"))
    world.run(lambda e: e.done)
    return world.output()


def batch_of(name: str) -> int:
    return int("".join(c for c in name.rpartition("/")[2] if c.isdigit()))


def test_after_a_drain_new_code_goes_on_and_nothing_is_made_again(
    at_work: LocalDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = at_work.world
    ask(at_work)
    turns(at_work, at_work.stop.is_set)
    boundary = at_work.record()["drained"]
    assert boundary == at_work.record()["horizon"] == at_work.record()["checkpoint"]
    assert max(batch_of(name) for name in world.output()) == boundary, "all is shown, and nothing beyond"
    assert f"{ROOT}/checkpoints/{boundary:08d}" in at_work.tree.records
    shown = world.output()
    change(world, NEW)
    world.nodes.lose("a", "b")
    world.nodes.start("a", "b")
    later = started(world, at_work.tree, 2, boundary, monkeypatch)
    turns(later, lambda: later.engine.done)
    output = world.output()
    old, new = expected(OLD, tmp_path / "old"), expected(NEW, tmp_path / "new")
    assert old != new
    assert {name: output[name] for name in shown} == shown
    for name in output:
        assert output[name] == (old if batch_of(name) <= boundary else new)[name], name
    assert not [p for p in later.loop.progress().problems if "identical" in p]


@pytest.mark.wide
@pytest.mark.parametrize("changed", [{"every": 7}, {"every": 3, "failureDomain": "zone"}, {}], ids=str)
def test_what_is_said_of_standbys_changes_between_two_checkpoints(
    changed: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies are there, and batches are shown that no checkpoint covers: they are made again, equal, by the next driver."""
    passive = {"operators[count].availability": "passive-standby"}
    before = override(OLD, {**passive, "operators[count].standby": {"every": 3}})
    after = override(OLD, {**passive, "operators[count].standby": changed or None})
    world, tree = world_of(before, tmp_path), MemoryServer()
    at = world.spread("a", "b")
    copies = {p: "ab"[at[p] == "a"] for p in at if p.startswith("count")}
    driver = started(world, tree, 1, 0, monkeypatch)
    driver.want(1, 0, at, seq=2, standbys=copies)
    to_between(driver)
    assert all(s.position for s in there(driver).values())
    newest = driver.engine.punctuations.newest
    assert {p: s.every for p, s in there(driver).items()} == dict.fromkeys(copies, 3)
    assert max(batch_of(name) for name in world.output()) > newest
    change(world, after)
    world.nodes.lose("a", "b")
    world.nodes.start("a", "b")
    later = started(world, tree, 2, newest, monkeypatch)
    assert later.engine.problems == []
    later.want(2, newest, at, seq=2, standbys=copies)
    turns(later, lambda: any(s.position > newest for s in there(later).values()) or later.engine.done)
    every = after.operator("count").standby_every
    assert {p: s.every for p, s in there(later).items()} == dict.fromkeys(copies, every)
    turns(later, lambda: later.engine.done)
    assert world.output() == expected(before, tmp_path / "unchanged")


def there(driver: LocalDriver) -> Mapping[str, Standby]:
    return driver.engine.standbys.there


@pytest.mark.wide
def test_without_a_drain_new_code_is_refused_and_the_former_goes_on(
    at_work: LocalDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, newest = at_work.world, at_work.engine.punctuations.newest
    change(world, NEW)
    with pytest.raises(RevisionError, match=rf"batches after checkpoint {newest} .* `upgrade: replay`"):
        LocalDriver(world, at_work.tree)
    change(world, OLD)
    later = started(world, at_work.tree, 2, newest, monkeypatch)
    turns(later, lambda: later.engine.done)
    assert world.output() == expected(OLD, tmp_path / "old")


def test_new_code_that_is_asked_to_replay_goes_on_and_says_what_that_means(at_work: LocalDriver) -> None:
    change(at_work.world, replace(NEW, upgrade="replay"))
    later = LocalDriver(at_work.world, at_work.tree)
    assert any("made again by changed code" in p for p in later.engine.problems)


def test_other_code_does_not_go_on_where_slots_are_of_different_ages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches between the oldest slot and the newest are applied again to some slots, and give nothing: rows of the new code
    would be missing, and some of the old.  Code that has not changed goes on."""
    monkeypatch.setattr(
        local_lines, "RECORD_S", 0.0
    )  # lines are recorded with each job, whatever the clock says
    monkeypatch.setattr(local_lines, "SHARE", 0)
    pace = {"extent": 30, "replay": 200, "spend": "1ms", "every": "1ms"}
    changes = {
        "checkpoint.protocol": "eventual",
        "checkpoint.log": "checkpointed",
        "checkpoint.eventual": pace,
    }
    world = world_of(override(OLD, changes), tmp_path)
    world.engine.release.ahead = 3
    driver = started(world, MemoryServer(), 1, 0, monkeypatch)
    turns(driver, lambda: bool(driver.engine.store.of_many_ages()))
    former = world.resource
    change(world, replace(override(NEW, changes), upgrade="replay"))
    with pytest.raises(RevisionError, match=r"in an older one .* slot by slot.* let it drain"):
        LocalDriver(world, driver.tree)
    change(world, replace(former, upgrade="replay"))
    LocalDriver(world, driver.tree)


def test_a_drain_covers_what_an_earlier_driver_has_shown(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is new, its horizon is back at the checkpoint, and it is asked at once."""
    world, newest = at_work.world, at_work.engine.punctuations.newest
    shown = max(batch_of(name) for name in world.output())
    assert shown > newest
    world.nodes.lose("a", "b")
    world.nodes.start("a", "b")
    later = started(world, at_work.tree, 2, newest, monkeypatch)
    ask(later)
    turns(later, later.stop.is_set)
    assert later.record()["drained"] >= shown


def test_a_rollback_while_draining_covers_what_was_shown_before_it(at_work: LocalDriver) -> None:
    world, newest = at_work.world, at_work.engine.punctuations.newest
    ask(at_work)
    at_work.turn()
    shown = max(batch_of(name) for name in world.output())
    assert not at_work.stop.is_set()
    at_work.want(2, newest, world.spread("a", "b"), seq=2)
    turns(at_work, at_work.stop.is_set)
    assert at_work.record()["drained"] >= shown


def on_record(driver: LocalDriver) -> int | None:
    """The mark of the drained stream in the store."""
    return driver.revisions.newest()[1]


@pytest.mark.parametrize("trouble", ["store", "announcement"])
def test_a_driver_says_that_it_has_drained_only_when_that_is_in_the_store(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Else one that dies in between is followed by one with other code, which is refused for ever."""
    part: Any = at_work.revisions if trouble == "store" else at_work.engine.store
    name = "drained" if trouble == "store" else "manifest"
    ask(at_work)
    turns(at_work, lambda: at_work.engine.drain._last is not None)
    monkeypatch.setattr(part, name, failing(3, OSError("away"), getattr(part, name)))
    for _ in range(300):
        at_work.turn()
        at_work.channel.publish_progress(at_work.loop.progress())  # as the publisher does at any moment
        assert at_work.record()["drained"] == on_record(at_work)
        if at_work.stop.is_set():
            break
    assert at_work.record()["drained"] == at_work.engine.punctuations.newest


def test_nothing_is_released_once_the_stream_may_be_marked_as_drained(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is in the store, its report is not in ZooKeeper; then a recovery asks for an earlier checkpoint."""
    world, newest = at_work.world, at_work.engine.punctuations.newest
    ask(at_work)
    mark = at_work.revisions.drained

    def marked(position: int) -> None:
        mark(position)
        at_work.zk.client.state = SessionState.SUSPENDED

    monkeypatch.setattr(at_work.revisions, "drained", marked)
    turns(at_work, lambda: on_record(at_work) is not None)
    assert not at_work.stop.is_set()
    shown = world.output()
    at_work.zk.client.state = SessionState.CONNECTED
    at_work.channel._listen(SessionState.CONNECTED)
    at_work.want(2, newest, world.spread("a", "b"), seq=2)
    turns(at_work, at_work.stop.is_set)
    assert at_work.record()["drained"] == on_record(at_work) == at_work.engine.horizon
    assert world.output() == shown


def test_an_older_report_never_takes_the_place_of_the_last_one(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher has its record in hand when the stream is drained, and the loop says so."""
    ask(at_work)
    write, held, go_on = at_work.channel.publish_progress, threading.Event(), threading.Event()

    def slow(record: Mapping[str, Any]) -> bool:
        if threading.current_thread() is publisher:
            held.set()
            go_on.wait(0.5)  # without a lock the loop goes on; with one it waits for this
        return write(record)

    publisher = threading.Thread(target=at_work.loop.publish)
    monkeypatch.setattr(at_work.channel, "publish_progress", slow)
    complete = at_work.engine.store.complete

    def completed(manifest: Manifest) -> None:
        complete(manifest)
        if manifest.position == at_work.engine.drain._last:
            publisher.start()
            held.wait(60)

    monkeypatch.setattr(at_work.engine.store, "complete", completed)
    turns(at_work, at_work.stop.is_set)
    go_on.set()
    publisher.join()
    assert at_work.record()["drained"] == at_work.engine.punctuations.newest


def test_what_another_life_was_asked_drains_nobody(at_work: LocalDriver) -> None:
    ask(at_work, epoch=at_work.engine.epoch - 1)
    turns(at_work, lambda: at_work.engine.done)
    assert not at_work.stop.is_set()
    at_work.loop.publish()
    assert at_work.record()["drained"] is None


def test_a_mark_of_a_drain_ends_with_the_next_driver(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = at_work.world
    ask(at_work)
    turns(at_work, at_work.stop.is_set)
    again = started(world, at_work.tree, 2, at_work.record()["drained"], monkeypatch)
    turns(again, lambda: between(again.engine))
    change(world, NEW)
    with pytest.raises(RevisionError):
        LocalDriver(world, at_work.tree)


@pytest.mark.parametrize("lives", [1, 2])
def test_former_code_goes_on_where_the_new_one_has_released_nothing(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch, lives: int
) -> None:
    """Its executors did not start, say.  Source ranges are on record far ahead of the drain."""
    world = at_work.world
    ask(at_work)
    turns(at_work, at_work.stop.is_set)
    boundary, shown = at_work.record()["drained"], world.output()
    world.nodes.lose("a", "b")
    change(world, NEW)
    for _ in range(lives):
        later = started(world, at_work.tree, 2, boundary, monkeypatch)
        later.turn()
        assert later.engine.ledger.written > boundary
    world.nodes.start("a", "b")
    change(world, OLD)
    back = started(world, at_work.tree, 3, boundary, monkeypatch)
    turns(back, lambda: min(back.engine.positions.values(), default=0) > boundary + 2)
    assert {name: world.output()[name] for name in shown} == shown
    change(world, NEW)
    with pytest.raises(RevisionError, match=f"batches after checkpoint {boundary} "):
        LocalDriver(world, at_work.tree)


def test_a_driver_that_has_released_nothing_drains_without_nodes(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = at_work.world
    ask(at_work)
    turns(at_work, at_work.stop.is_set)
    boundary = at_work.record()["drained"]
    world.nodes.lose("a", "b")
    change(world, NEW)
    later = started(world, at_work.tree, 2, boundary, monkeypatch)
    later.turn()
    ask(later)
    turns(later, later.stop.is_set, limit=3)
    assert later.record()["drained"] == on_record(later) == boundary


def test_a_driver_whose_checkpoint_is_damaged_does_not_drain_there(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other code would begin at the checkpoint before it, and make shown batches again."""
    world = at_work.world
    ask(at_work)
    turns(at_work, at_work.stop.is_set)
    boundary = at_work.record()["drained"]
    world.nodes.lose("a", "b")
    later = started(world, at_work.tree, 2, boundary, monkeypatch)
    later.turn()
    later.engine.punctuations.newest = boundary - 5
    ask(later)
    for _ in range(5):
        later.turn()
    assert not later.stop.is_set()


@pytest.mark.parametrize(
    ("newest", "released", "before", "expected"),
    [
        (0, 0, None, None),
        (20, 36, 20, 20),
        (20, 20, None, None),
        (20, 36, None, None),
        (20, 36, 10, None),
        (0, 3, None, None),
    ],
)
def test_what_is_on_record_as_the_end_of_a_drain_was_shown(
    tmp_path: Path, newest: int, released: int, before: int | None, expected: int | None
) -> None:
    """Where nothing was released after a checkpoint its output may still be staged, and nobody else would show it."""
    first, second = (claim_epoch(str(tmp_path), lambda least: least) for _ in range(2))
    if before is not None:
        Revisions(str(tmp_path), "same", first).drained(before)
    revisions = Revisions(str(tmp_path), "same", second)
    revisions.begin(newest, released, False, tuple)
    assert revisions.nothing_after == revisions.newest()[1] == expected


def test_other_code_does_not_make_the_last_batch_again(
    at_work: LocalDriver,
) -> None:
    """It has no ranges on record, and rows all the same: all windows close in it."""
    world = at_work.world
    turns(at_work, lambda: at_work.engine.ledger.ended_at is not None)
    ledger = at_work.engine.ledger
    assert ledger.released == ledger.written + 1 == 46
    assert made_by_another(str(world.checkpoints), 45, "another") == 46
    assert made_by_another(str(world.checkpoints), 46, "another") is None


def test_no_batch_is_released_before_the_mark_of_the_drain_is_off(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = at_work.world
    ask(at_work)
    turns(at_work, at_work.stop.is_set)
    boundary, real = at_work.record()["drained"], Files.replace
    again = started(world, at_work.tree, 2, boundary, monkeypatch)

    def refuses(self: Files, relative: str, data: Any) -> None:
        if relative.startswith("revisions/"):
            raise StoreError("the store does not answer")
        real(self, relative, data)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "replace", refuses)
        for _ in range(5):
            again.turn()
        assert again.engine.horizon == boundary
        assert any("does not answer" in p for p in problems(again))
    assert on_record(again) == boundary
    turns(again, lambda: again.engine.horizon > boundary)
    assert on_record(again) is None


def test_a_driver_that_is_frozen_before_it_takes_the_mark_off_releases_nothing_beside_its_successor(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = at_work.world
    ask(at_work)
    turns(at_work, at_work.stop.is_set)
    boundary = at_work.record()["drained"]
    frozen = started(world, at_work.tree, 2, boundary, monkeypatch)
    change(world, NEW)
    LocalDriver(world, at_work.tree)
    frozen.turn()
    assert frozen.loop.superseded
    assert frozen.engine.horizon <= boundary


def test_a_driver_that_is_frozen_before_it_marks_the_drain_changes_nothing_beside_its_successor(
    at_work: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor goes on behind the checkpoint and shows batches; then the mark of the old one is written."""
    world, real = at_work.world, Files.replace
    shown: list[int] = []

    def freezes(self: Files, relative: str, data: Any) -> None:
        if not shown and "revision" in relative and b'"drained": null' not in data:
            shown.append(at_work.engine.punctuations.newest)
            world.nodes.lose("a", "b")
            world.nodes.start("a", "b")
            later = started(world, at_work.tree, 2, shown[0], monkeypatch)
            turns(later, lambda: min(later.engine.positions.values(), default=0) > shown[0] + 2)
            assert later.engine.punctuations.newest == shown[0]
        real(self, relative, data)

    monkeypatch.setattr(Files, "replace", freezes)
    ask(at_work)
    turns(at_work, at_work.stop.is_set)
    assert shown
    change(world, NEW)
    with pytest.raises(RevisionError, match=f"batches after checkpoint {shown[0]} "):
        LocalDriver(world, at_work.tree)


def test_a_driver_that_is_frozen_before_it_says_its_revision_ends(tmp_path: Path) -> None:
    """Its successor has decided without that record, so it must not release anything."""
    location = str(tmp_path)
    first = claim_epoch(location, lambda least: least)
    second = claim_epoch(location, lambda least: least)
    assert Revisions(location, "new", second).begin(0, 0, False, tuple) == ""
    with pytest.raises(SupersededError):
        Revisions(location, "old", first).begin(0, 0, False, tuple)
    with pytest.raises(RevisionError):
        Revisions(location, "old", claim_epoch(location, lambda least: least)).begin(0, 5, False, tuple)


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        ("operators[top].with.k", 6, False),
        ("operators[top].output.format", "parquet", False),
        ("sink.location", "/elsewhere", False),
        ("batch.interval", "7s", True),
        ("operators[top].resources.cpu", "77m", True),
        ("operators[top].output.priority", 9, True),
        ("checkpoint.everyBatches", 7, True),
        ("nodes.count", 5, True),
    ],
)
def test_what_determines_output_is_a_revision(path: str, value: object, same: bool) -> None:
    assert (revision_of(override(OLD, {path: value})) == revision_of(OLD)) is same


def test_an_objective_needs_no_drain() -> None:
    eventual = override(OLD, {"checkpoint.protocol": "eventual", "checkpoint.log": "checkpointed"})
    hurried = override(eventual, {"operators[top].output.recovery.objective": "10s"})
    assert hurried != eventual and revision_of(hurried) == revision_of(eventual)


def test_another_image_is_another_revision() -> None:
    assert revision_of(OLD, "app:2") != revision_of(OLD, "app:1")


def test_a_run_is_not_resumed_with_changed_code_and_says_what_changed(
    at_work: LocalDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started, or is written over: the driver would refuse it after a while."""
    out, here = tmp_path / "out", {"checkpoint.location": str(at_work.world.checkpoints)}
    old, newest = override(OLD, here), at_work.engine.punctuations.newest
    layout = prepare(out, old, resume=False)
    changed = override(
        old, {"operators[top].with.k": 6, "sink.location": "/elsewhere", "batch.interval": "7s"}
    )
    with pytest.raises(OutDirError) as refused:
        prepare(out, changed, resume=True)
    said = str(refused.value)
    assert (
        'spec.operators[top].with.k was 5 and is 6; spec.sink.location was not there and is "/elsewhere" since'
        in said
    )
    assert f"after checkpoint {newest} (up to {at_work.engine.ledger.written} at most)" in said
    assert all(way in said for way in (str(layout.topology), "upgrade: replay", "another --out"))
    assert layout.topology.read_text() == old.document
    prepare(out, override(changed, {"upgrade": "replay"}), resume=True)
    layout.topology.write_text(changed.document)
    with pytest.raises(OutDirError, match="--resume: the topology changed"):
        prepare(out, changed, resume=True)
    prepare(out, old, resume=True)

    def away(*_: object) -> list[str]:
        raise StoreError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(Files, "names", away)
        prepare(out, changed, resume=True)
    layout.topology.write_text(old.document)
    ask(at_work)
    turns(at_work, at_work.stop.is_set)
    prepare(out, changed, resume=True)

"""What is restored from a log by a resource that keeps none any more, what a restored partition still holds, and which files
of its log stay."""

# ruff: noqa: F811 - fixtures of other tests, which hold here as well
from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.node import partition_log
from reprise.spark_jobs.node.command import Ack
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.platform import PLATFORM
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.snapshot import Kind, Snapshot, StateFile
from reprise.spark_jobs.topology import load_text, override
from tests.support.engine_worlds import all_anew, begun
from tests.unit.spark_jobs.engine.test_eventual import (
    WINDOWS,
    expected,  # noqa: F401
    logs,
    resource_of,
)
from tests.unit.spark_jobs.engine.test_uncoordinated import to_the_end
from tools.testbed.local_engine import World, past, tick

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("exchange", "lines_at_once")]

_PARSES = "class: reprise.spark_jobs.operators:FlatMap\n"
ARBITRARY = WINDOWS.replace(_PARSES, f"{_PARSES}      deterministic: false\n")
assert ARBITRARY != WINDOWS


def drained(world: World) -> int:
    world.run(past(14))
    world.engine.drain.asked = True
    world.run(lambda e: e.drained is not None)
    return world.engine.punctuations.newest


@pytest.mark.parametrize("state", ["arrays", "paged"])
def test_output_that_a_replay_may_change_is_shown_when_it_is_stored_also_after_a_log(
    state: str, tmp_path: Path
) -> None:
    """Operators upstream are not deterministic any more: rows wait for the checkpoint that covers them."""
    world = begun(resource_of("loose"), tmp_path)
    newest = drained(world)
    other = override(
        load_text(ARBITRARY),
        {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "checkpointed", "checkpoint.state": state},
    )
    world.resource = other
    all_anew(world, 9, "d", "e")
    ahead = 0
    for _ in range(12):
        tick(world)
        for partition, runtime in logs(world).items():
            assert runtime.paged is (state == "paged")
            if runtime.sink is None:
                continue
            assert runtime.sink.visible <= world.engine.lines.line[partition].position, partition
            ahead = max(ahead, runtime.position - newest)
    assert ahead > 0


def test_who_was_restored_keeps_nothing_of_what_slots_have_seen(tmp_path: Path) -> None:
    """Also where no batch is stepped once more."""
    world = begun(resource_of("loose"), tmp_path)
    newest = drained(world)
    world.driver()
    world.engine.begin(newest)
    world.want(9, newest, world.spread("a", "b"), retain=True)
    tick(world, 3)
    found = logs(world)
    assert found
    assert all(not runtime.seen for runtime in found.values())


def segment(world: World, at: int, *others: str) -> StateFile:
    """One of the log of count.0, as a node stores it."""
    return world.engine.store.write_segment(at, "count.0", "host-x.9", b"segment", others, 7)


@pytest.mark.parametrize("late", [False, True], ids=["in-order", "the-last-two-change-places"])
def test_segments_that_the_next_snapshot_needs_stay_whatever_line_is_on_record(
    late: bool, tmp_path: Path
) -> None:
    """After going far back a partition has slots older than, and output newer than, a snapshot of before, and is left out
    of the snapshots that lines are chosen from: the next one still names its segments."""
    world = begun(resource_of("loose"), tmp_path)
    world.run(lambda e: e.punctuations.newest > 6 and past(14)(e))
    lines, store = world.engine.lines, world.engine.store
    was = lines.snapshots["count.0"][-1]
    lines.origins["count.0"] = replace(was, position=2, sent=2, file=None)
    lines._last.pop("count.0", None)  # as `take` leaves it
    whole = segment(world, 4)
    first = segment(world, was.sent + 1, whole.path)
    second = segment(world, was.sent + 2, whole.path, first.path)
    acks = [Ack("count.0", "9", 4, whole.to_json(), sent=4)]
    acks += [Ack("count.0", "9", 4, f.to_json(), sent=was.sent + n) for n, f in ((1, first), (2, second))]
    for ack in [acks[0], acks[2], acks[1]] if late else acks:
        lines.acknowledge(ack)
    assert lines._last["count.0"].file == second
    assert second not in {s.file for s in lines.snapshots["count.0"]}, "slots are too old for a line"
    lines.prune(())
    there = {path for path in second.paths if (world.checkpoints / path).exists()}
    assert there == set(second.paths)
    store.remove_states(second.paths)


def test_what_a_slow_store_is_given_in_whatever_order_names_files_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several segments of a partition are under way at once, and an earlier one is stored after a later one."""
    monkeypatch.setattr("reprise.spark_jobs.node.snapshots.RETRY_S", 0.0)
    store, dice = partition_log.Sealed.encode, random.Random(3)

    def sometimes(self: partition_log.Sealed) -> partition_log.EncodedSegment:
        if dice.random() < 0.6:
            raise StoreError("the store is away")
        return store(self)

    monkeypatch.setattr(partition_log.Sealed, "encode", sometimes)
    world, shared = begun(resource_of("tight", **{"checkpoint.everyBatches": 1}), tmp_path), 0
    while not world.engine.done:
        tick(world)
        known = world.engine.lines.snapshots.values()
        files = [s.file for snapshots in known for s in snapshots if s.file is not None]
        missing = [p for f in files for p in f.paths if not (world.checkpoints / p).exists()]
        assert not missing
        shared += sum(len(f.others) for f in files)
    assert shared


@pytest.mark.parametrize("exchange", ["chained"], indirect=True)  # makes its own hosts
def test_the_log_of_a_partition_goes_by_the_clock_of_its_process(tmp_path: Path) -> None:
    world = begun(resource_of("loose"), tmp_path)
    now = iter(range(10**9))
    platform = replace(PLATFORM, elapsed=lambda: next(now) / 1e6)
    for node, host in list(world.nodes.hosts.items()):
        world.nodes.hosts[node] = Host(host.name, host.folder, platform=platform)
    world.run(past(2))
    found = logs(world)
    assert found
    assert all(
        runtime.log is not None and runtime.log.clock is platform.elapsed for runtime in found.values()
    )


def test_where_an_operator_is_not_known_here_nothing_is_stored_slot_by_slot(tmp_path: Path) -> None:
    """It may not be deterministic, and its own partitions say what is wrong with it; the others work."""
    other = override(resource_of("loose"), {"operators[top].class": "nowhere.to.be:Found"})
    world = begun(other, tmp_path)
    tick(world, 6)
    assert {p for p in world.engine.failed if not p.startswith("top")} == set()
    assert any(p.startswith("count") for p in world.engine.at_work)
    assert not logs(world)


def moved_on(world: World) -> dict[str, tuple[Snapshot, Snapshot]]:
    """Partitions with a log of which the newest line has another segment than the line before it, of the same name."""
    lines = world.engine.lines
    pairs = {p: (s, lines.line[p]) for p, s in lines._before.items() if s.kind is Kind.WINDOW_LOG}
    return {p: (old, new) for p, (old, new) in pairs.items() if old.file and new.file and old.sent < new.sent}


def test_a_new_driver_knows_what_partitions_had_before_the_newest_line(
    expected: dict[str, bytes], tmp_path: Path
) -> None:
    """Its record has replaced the one before, of equal least position.  One damaged file takes one partition back by one
    interval, and not everything to a line that may be much older."""
    world = begun(resource_of("loose", **{"checkpoint.everyBatches": 3}), tmp_path)
    world.run(lambda e: past(14)(e) and bool(moved_on(world)))
    newest = world.engine.punctuations.newest
    lost, (before, damaged) = next(iter(moved_on(world).items()))
    world.engine.store.verify(newest)
    assert damaged.file is not None and before.file is not None
    path = world.checkpoints / damaged.file.path
    path.write_bytes(path.read_bytes()[:-9])
    all_anew(world, 9, "d", "e")
    world.run(lambda e: lost in e.failed)
    assert world.engine.punctuations.newest == newest, "no older line"
    assert world.engine.lines.line[lost].file == before.file
    world.want(10, newest, world.spread("d", "e"), retain=True)
    to_the_end(world)
    assert world.output() == expected


def test_all_snapshots_that_need_a_damaged_segment_are_passed_over_at_once(
    expected: dict[str, bytes], tmp_path: Path
) -> None:
    world = begun(resource_of("loose", **{"checkpoint.everyBatches": 2}), tmp_path)
    lines = world.engine.lines

    def sharing(world: World) -> list[str]:
        logs = {p: [s.file for s in known if s.file is not None] for p, known in lines.snapshots.items()}
        return [
            p
            for p, files in logs.items()
            if sum(files[-1].path != f.path and bool(f.others) for f in files) > 1
        ]

    world.run(lambda e: past(12)(e) and bool(sharing(world)))
    world.forget()
    lost = sharing(world)[0]
    files = [s.file for s in lines.snapshots[lost] if s.file is not None]
    first = files[-1].others[0]
    assert sum(first in file.paths for file in files) > 2
    path = world.checkpoints / first
    path.write_bytes(path.read_bytes()[:-9])
    assignment = dict(world.engine.desired.assignment)
    world.want(1, 0, {p: n for p, n in assignment.items() if p != lost}, retain=True)
    tick(world)
    world.want(1, 0, assignment, retain=True)
    world.run(lambda e: lost in e.failed)
    assert not [s for s in lines.snapshots[lost] if s.file is not None and first in s.file.paths]
    assert any(f"others, which need {first}" in problem for problem in world.engine.problems)
    for _ in range(2):
        world.want(world.engine.desired.generation + 1, 0, assignment, retain=True)
        tick(world, 4)
    assert lost not in world.engine.failed, "the next attempt is with a line that does not need it"
    to_the_end(world)
    assert world.output() == expected


def test_a_segment_that_the_driver_has_not_heard_of_stays_by_its_folder(tmp_path: Path) -> None:
    """The next one names it, and may be stored before the driver hears of either."""
    world = begun(resource_of("loose", **{"checkpoint.keep": 1}), tmp_path)
    world.run(lambda e: e.punctuations.newest > 6 and past(14)(e))
    lines = world.engine.lines
    was = lines.snapshots["count.0"][-1]
    known = replace(was, position=2, sent=3, file=segment(world, 3))
    lines.origins["count.0"] = lines._last["count.0"] = known  # after it went far back
    lines._kept = {world.engine.punctuations.newest: lines.line}  # no line that is kept needs it
    assert known.file is not None
    unheard = segment(world, 4, *known.file.paths)
    lines.prune(())
    assert all((world.checkpoints / path).exists() for path in unheard.paths)


def test_what_is_on_record_beside_a_line_can_be_taken_with_it(tmp_path: Path) -> None:
    """Not what is behind it, nor where rows may be made differently since, nor what an older line had: that may be gone."""
    world = begun(resource_of("loose", **{"checkpoint.keep": 2}), tmp_path)
    lines, order = world.engine.lines, world.topology.order

    def of(position: int, sent: int) -> dict[str, Snapshot]:
        return {p: Snapshot(p, position, None, Kind.LOCAL, sent, sent + 1, sent) for p in order}

    lines.begin(0)
    lines.line = of(6, 6)
    assert lines._before_of(of(6, 8), 6) == of(6, 6)
    assert lines._before_of(of(9, 9), 7) == {}
    lines._before = of(6, 5)
    assert lines._before_of(of(6, 6), 6) == of(6, 5), "nothing new: what it had stays"
    replayable, lines.replayable = lines.replayable, lines.replayable - {"top.0"}
    assert lines._before_of(of(6, 8), 6) == {}
    lines.replayable = replayable
    lines.restore_point.complete(Manifest(6, of(6, 8), {}, before=of(6, 7)))
    lines.restore_point.complete(Manifest(9, of(9, 12), {}, before=of(9, 11)))
    lines._begun = False
    lines.begin(9)
    assert lines._before == of(9, 11)
    assert lines.snapshots["count.0"][1:] == (
        of(6, 8)["count.0"],
        of(9, 11)["count.0"],
        of(9, 12)["count.0"],
    )
    lines.restore_point._own.clear()
    (newest,) = world.checkpoints.glob("cp-00000009/COMPLETE*.json")
    newest.write_text("{")
    lines._begun = False
    lines.begin(9)
    assert lines.line["count.0"] == of(6, 8)["count.0"], "the newest is damaged"
    assert lines._before == {}


def test_what_is_damaged_is_not_on_record_beside_the_next_line(tmp_path: Path) -> None:
    world = begun(resource_of("loose"), tmp_path)
    world.run(lambda e: past(14)(e) and bool(moved_on(world)))
    lines = world.engine.lines
    lost, (before, _) = next(iter(moved_on(world).items()))
    assert before.file is not None
    lines.origins[lost] = lines.line[lost]
    lines.condemn(lost, before.file.path)
    assert lost not in lines._before

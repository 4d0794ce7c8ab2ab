"""The stream's clock: long stops, clocks that are set, intervals that change.  All by clocks of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.mirrors import take_over
from reprise.spark_jobs.state.release import SET_S, Release
from reprise.spark_jobs.state.revision import RevisionError, Revisions
from reprise.spark_jobs.storage.files import Files

DAY = 86400.0
START = 1_760_000_000.0


class Machine:
    """One machine's clocks."""

    def __init__(self, wall: float = START) -> None:
        self.wall, self.elapsed, self.epoch = wall, 7.0, 0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds

    def release(self, folder: Path, interval_s: float) -> Release:
        """Of a new driver."""
        self.epoch += 1
        return Release(str(folder), interval_s, 32, lambda: self.wall, lambda: self.elapsed, epoch=self.epoch)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_clock_that_is_set_while_a_driver_lives_moves_no_batch_and_is_said_once(
    tmp_path: Path, machine: Machine
) -> None:
    release = machine.release(tmp_path, 1.0)
    release.start(release.now())
    for step in (30 * DAY, -60 * DAY):
        machine.passes(10.0)
        before = release.due(release.now(), 0)
        machine.wall += step
        assert release.due(release.now(), 0) == before
        assert f"{step:+.0f} s" in release.was_set()
        assert release.was_set() == ""
    machine.wall += SET_S / 2
    assert release.was_set() == "", "clocks are corrected by little all the time"


def test_on_a_machine_whose_clock_is_behind_batches_go_on_at_their_pace_and_it_is_said(
    tmp_path: Path, machine: Machine
) -> None:
    release = machine.release(tmp_path, 1.0)
    release.start(release.now())
    other = Machine(START - 3600.0)
    release = other.release(tmp_path, 1.0)
    (said,) = release.begin(100, 256)
    assert "clock is 3699 s behind the stream's" in said
    assert release.due(release.now(), 100) == 100
    other.passes(5.0)
    assert release.due(release.now(), 100) == 105
    assert release.at(101) == START + 100


@pytest.mark.parametrize("after", [0.1, 10.0])
def test_an_interval_that_changes_after_ten_days_neither_stops_the_stream_nor_releases_it_all(
    tmp_path: Path, machine: Machine, after: float
) -> None:
    release = machine.release(tmp_path, 1.0)
    release.start(release.now())
    machine.passes(10 * DAY)
    newest = release.due(release.now(), 0) - 1
    release = machine.release(tmp_path, after)
    assert release.begin(newest, 256) == []
    assert release.due(release.now(), newest) == newest + 1
    machine.passes(20.0)
    assert release.due(release.now(), newest) == newest + 1 + int(20.0 / after)
    again = machine.release(tmp_path, after)
    assert again.begin(newest + 1, 256) == []
    assert again.anchors == release.anchors, "the same interval is no change"
    assert (again.at(1), again.at(500)) == (START, START + 499), (
        "old batches keep the times that they were due at"
    )
    assert again.at(newest + 2) == START + newest + after


def test_an_interval_that_changes_twice_before_a_batch_leaves_the_last(
    tmp_path: Path, machine: Machine
) -> None:
    release = machine.release(tmp_path, 1.0)
    release.start(release.now())
    for interval in (5.0, 2.0):
        release = machine.release(tmp_path, interval)
        release.begin(10, 256)
    assert [a.interval for a in release.anchors] == [1.0, 2.0]
    assert release.at(12) - release.at(11) == 2.0


def test_an_interval_after_none_begins_now(tmp_path: Path, machine: Machine) -> None:
    release = machine.release(tmp_path, 0.0)
    release.start(release.now())
    machine.passes(DAY)
    release = machine.release(tmp_path, 1.0)
    assert release.begin(1000, 256) == []
    assert release.due(release.now(), 1000) == 1001
    assert (release.at(1000), release.at(1001)) == (START, START + DAY)


def test_what_came_due_in_a_long_stop_is_paced_by_the_slowest_and_the_rest_by_the_clock(
    tmp_path: Path, machine: Machine
) -> None:
    release = machine.release(tmp_path, 0.5)
    release.start(release.now())
    machine.passes(60 * 3600.0)
    release = machine.release(tmp_path, 0.5)
    (said,) = release.begin(10, 256)
    assert said.startswith("431991 batches came due after checkpoint 10: they are released 256 at a time")
    assert release.pace(release.now(), 10, 256) == 266
    assert release.pace(release.now(), 200, 256) == 456
    machine.passes(4.0)
    assert release.pace(release.now(), 200, 256) == 464, "those that have caught up go on with the clock"
    machine.passes(DAY)
    assert release.pace(release.now(), 200, 256) == 464 + 256, "a driver that was frozen for a day does not"


@pytest.mark.parametrize("after", [1.0, 5.0], ids=["same interval", "another interval"])
def test_a_driver_that_was_frozen_before_it_wrote_the_clock_changes_nothing_beside_its_successor(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    first = machine.release(tmp_path, 1.0)
    first.start(first.now())
    machine.passes(100.0)
    old, real = machine.release(tmp_path, 10.0), Files.replace
    found: list[Release] = []

    def freezes(self: Files, relative: str, data: bytes) -> None:
        if not found:
            found.append(machine.release(tmp_path, after))
            found[0].begin(95, 256)
        real(self, relative, data)

    monkeypatch.setattr(Files, "replace", freezes)
    old.begin(90, 256)
    third = machine.release(tmp_path, after)
    assert third.anchors == found[0].anchors
    third.begin(99, 256)
    assert third.anchors == found[0].anchors, "so no batch is due at another time"


def test_two_that_start_the_clock_have_the_one_of_the_first(tmp_path: Path, machine: Machine) -> None:
    frozen, successor = machine.release(tmp_path, 1.0), machine.release(tmp_path, 1.0)
    successor.start(START)
    frozen.start(START + 50.0)
    assert frozen.at(1) == successor.at(1) == machine.release(tmp_path, 1.0).at(1) == START


def test_a_mirror_has_the_clock_and_the_revision_of_the_newest_driver(
    tmp_path: Path, machine: Machine
) -> None:
    first, mirror = tmp_path / "first", str(tmp_path / "mirror")
    machine.release(tmp_path / "mirror", 1.0).start(START)
    old = machine.release(tmp_path / "mirror", 2.0)
    old.begin(10, 256)
    revisions = Revisions(mirror, "r1", claim_epoch(mirror, lambda least: least))
    revisions.begin(0, 0, False, tuple)
    revisions.drained(0)  # and the location may have taken this mark off since
    (tmp_path / "mirror" / "stream.json").write_text('{"began": 1.0}')
    assert take_over(CheckpointStore(str(first)), (mirror,)) == mirror
    assert machine.release(first, 2.0).anchors == old.anchors
    with pytest.raises(RevisionError):
        Revisions(str(first), "r2", claim_epoch(str(first), lambda least: least)).begin(0, 5, False, tuple)


def test_a_longer_interval_releases_no_batch_before_it_is_due(tmp_path: Path, machine: Machine) -> None:
    machine.release(tmp_path, 60.0).start(START)
    machine.passes(90.0)
    release = machine.release(tmp_path, 600.0)
    assert release.begin(2, 256) == []
    assert release.at(3) == START + 120.0
    assert release.due(release.now(), 2) == 2
    machine.passes(30.0)
    assert release.due(release.now(), 2) == 3


def test_a_shorter_interval_takes_back_no_batch_that_was_due(tmp_path: Path, machine: Machine) -> None:
    machine.release(tmp_path, 600.0).start(START)
    machine.passes(90.0)
    release = machine.release(tmp_path, 60.0)
    release.begin(1, 256)
    assert (release.at(2), release.due(release.now(), 1)) == (START + 600.0, 1)


def test_an_interval_that_changes_after_the_first_batch_leaves_its_time(
    tmp_path: Path, machine: Machine
) -> None:
    machine.release(tmp_path, 1.0).start(START)
    machine.passes(3.0)
    release = machine.release(tmp_path, 5.0)
    release.begin(1, 256)
    assert [release.at(batch) for batch in (1, 2, 3)] == [START, START + 1.0, START + 6.0]


def test_a_clock_that_is_behind_keeps_nothing_waiting_before_the_first_checkpoint_either(
    tmp_path: Path, machine: Machine
) -> None:
    machine.release(tmp_path, 1.0).start(START)
    other = Machine(START - 3600.0)
    release = other.release(tmp_path, 1.0)
    (said,) = release.begin(0, 256)
    assert "clock is 3599 s behind the stream's" in said
    other.passes(5.0)
    assert release.due(release.now(), 0) == 5


def test_only_more_than_a_window_of_missed_batches_is_worth_saying(tmp_path: Path, machine: Machine) -> None:
    machine.release(tmp_path, 1.0).start(START)
    machine.passes(255.5)
    assert machine.release(tmp_path, 1.0).begin(0, 256) == []
    machine.passes(1.0)
    assert len(machine.release(tmp_path, 1.0).begin(0, 256)) == 1


def test_what_was_released_is_owed_no_less_and_nothing_is_owed_after_the_end(
    tmp_path: Path, machine: Machine
) -> None:
    release = machine.release(tmp_path, 1.0)
    release.start(START)
    machine.passes(9.5)
    assert [release.owed(3, None), release.owed(30, None), release.owed(3, 7), release.owed(3, 70)] == [
        10,
        30,
        7,
        10,
    ]

"""Savepoints: a name leads to all of its files, or does not exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Range, Tables
from reprise.spark_jobs.errors import DamagedError, NewerVersionError, StoreError, SupersededError
from reprise.spark_jobs.state.epochs import Fence, claim_epoch
from reprise.spark_jobs.state.savepoints import (
    RECORD,
    NameTakenError,
    NoSavepointError,
    SavedStage,
    Savepoint,
    Savepoints,
)
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology.resource import Grouping, InputSpec, Mode

STAGES = (
    SavedStage("words", True, "reprise.sources:HashtagSource", 2),
    SavedStage(
        "count",
        False,
        "reprise.operators:KeyedCount",
        2,
        (InputSpec("words", Grouping(Mode.KEYS, ("word",))),),
    ),
)
TABLES = {"state": pa.table({"word": ["a"], "count": [3]}), "runtime/watermark": pa.table({"watermark": [7]})}
RANGES = {"words.0": Range(0, 4), "words.1": Range(-6, -6, {"log": (1, 5)})}


def wanted(name: str = "before", position: int = 12, wish: str = "w1") -> Savepoint:
    return Savepoint(name, "default", "words", position, 100.0, 99.0, STAGES, RANGES, wish=wish)


def states() -> list[tuple[str, Tables, int]]:
    return [("count.0", TABLES, 1), ("count.1", TABLES, 3)]


def fence_of(folder: Path) -> Fence:
    return claim_epoch(str(folder), lambda least: least)


def test_a_savepoint_is_read_as_it_was_kept(tmp_path: Path) -> None:
    made = Savepoints(str(tmp_path)).keep(wanted(), states(), fence_of(tmp_path))
    there = Savepoints(str(tmp_path))
    assert there.names() == ["before"]
    found = there.read("before")
    assert found == made
    assert (found.position, found.ranges, found.stages) == (12, RANGES, STAGES)
    assert [found.states[p].state_version for p in found.partitions("count")] == [1, 3]
    assert there.state(found, "count.1") == TABLES
    assert there.state(found, "words.0") is None
    assert found.partitions("nobody") == ()


@pytest.mark.parametrize("after", range(4))
def test_a_driver_that_ends_at_any_write_leaves_a_whole_savepoint_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """After 0 or 1 states, before and after the record; the next driver's attempt of the same wish comes to one."""
    fence, left = fence_of(tmp_path), after

    def ends(then: object) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1

    write, create = Files.replace, Files.create

    def replace(self: Files, relative: str, data: bytes) -> None:
        ends(None)
        write(self, relative, data)

    def created(self: Files, relative: str, data: bytes) -> bool:
        if RECORD not in relative:
            return create(self, relative, data)
        if after == 3:
            create(self, relative, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Files, "replace", replace)
        patch.setattr(Files, "create", created)
        with pytest.raises(KeyboardInterrupt):
            Savepoints(str(tmp_path)).keep(wanted(), states(), fence)
    there = Savepoints(str(tmp_path))
    assert there.names() == (["before"] if after == 3 else [])
    again = there.keep(wanted(position=20), states(), fence_of(tmp_path))
    assert again.position == (12 if after == 3 else 20)
    assert there.read("before") == again
    assert there.state(again, "count.0") == TABLES
    assert len(list((tmp_path / "savepoints" / "before").iterdir())) == 2


def test_of_two_wishes_with_one_name_the_later_is_refused(tmp_path: Path) -> None:
    there, fence = Savepoints(str(tmp_path)), fence_of(tmp_path)
    there.keep(wanted(), states(), fence)
    with pytest.raises(NameTakenError, match="after batch 12"):
        there.keep(wanted(position=20, wish="w2"), states(), fence)
    assert there.read("before").position == 12


def test_a_frozen_driver_creates_none_beside_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, there = fence_of(tmp_path), Savepoints(str(tmp_path))
    fence_of(tmp_path)
    with pytest.raises(SupersededError):
        there.keep(wanted(), states(), old)
    assert there.names() == []


def frozen_before_its_record(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[bool], None]) -> None:
    """The next driver to create a record is frozen before it, and once more after; `meanwhile` is told which."""
    create, once = Files.create, True

    def late(self: Files, relative: str, data: bytes) -> bool:
        nonlocal once
        if RECORD not in relative or not once:
            return create(self, relative, data)
        once = False
        meanwhile(False)
        made = create(self, relative, data)
        meanwhile(True)
        return made

    monkeypatch.setattr(Files, "create", late)


def test_what_a_successor_has_found_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor says that its wish is carried out when it finds the record of a driver that was frozen around it."""
    there, old, found = Savepoints(str(tmp_path)), fence_of(tmp_path), list[Savepoint]()

    def meanwhile(recorded: bool) -> None:
        fence = fence_of(tmp_path)
        if recorded:
            found.append(there.keep(wanted(position=20), states(), fence))

    frozen_before_its_record(monkeypatch, meanwhile)
    with pytest.raises(SupersededError):
        there.keep(wanted(), states(), old)
    assert [there.read("before")] == found
    assert there.state(found[0], "count.0") == TABLES


@pytest.mark.parametrize("again", [False, True])
def test_a_record_whose_files_a_successor_has_swept_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """People have deleted the successor's; `again`: and this one, too, and it has taken a third, which stays."""
    there, old = Savepoints(str(tmp_path)), fence_of(tmp_path)

    def meanwhile(recorded: bool) -> None:
        if recorded == again or not recorded:
            fence = fence_of(tmp_path)
            if recorded:
                there.delete("before")
            there.keep(wanted(position=20, wish=f"w{recorded}"), states(), fence)
            if not recorded:
                there.delete("before")

    frozen_before_its_record(monkeypatch, meanwhile)
    with pytest.raises(SupersededError):
        there.keep(wanted(), states(), old)
    assert there.names() == (["before"] if again else [])
    if again:
        assert there.state(there.read("before"), "count.0") == TABLES


def test_a_store_that_does_not_answer_may_have_created_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files stay, whether the record came or comes later; asked again, the same wish is one savepoint."""
    create = Files.create

    def unanswered(self: Files, relative: str, data: bytes) -> bool:
        if RECORD in relative:
            create(self, relative, data)
            raise StoreError("no answer")
        return create(self, relative, data)

    there, fence = Savepoints(str(tmp_path)), fence_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "create", unanswered)
        with pytest.raises(StoreError):
            there.keep(wanted(), states(), fence)
    assert there.keep(wanted(position=20), states(), fence).position == 12
    assert there.state(there.read("before"), "count.0") == TABLES


def test_what_is_deleted_is_gone_with_its_files(tmp_path: Path) -> None:
    there, fence = Savepoints(str(tmp_path)), fence_of(tmp_path)
    there.keep(wanted(), states(), fence)
    assert there.delete("before") is not None
    assert there.names() == []
    assert not [p for p in (tmp_path / "savepoints").rglob("*") if p.is_file()]
    with pytest.raises(NoSavepointError, match="no savepoint 'before'"):
        there.read("before")
    with pytest.raises(NoSavepointError):
        there.delete("before")


def test_damage_and_a_newer_version_are_told_apart(tmp_path: Path) -> None:
    there, fence = Savepoints(str(tmp_path)), fence_of(tmp_path)
    found = there.keep(wanted(), states(), fence)
    (tmp_path / found.states["count.0"].path).write_bytes(b"something else")
    with pytest.raises(DamagedError, match="SHA-256"):
        there.state(found, "count.0")
    (tmp_path / found.states["count.0"].path).unlink()
    with pytest.raises(DamagedError, match="is missing"):
        there.state(found, "count.0")
    record = tmp_path / "savepoints" / "before" / RECORD
    record.write_text(record.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(NewerVersionError, match="version 2"):
        there.read("before")
    record.write_text("{}")
    with pytest.raises(DamagedError, match="no record of a savepoint"):
        there.read("before")
    assert there.delete("before") is None
    assert there.names() == []

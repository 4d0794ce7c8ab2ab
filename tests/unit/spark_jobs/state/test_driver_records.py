"""What a driver reads of the one before it: bytes that are damaged on their way are asked for again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import DamagedError, StoreError
from reprise.spark_jobs.state.driver_records import DriverRecords, newest_written, record_epochs, record_name
from reprise.spark_jobs.state.epochs import claim_epoch, recorded
from reprise.spark_jobs.state.release import Release
from reprise.spark_jobs.state.revision import Revisions
from reprise.spark_jobs.state.skips import Skip, SkipRecords
from reprise.spark_jobs.storage.files import Files


def clock(location: str) -> Any:
    return Release(location, 1.0, epoch=1).anchors


def revision(location: str) -> Any:
    return Revisions(location, "mine", claim_epoch(location, lambda least: least)).newest()


def skips(location: str) -> Any:
    return SkipRecords(location, None).read()


@pytest.fixture
def location(tmp_path: Path) -> str:
    fence = claim_epoch(str(tmp_path), lambda least: least)
    Release(str(tmp_path), 1.0, epoch=1).begin(0, 16)
    Revisions(str(tmp_path), "mine", fence).drained(7)
    SkipRecords(str(tmp_path), fence).write([Skip("a.0", 5)])
    Files(str(tmp_path)).create("clock/00000001.json", b'{"anchors": [[1, 5.0, 1.0]]}')
    return str(tmp_path)


def _damaged(patch: pytest.MonkeyPatch, folder: str, times: int) -> None:
    real, left = Files.read, [times]

    def short(self: Files, relative: str) -> bytes | None:
        data = real(self, relative)
        if relative.startswith(folder) and data and left[0]:
            left[0] -= 1
            return data[: len(data) // 2]
        return data

    patch.setattr(Files, "read", short)


@pytest.mark.parametrize(
    ("folder", "read"), [("clock/", clock), ("revisions/", revision), ("skipped/", skips)]
)
def test_a_record_is_read_again_before_it_is_called_damaged(
    location: str, monkeypatch: pytest.MonkeyPatch, folder: str, read: Callable[[str], Any]
) -> None:
    whole = read(location)
    assert whole
    _damaged(monkeypatch, folder, 1)
    assert read(location) == whole
    _damaged(monkeypatch, folder, 2)
    with pytest.raises(DamagedError, match=rf"{folder}0000000\d\.json in .* is damaged"):
        read(location)


@pytest.mark.parametrize(("folder", "read"), [("clock", clock), ("revisions", revision), ("skipped", skips)])
def test_a_record_that_a_listing_lacks_counts(
    location: str, monkeypatch: pytest.MonkeyPatch, folder: str, read: Callable[[str], Any]
) -> None:
    """A skip is acted on as soon as it is written, and its driver may die then: the next one would make the rows again that
    nobody has heard, and other code would be taken for the first."""
    whole, real = read(location), Files.names

    def names(self: Files, relative: str = "") -> list[str]:
        return [name for name in real(self, relative) if relative != folder or name != "00000001.json"]

    monkeypatch.setattr(Files, "names", names)
    assert Files(location).names(folder) == []
    assert read(location) == whole
    claim_epoch(location, lambda least: least)
    assert read(location) == whole, "one that has claimed and has written nothing is asked in vain"


def test_what_a_driver_has_seen_counts_though_a_listing_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, real = str(tmp_path), Files.names
    for seen in ({3: 0}, {3: 0, 7: 1}):
        claim_epoch(location, lambda least: least).record(seen)
    claim_epoch(location, lambda least: least)

    def names(self: Files, relative: str = "") -> list[str]:
        return [name for name in real(self, relative) if name != "00000002.checkpoints.json"]

    monkeypatch.setattr(Files, "names", names)
    assert recorded(Files(location)) == (2, {3: 0, 7: 1})


@pytest.mark.parametrize(("folder", "read"), [("clock", clock), ("revisions", revision), ("skipped", skips)])
def test_a_record_that_is_listed_and_not_there_is_not_none_at_all(
    location: str, monkeypatch: pytest.MonkeyPatch, folder: str, read: Callable[[str], Any]
) -> None:
    """Any code would be the first then, the stream would begin now, and rows that nobody has heard would be made again."""
    real = Files.read
    monkeypatch.setattr(
        Files, "read", lambda self, name: None if name.startswith(f"{folder}/") else real(self, name)
    )
    with pytest.raises(StoreError, match=rf"cannot read {folder}/0000000\d\.json in .*: it was listed"):
        read(location)


def test_a_revision_that_is_listed_and_not_there_is_not_none_at_all(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any code would be the first then, and make again what was shown."""
    real = Files.read
    monkeypatch.setattr(
        Files, "read", lambda self, name: None if name.startswith("revisions/") else real(self, name)
    )
    fence = claim_epoch(location, lambda least: least)
    with pytest.raises(StoreError, match=r"cannot read revisions/00000001\.json in .*: it was listed"):
        Revisions(location, "other", fence).begin(3, 9, False, tuple)
    assert Files(location).names("revisions") == ["00000001.json"]


@given(
    written=st.sets(st.integers(1, 9)), hidden=st.sets(st.integers(1, 9)), claimed=st.sets(st.integers(1, 9))
)
def test_a_record_that_a_listing_lacks_counts_if_its_driver_has_claimed_the_location(
    written: set[int], hidden: set[int], claimed: set[int]
) -> None:
    claimed |= written  # nobody writes before it has claimed
    listed = max(written - hidden, default=None)
    assert newest_written(written.__contains__, listed, claimed) == max(written, default=None)


def test_the_record_of_the_newest_driver_counts_and_earlier_ones_can_be_forgotten(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    records = DriverRecords(files, "clock")
    assert records.newest(bytes.decode) is None
    files.create("former.json", b"former")
    assert records.newest(bytes.decode, "former.json") == "former"
    for epoch in (9, 10, 2):
        records.write(epoch, str(epoch).encode())
    files.create("clock/notes.json", b"of somebody else")
    assert records.newest(bytes.decode, "former.json") == "10"
    records.write(10, b"again")
    assert records.newest(bytes.decode) == "again"
    records.forget_before(10)
    assert record_epochs(files, "clock") == [10]
    assert (tmp_path / record_name("clock", 10)).exists()
    assert (tmp_path / "clock" / "notes.json").exists()


def test_bytes_that_are_refused_twice_are_damaged(tmp_path: Path) -> None:
    records = DriverRecords(Files(str(tmp_path)), "clock")
    records.write(1, b"{")
    with pytest.raises(DamagedError, match=r"clock/00000001.json in .* is damaged"):
        records.newest(json.loads)

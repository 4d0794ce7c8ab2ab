"""Epochs: who may write to a location, and what a driver that comes later has seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reprise.spark_jobs.errors import DamagedError, StoreError, SupersededError
from reprise.spark_jobs.state.epochs import KEPT, Fence, claim_epoch, claims, recorded
from reprise.spark_jobs.storage import local_files
from reprise.spark_jobs.storage.files import Files


def claimed(folder: Path) -> Fence:
    return claim_epoch(str(folder), lambda least: least)


def test_a_claim_holds_until_a_later_one_is_seen(tmp_path: Path) -> None:
    first = claimed(tmp_path)
    first.check()
    second = claimed(tmp_path)
    second.check()
    with pytest.raises(
        SupersededError, match=r"a driver of epoch 2 has begun .*: this one, of epoch 1, ends"
    ):
        first.check()


def test_a_claim_that_is_not_seen_confirms_nothing(tmp_path: Path) -> None:
    fence = claimed(tmp_path)
    (tmp_path / "epochs" / "00000001.json").unlink()
    with pytest.raises(StoreError, match=r"epochs/00000001\.json, which this driver has written, is not in"):
        fence.check()


def test_what_counts_is_what_the_newest_driver_has_seen(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    assert recorded(files) == (0, {})
    claimed(tmp_path).record({5: 0, 10: 0})
    assert recorded(files) == (1, {5: 0, 10: 0})
    claimed(tmp_path)
    assert recorded(files) == (1, {5: 0, 10: 0}), "the second has claimed, and written down nothing yet"
    claimed(tmp_path).record({10: 1})
    (tmp_path / "epochs" / "notes.checkpoints.json").write_text("{}")
    assert recorded(files) == (3, {10: 1})


def test_what_a_driver_has_seen_is_written_once(tmp_path: Path) -> None:
    fence = claimed(tmp_path)
    fence.record({5: 0})
    fence.record({5: 0, 10: 0})
    assert recorded(Files(str(tmp_path))) == (1, {5: 0})


@pytest.mark.parametrize("text", ["{", "[]", '{"x": 1}', '{"5": null}'])
def test_a_damaged_record_of_what_counts_is_an_error_and_not_an_empty_one(tmp_path: Path, text: str) -> None:
    claimed(tmp_path).record({5: 0})
    (tmp_path / "epochs" / "00000001.checkpoints.json").write_text(text)
    with pytest.raises(DamagedError, match=r"epochs/00000001\.checkpoints\.json in .* is damaged"):
        recorded(Files(str(tmp_path)))


@pytest.mark.parametrize("first", [b"{", None])
def test_what_is_damaged_on_its_way_or_not_found_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes | None
) -> None:
    claimed(tmp_path).record({5: 0})
    answers = [first, b'{"5": 0}']
    monkeypatch.setattr(Files, "read", lambda self, relative: answers.pop(0))
    assert recorded(Files(str(tmp_path))) == (1, {5: 0})
    assert answers == []
    monkeypatch.setattr(Files, "read", lambda self, relative: None)
    with pytest.raises(StoreError, match="it was listed, and is not there"):
        recorded(Files(str(tmp_path)))


def test_files_of_old_drivers_go_and_those_of_the_last_stay(tmp_path: Path) -> None:
    for _ in range(KEPT + 3):
        fence = claimed(tmp_path)
        fence.record({})
    last = KEPT + 3
    assert claims(Files(str(tmp_path))) == list(range(last - KEPT, last + 1))
    names = sorted(p.name for p in (tmp_path / "epochs").iterdir() if p.name.endswith(".checkpoints.json"))
    assert names == [f"{k:08d}.checkpoints.json" for k in range(last - KEPT, last + 1)]


def test_a_claim_says_who_made_it_and_when(tmp_path: Path) -> None:
    claimed(tmp_path)
    claim = json.loads((tmp_path / "epochs" / "00000001.json").read_text())
    assert claim["epoch"] == 1
    assert len(claim["token"]) == 32
    assert claim["began"] > 1_700_000_000


def test_a_counter_that_is_ahead_gives_the_epoch_and_one_that_is_taken_is_asked_again(tmp_path: Path) -> None:
    assert claim_epoch(str(tmp_path), lambda least: least + 6).epoch == 7
    proposals = iter((7, 9))
    asked: list[int] = []

    def counter(least: int) -> int:
        asked.append(least)
        return next(proposals)

    assert claim_epoch(str(tmp_path), counter).epoch == 9
    assert asked == [8, 8]


def test_a_claim_whose_confirmation_was_lost_is_found_to_be_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has written the file, and says that it was there."""
    real = Files.create
    monkeypatch.setattr(Files, "create", lambda *given: real(*given) and False)
    assert claimed(tmp_path).epoch == 1
    assert claims(Files(str(tmp_path))) == [1]


def test_a_store_that_takes_a_second_file_of_a_name_is_told_of_and_keeps_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[bytes] = []

    def replaces(self: Files, relative: str, data: bytes) -> bool:
        written.append(data)
        self.replace(relative, data)
        return True

    claimed(tmp_path / "refuses")
    assert "store-replaces" not in caplog.text
    monkeypatch.setattr(Files, "create", replaces)
    assert claimed(tmp_path / "takes").epoch == 1
    assert "store-replaces" in caplog.text
    assert len(set(written)) == 1, "whatever the store does, the claim is what it was"


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_folder_without_exclusive_creation_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, exclusive: bool
) -> None:
    monkeypatch.setattr(local_files, "creates_exclusively", lambda _: exclusive)
    assert claimed(tmp_path).epoch == 1
    assert ("event=store-replaces" in caplog.text) is not exclusive


def test_who_is_not_listed_yet_asks_again_for_the_same_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number and a file for each attempt would be more of them every few seconds, for as long as the store is late."""
    real, late = Files.names, [5]

    def names(self: Files, folder: str = "") -> list[str]:
        found = real(self, folder)
        late[0] -= 1
        return found if late[0] < 0 else []

    monkeypatch.setattr(Files, "names", names)
    asked: list[int] = []

    def counter(least: int) -> int:
        asked.append(least)
        return max(least, 7)

    for _ in range(2):
        with pytest.raises(StoreError, match=r"epochs/00000007\.json, or what was written"):
            claim_epoch(str(tmp_path), counter, "mine")
    assert claim_epoch(str(tmp_path), counter, "mine").epoch == 7
    assert claim_epoch(str(tmp_path), counter, "mine").epoch == 7, "its claim is listed by now"
    assert claim_epoch(str(tmp_path), counter, "another's").epoch == 8
    assert asked == [1, 1, 7, 7, 8] and claims(Files(str(tmp_path))) == [7, 8]


def test_a_store_that_lists_late_is_refused_however_often_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows the claim of an attempt before by then; a later driver's it would not show in time."""
    real, before = Files.names, [[""]]

    def names(self: Files, folder: str = "") -> list[str]:
        before.append(real(self, folder))
        return [name for name in before[-1] if name in before[-2]]

    monkeypatch.setattr(Files, "names", names)
    for _ in range(4):
        with pytest.raises(StoreError, match="a store whose listings are late would not show"):
            claim_epoch(str(tmp_path), lambda least: least, "mine")
    assert [path.name for path in (tmp_path / "epochs").iterdir()] == ["00000001.json"]


def test_a_claim_that_another_has_made_and_that_is_not_listed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_epoch(str(tmp_path), lambda least: least, "another's")
    real, late = Files.names, [2]

    def names(self: Files, folder: str = "") -> list[str]:
        late[0] -= 1
        return [] if late[0] >= 0 else real(self, folder)

    monkeypatch.setattr(Files, "names", names)
    assert claim_epoch(str(tmp_path), lambda least: max(least, 1), "mine").epoch == 2


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_claim_that_is_damaged_is_nobodys(tmp_path: Path, text: str) -> None:
    claim_epoch(str(tmp_path), lambda least: least, "mine")
    (tmp_path / "epochs" / "00000001.json").write_text(text)
    assert claim_epoch(str(tmp_path), lambda least: least, "mine").epoch == 2


def test_a_claim_that_the_store_refuses_and_does_not_have_is_trouble_and_not_asked_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google answers 412 to what a rule of the organisation forbids, too."""
    tried: list[str] = []

    def refused(self: Files, relative: str, data: bytes) -> bool:
        tried.append(relative)
        assert len(tried) < 5, "it takes one number after the other"
        return False

    monkeypatch.setattr(Files, "create", refused)
    with pytest.raises(StoreError, match=r"refuses epochs/00000001\.json as if it were there, and it is not"):
        claim_epoch(str(tmp_path), lambda least: least)
    assert tried == ["epochs/00000001.json"]

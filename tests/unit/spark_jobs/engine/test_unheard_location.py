"""A checkpoint location that is away, or empty below its mount point, while a driver works with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from reprise.spark_jobs.errors import CheckpointError, DamagedError, StoreError, SupersededError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import Fence, claim_epoch, recorded
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import expand, load_text
from tests.unit.spark_jobs.state.test_storage import SMALL, TABLES


def begun(location: Path, standby: tuple[str, ...] = ()) -> tuple[CheckpointStore, Fence]:
    fence = claim_epoch(str(location), lambda least: least)
    store = CheckpointStore(str(location), standby)
    store.begin(fence)
    return store, fence


def complete(store: CheckpointStore, position: int) -> None:
    store.complete(Manifest.of_round(position, {"p": store.write_state(position, "p", "h", TABLES)}, {}))


def ledger(location: Path, fence: Fence) -> Ledger:
    resource = load_text(SMALL)
    found = Ledger(str(location), resource, expand(resource), fence)
    found.live = True
    return found


def test_below_a_mount_point_that_is_bare_nothing_is_confirmed(tmp_path: Path) -> None:
    """The volume is unmounted below a driver that was given up, and whose successor has begun on it."""
    mounted, volume = tmp_path / "mount", tmp_path / "volume"
    mounted.mkdir()
    old, fence = begun(mounted)
    said = ledger(mounted, fence)
    complete(old, 10)
    mounted.rename(volume)
    begun(volume)
    mounted.mkdir()
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"epochs/00000001\.json, which .* has written, is not in .*/mount"
        ):
            complete(old, 15)
        with pytest.raises(StoreError, match="is it mounted"):
            said.reach(1)
        assert said.written == 0
    with pytest.raises(StoreError, match="is it mounted"):
        old.prune(1)
    shutil.rmtree(mounted)
    volume.rename(mounted)
    with pytest.raises(SupersededError):
        complete(old, 15)
    with pytest.raises(SupersededError):
        said.reach(1)


def mirrored(tmp_path: Path) -> tuple[Path, Path]:
    """A location with cp(10) and cp(20), and a mirror that has the first alone."""
    here, mirror = tmp_path / "here", tmp_path / "mirror"
    store, fence = begun(here)
    ledger(here, fence)
    complete(store, 10)
    shutil.copytree(here, mirror)
    complete(store, 20)
    return here, mirror


class Away:
    """Below one location, folders cannot be listed, from the moment that a test says."""

    def __init__(self, location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = False
        names = Files.names

        def listed(files: Files, relative: str = "") -> list[str]:
            if self.now and files.name == str(location):
                raise StoreError(f"cannot list {relative} in {files.name}: no answer")
            return names(files, relative)

        monkeypatch.setattr(Files, "names", listed)


def test_a_driver_does_not_begin_at_a_mirrors_older_checkpoint_while_the_location_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, mirror = mirrored(tmp_path)
    away = Away(here, monkeypatch)
    record = Fence.record

    def records(self: Fence, seen: dict[int, int]) -> None:
        record(self, seen)
        away.now = True

    monkeypatch.setattr(Fence, "record", records)
    with pytest.raises(StoreError, match="no answer"):
        begun(here, (str(mirror),))
    away.now = False
    monkeypatch.setattr(Fence, "record", record)
    store = CheckpointStore(str(here), (str(mirror),))
    assert store.begin(claim_epoch(str(here), lambda least: least)) == 20


def test_a_mirror_answers_for_a_location_that_is_empty_and_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, mirror = mirrored(tmp_path)
    away = Away(here, monkeypatch)
    store, _ = begun(here, (str(tmp_path / "nothing"), str(mirror)))
    assert (store.positions(), store.known()) == ([10, 20], [10, 20])
    away.now = True
    with pytest.raises(StoreError, match="no answer"):
        store.positions()
    assert store.known() == [10]
    with pytest.raises(StoreError, match="no answer"):
        CheckpointStore(str(here)).known()
    away.now = False
    for folder in here.glob("cp-*"):
        shutil.rmtree(folder)
    assert store.positions() == [10]
    shutil.rmtree(here)
    with pytest.raises(CheckpointError, match="is it mounted"):
        store.positions()
    assert CheckpointStore(str(here), (str(mirror),)).positions() == [10], (
        "nobody's yet: a driver may take it over"
    )


def test_a_block_that_was_written_again_after_trouble_is_looked_at_like_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name was free because the successor had given up what it had said of that batch."""
    _, fence = begun(tmp_path)
    old = ledger(tmp_path, fence)
    assert old.reach(3) == 3
    _, later = begun(tmp_path)
    new = ledger(tmp_path, later)
    assert [new.reach(batch) for batch in range(4, 9)] == [4, 5, 6, 7, 8]
    new.stored(8, 7)
    check = Fence.check

    def away(self: Fence) -> None:
        raise StoreError("cannot list epochs: no answer")

    monkeypatch.setattr(Fence, "check", away)
    with pytest.raises(StoreError, match="no answer"):
        old.reach(4)
    monkeypatch.setattr(Fence, "check", check)
    with pytest.raises(SupersededError):
        old.reach(4)
    assert old.written == 3


@pytest.mark.parametrize("bad", [b"", b'{"10": ', b"[]"])
def test_a_record_of_an_epoch_is_read_twice_before_it_is_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bytes
) -> None:
    store, _ = begun(tmp_path)
    complete(store, 10)
    begun(tmp_path)
    read, wrong = Files.read, [bad]

    def sometimes(files: Files, relative: str) -> bytes | None:
        found = read(files, relative)
        return wrong.pop() if wrong else found

    monkeypatch.setattr(Files, "read", sometimes)
    assert recorded(Files(str(tmp_path))) == (2, {10: 1})
    wrong[:] = [bad, bad]
    with pytest.raises(DamagedError, match=r"00000002\.checkpoints\.json in .* is damaged"):
        recorded(Files(str(tmp_path)))
    monkeypatch.setattr(Files, "read", lambda files, relative: None)
    with pytest.raises(StoreError, match="it was listed, and is not there"):
        recorded(Files(str(tmp_path)))


def test_a_block_that_is_gone_is_not_called_damaged(tmp_path: Path) -> None:
    """A block whose name was there and that is gone says nothing of its bytes."""
    _, fence = begun(tmp_path)
    said = ledger(tmp_path, fence)
    said.reach(2)
    assert json.loads((tmp_path / "ranges/0000000001.json").read_text())["epoch"] == 1
    (tmp_path / "ranges/0000000001.json").unlink()
    with pytest.raises(StoreError, match="its name was there, and it is not"):
        said._block(1)

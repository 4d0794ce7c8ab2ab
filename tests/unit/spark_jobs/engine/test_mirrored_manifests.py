"""Whose manifest a mirror gives: another driver's has the same number, and names the state of other rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reprise.spark_jobs.errors import DamagedError, StoreError, SupersededError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.storage.files import Files
from tests.unit.spark_jobs.engine.test_unheard_location import Away, begun, complete, ledger
from tests.unit.spark_jobs.state.test_storage import TABLES


def said_by(store: CheckpointStore, position: int, offset: int) -> None:
    """A checkpoint that tells by its offset whose it is."""
    store.complete(
        Manifest.of_round(position, {"p": store.write_state(position, "p", "h", TABLES)}, {"s.0": offset})
    )


def two_histories(tmp_path: Path) -> tuple[CheckpointStore, Path, Path]:
    """cp(10) of epoch 1 and cp(20) of epoch 2; a mirror that has, of 20, what epoch 1 wrote too late to count."""
    here, mirror = tmp_path / "here", tmp_path / "mirror"
    old, fence = begun(here)
    ledger(here, fence)
    said_by(old, 10, 1)
    new, _ = begun(here, (str(mirror),))
    with pytest.raises(SupersededError):
        said_by(old, 20, 1)
    shutil.copytree(here, mirror)
    shutil.rmtree(mirror / "epochs")
    said_by(new, 20, 2)
    return new, here, mirror


def test_a_mirror_is_asked_for_the_manifest_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its storage is behind: of that number it has the one which counts for nobody."""
    store, here, mirror = two_histories(tmp_path)
    assert CheckpointStore(str(mirror)).manifest(20).offsets == {"s.0": 1}
    away = Away(here, monkeypatch)
    read = Files.read

    def not_here(files: Files, relative: str) -> bytes | None:
        if away.now and files.name == str(here):
            raise StoreError(f"cannot read {relative} in {files.name}: no answer")
        return read(files, relative)

    monkeypatch.setattr(Files, "read", not_here)
    away.now = True
    with pytest.raises(
        StoreError, match=r"no answer; cannot read .*COMPLETE\.2\.json in .*mirror: it is missing"
    ):
        store.manifest(20)
    assert store.manifest(10).offsets == {"s.0": 1}, "what the mirror has of the same epoch serves"
    shutil.copytree(here / "cp-00000020", mirror / "cp-00000020", dirs_exist_ok=True)
    assert store.manifest(20).offsets == {"s.0": 2}


def test_where_it_is_not_known_whose_counts_no_mirror_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, here, mirror = two_histories(tmp_path)
    away = Away(here, monkeypatch)
    store._counted.clear()
    away.now = True
    with pytest.raises(
        StoreError, match=r"not known which driver's manifest of checkpoint 20 counts: .*no answer"
    ):
        store.manifest(20)
    for_people = CheckpointStore(str(here), (str(mirror),))
    assert for_people.manifest(20).offsets == {"s.0": 1}, "nobody's: it decides nothing"


def test_a_manifest_that_is_void_is_not_read_anywhere(tmp_path: Path) -> None:
    """Here it is listed, and counts for nobody."""
    here = tmp_path / "here"
    old, fence = begun(here)
    ledger(here, fence)
    said_by(old, 10, 1)
    new, _ = begun(here)
    with pytest.raises(SupersededError):
        said_by(old, 20, 1)
    (here / "cp-00000020/COMPLETE.json").write_bytes((here / "cp-00000020/COMPLETE.1.json").read_bytes())
    with pytest.raises(DamagedError, match=r"cp-00000020/COMPLETE\.json, or .* of a driver that counts"):
        new.manifest(20)


def test_a_mirror_serves_a_location_that_lost_its_checkpoints_by_what_counted_there(tmp_path: Path) -> None:
    """The location still says which checkpoints counted when its last driver began: the mirror's void one is none."""
    _, here, mirror = two_histories(tmp_path)
    for folder in here.glob("cp-*"):
        shutil.rmtree(folder)
    fence = claim_epoch(str(here), lambda least: least)
    store = CheckpointStore(str(here), (str(mirror),))
    assert store.begin(fence) == 10
    assert store.manifest(10).offsets == {"s.0": 1}


@pytest.mark.parametrize(
    ("wrong", "served"), [([b"{"], True), ([None], True), ([b"{", b"["], False), ([None, None], False)]
)
def test_a_manifest_is_read_twice_before_it_is_called_damaged_or_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: list[bytes | None], served: bool
) -> None:
    store, fence = begun(tmp_path)
    ledger(tmp_path, fence)
    complete(store, 10)
    real, left, times = Files.read, list(wrong), []

    def read(files: Files, relative: str) -> bytes | None:
        if "COMPLETE" not in relative:
            return real(files, relative)
        times.append(relative)
        return left.pop(0) if left else real(files, relative)

    monkeypatch.setattr(Files, "read", read)
    if served:
        assert store.manifest(10).position == 10
    else:
        with pytest.raises(DamagedError):
            store.manifest(10)
    assert len(times) == 2

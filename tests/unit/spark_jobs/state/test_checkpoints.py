"""The checkpoint store where its location is not heard: what is still known, and what a mirror may say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from reprise.spark_jobs.errors import DamagedError, StoreError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.storage.files import Files

TABLES = {"counts": pa.table({"n": [1, 2]})}


def stored(store: CheckpointStore, position: int) -> Manifest:
    file = store.write_state(position, "count.0", "host-1", TABLES)
    manifest = Manifest.of_round(position, {"count.0": file}, {"in.0": position * 10})
    store.complete(manifest)
    return manifest


def unheard(monkeypatch: pytest.MonkeyPatch, location: Path) -> None:
    """No folder of this location can be listed, and what is read there by its name can be."""
    real = Files.names

    def names(self: Files, relative: str = "") -> list[str]:
        if str(location) in self.path(""):
            raise StoreError("the store is away")
        return list(real(self, relative))

    monkeypatch.setattr(Files, "names", names)


def test_a_driver_knows_its_own_manifest_while_the_location_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(str(tmp_path))
    store.begin(claim_epoch(str(tmp_path), lambda least: 4))
    manifest = stored(store, 10)
    unheard(monkeypatch, tmp_path)
    assert store.manifest(10) == manifest
    with pytest.raises(StoreError, match="not known which driver's manifest of checkpoint 5 counts"):
        store.manifest(5)


def test_people_are_told_what_a_mirror_has_and_a_driver_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, mirror = tmp_path / "first", tmp_path / "mirror"
    stored(CheckpointStore(str(first)), 3)
    manifest = stored(CheckpointStore(str(first)), 7)
    shutil.copytree(first, mirror)
    fence = claim_epoch(str(first), lambda least: least)
    unheard(monkeypatch, first)
    people = CheckpointStore(str(first), [str(mirror)])
    assert people.known() == [3, 7]
    assert people.manifest(7) == manifest
    with pytest.raises(StoreError, match="the store is away"):
        people.positions()
    with pytest.raises(StoreError):
        CheckpointStore(str(first), [str(mirror)]).begin(fence)
    with pytest.raises(StoreError):
        CheckpointStore(str(first)).known()


def test_what_is_missing_and_what_is_damaged_is_said_by_name(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    file = stored(store, 7).files["count.0"]
    (tmp_path / "stream.json").write_text('{"began": 1.0}')
    with pytest.raises(
        DamagedError, match=r"cp-00000008/COMPLETE\.json, or COMPLETE\.<epoch>\.json of a driver"
    ):
        store.manifest(8)
    (tmp_path / file.path).write_bytes(b"x" * file.size)
    with pytest.raises(DamagedError, match="is damaged: its SHA-256 is not the manifest's"):
        store.read_state(file)
    (tmp_path / file.path).unlink()
    with pytest.raises(DamagedError, match="it is missing"):
        store.read_state(file)


def test_a_location_without_checkpoints_begins_at_none_of_them(tmp_path: Path) -> None:
    location = str(tmp_path)
    assert CheckpointStore(location).begin(claim_epoch(location, lambda least: least)) == 0


def test_a_file_that_a_mirror_may_have_is_not_named_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs the same file is tried by itself, when the mirror may be heard again."""
    first, mirror = tmp_path / "first", tmp_path / "mirror"
    file = stored(CheckpointStore(str(first)), 7).files["count.0"]
    (first / "stream.json").write_text('{"began": 1.0}')
    shutil.copytree(first, mirror)
    (first / file.path).write_bytes(b"x" * file.size)
    store, real, away = CheckpointStore(str(first), [str(mirror)]), Files.read, [True]

    def read(self: Files, relative: str) -> bytes | None:
        if away[0] and str(mirror) in self.path(""):
            raise StoreError("the mirror is away")
        return real(self, relative)

    monkeypatch.setattr(Files, "read", read)
    with pytest.raises(DamagedError, match="the mirror is away") as raised:
        store.read_state(file)
    assert raised.value.file == ""
    away[0] = False
    assert store.read_state(file)["counts"] == TABLES["counts"]
    (mirror / file.path).unlink()
    with pytest.raises(DamagedError, match=r"mirror: it is missing") as raised:
        store.read_state(file)
    assert raised.value.file == file.path

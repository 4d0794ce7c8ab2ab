"""Checkpoints whose states share files: whatever is kept can be restored, and what nobody needs any more goes."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from reprise.controller.cli.checkpoints_command import _entry
from reprise.spark_jobs.errors import DamagedError, NewerVersionError, StoreError
from reprise.spark_jobs.node import snapshots
from reprise.spark_jobs.operators.aggregates import ROWS
from reprise.spark_jobs.operators.slots import Accumulators, restore
from reprise.spark_jobs.state import page_file
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.local_copies import LocalCopies
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.storage.files import Files

SIZE = 40_000


class Partition:
    """A state that is written, frozen and stored; `installation` goes into the names of its files."""

    def __init__(self, store: CheckpointStore, installation: str = "1") -> None:
        self.store, self.installation = store, installation
        self.held = Accumulators()
        self.write(range(SIZE))

    def write(self, slots: range) -> None:
        own = np.array(slots)
        self.held.update(own, {ROWS: np.ones(len(own), np.int64), "sum:v": own})

    def tables(self) -> dict[str, pa.Table]:
        return {"values": pa.table({n: a[: self.held.size].copy() for n, a in self.held._arrays.items()})}

    def stored(self, position: int) -> StateFile:
        parts = {"values": self.held.freeze_pages()()}
        return self.store.write_pages(
            self.store.pages_of(position, "count.0", f"host.{self.installation}", parts)
        )

    def again(self, file: StateFile, installation: str) -> None:
        """Restored: another installation."""
        self.held, self.installation = restore(self.store.read_state(file)["values"]), installation


def complete(store: CheckpointStore, position: int, file: StateFile) -> Manifest:
    manifest = Manifest.of_round(position, {"count.0": file}, {"in.0": position})
    store.complete(manifest)
    return manifest


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    (tmp_path / "stream.json").write_text('{"began": 1.0}')
    return CheckpointStore(str(tmp_path))


def chain(partition: Partition, positions: range) -> list[StateFile]:
    """A checkpoint after each few pages that were written."""
    files = []
    for position in positions:
        partition.write(range(position * 1000, position * 1000 + 2000))
        files.append(partition.stored(position))
        complete(partition.store, position, files[-1])
    return files


def test_a_checkpoint_that_was_removed_leaves_the_pages_that_others_need(
    store: CheckpointStore, tmp_path: Path
) -> None:
    partition = Partition(store)
    first, second, third = chain(partition, range(1, 4))
    assert first.others == ()
    assert third.others == (first.path, second.path)
    assert third.size < first.size / 5
    assert third.all_bytes is not None
    assert third.all_bytes >= first.size - 4096
    (tmp_path / "cp-00000001" / "stale.state").write_bytes(b"of nobody")
    assert store.prune(1) == 3
    assert store.positions() == [3]
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("cp-*/*")) == sorted(
        [first.path, second.path, third.path, "cp-00000003/COMPLETE.json"]
    )
    store.verify(3)
    assert CheckpointStore(str(tmp_path)).read_state(third) == partition.tables()
    partition.write(range(SIZE))
    complete(store, 4, partition.stored(4))
    partition.write(range(10))
    last = partition.stored(5)
    complete(store, 5, last)
    store.prune(1)
    assert sorted(p.name for p in tmp_path.glob("cp-*")) == ["cp-00000004", "cp-00000005"]
    assert CheckpointStore(str(tmp_path)).read_state(last) == partition.tables()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_kept_can_be_restored_and_nothing_else_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Checkpoints that are never complete, hosts that die while they write, drivers that begin anew, and any number kept."""
    monkeypatch.setattr(page_file, "MOST_FILES", 6)
    dice, location = random.Random(seed), str(tmp_path)
    (tmp_path / "stream.json").write_text('{"began": 1.0}')
    store = CheckpointStore(location)
    partition, expected = Partition(store), dict[int, dict[str, pa.Table]]()
    epochs = iter(range(1, 1000))
    real = Files.replace

    def dies(self: Files, relative: str, data: object) -> None:
        if dice.random() < 0.5:  # the store has the file, and the host has never heard of it
            real(self, relative, data)  # type: ignore[arg-type]
        raise StoreError("the host is gone")

    for position in range(1, 30):
        for _ in range(dice.randint(0, 3)):
            first = dice.randrange(0, SIZE, 500)
            partition.write(range(first, min(SIZE, first + dice.choice([10, 3000, 20_000]))))
        what = dice.choice(["complete"] * 6 + ["stored", "killed", "driver", "lost"])
        if what == "killed":
            monkeypatch.setattr(Files, "replace", dies)
            with pytest.raises(StoreError):
                partition.stored(position)
            monkeypatch.setattr(Files, "replace", real)
            what = "lost"
        if what == "lost" and not expected:
            partition = Partition(store, f"{position}")
            continue
        if what == "lost":
            newest = max(expected)
            file = CheckpointStore(location).manifest(newest).files["count.0"]
            partition.again(file, f"{partition.installation}.{position}")
            assert partition.tables() == expected[newest]
            continue
        file = partition.stored(position)
        if what == "driver":
            store = CheckpointStore(location)
            store.begin(claim_epoch(location, lambda least: max(least, next(epochs))))
        if what == "complete":
            complete(store, position, file)
            expected[position] = partition.tables()
            store.prune(dice.randint(1, 3))
        positions = store.positions()
        expected = {k: expected[k] for k in positions}
        named = set()
        for k in positions:
            files = CheckpointStore(location).manifest(k).files["count.0"]
            assert CheckpointStore(location).read_state(files) == expected[k]
            named |= set(files.paths)
        if what == "complete":
            older = {str(p.relative_to(tmp_path)) for p in tmp_path.glob("cp-*/*.state")} - named
            assert all(int(path[3:11]) >= min(positions) for path in older)


def test_a_damaged_page_of_an_earlier_file_is_found_and_a_mirror_is_asked(
    store: CheckpointStore, tmp_path: Path
) -> None:
    partition = Partition(store)
    first, second = chain(partition, range(1, 3))
    mirror = tmp_path.parent / f"{tmp_path.name}-mirror"
    shutil.copytree(tmp_path, mirror)
    path = tmp_path / first.path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(
        DamagedError, match=rf"{first.path} in .* is damaged: the page at byte \d+ does not have"
    ):
        store.read_state(second)
    with pytest.raises(DamagedError):
        store.verify(2)
    mirrored = CheckpointStore(str(tmp_path), [str(mirror)])
    assert mirrored.read_state(second) == partition.tables()
    for broken in (b"", bytes(data[:5000])):
        path.write_bytes(broken)
        with pytest.raises(DamagedError, match="does not have its checksum"):
            store.read_state(second)
    path.unlink()
    with pytest.raises(DamagedError, match="it is missing"):
        store.read_state(second)
    assert mirrored.verify(2)
    shutil.rmtree(mirror)


def test_a_partition_that_goes_back_on_its_node_reads_nothing_from_the_store(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "copies")
    copies.allow(2**30)
    store = CheckpointStore(str(tmp_path / "store"), copies=copies)
    partition = Partition(store)
    files = chain(partition, range(1, 5))
    copies.forget(before=4)
    shutil.rmtree(tmp_path / "store")
    assert store.read_state(files[-1]) == partition.tables()
    partition.write(range(SIZE))
    whole = partition.stored(5)
    partition.write(range(10))
    part = partition.stored(6)
    copies.forget(before=6)
    assert len(list((tmp_path / "copies").iterdir())) == 2
    assert copies.used == whole.size + part.size


def test_snapshots_that_wait_for_the_store_and_have_the_same_base_keep_its_files(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is stored last becomes the base of the next ones, and may need files that the others do not."""
    monkeypatch.setattr(page_file, "MOST_FILES", 3)
    partition = Partition(store)
    base = chain(partition, range(1, 4))[-1]
    encoded = []
    for position in (4, 5):
        partition.write(range(position * 1000, position * 1000 + 2000))
        parts = {"values": partition.held.freeze_pages()()}
        encoded.append(store.pages_of(position, "count.0", "host.1", parts))
    assert all({base.path, *base.others} <= set(state.others) for state in encoded)


def test_a_damaged_copy_of_a_page_is_passed_over(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "copies")
    copies.allow(2**30)
    store = CheckpointStore(str(tmp_path / "store"), copies=copies)
    partition = Partition(store)
    *_, last = chain(partition, range(1, 3))
    for path in (tmp_path / "copies").iterdir():
        path.write_bytes(path.read_bytes()[::-1])
    assert store.read_state(last) == partition.tables()


def test_while_it_is_not_known_what_is_needed_nothing_is_removed(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(store)
    chain(partition, range(1, 4))
    anew = CheckpointStore(str(tmp_path))
    before = sorted(tmp_path.rglob("*"))

    def away(*_: object) -> bytes:
        raise StoreError("the store is away")

    with monkeypatch.context() as patch, pytest.raises(StoreError):
        patch.setattr(Files, "read", away)
        anew.prune(1)
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "cp-00000003" / "COMPLETE.json").write_text('{"position": 3, "version": 99}')
    with pytest.raises(NewerVersionError):
        anew.prune(1)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("damage", ["other bytes", "missing"])
def test_a_manifest_that_is_damaged_for_a_while_costs_no_file(
    store: CheckpointStore, tmp_path: Path, damage: str
) -> None:
    """Its files were taken for nobody's, and stayed so when it was whole again."""
    partition = Partition(store)
    *_, last = chain(partition, range(1, 4))
    before = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    manifest = tmp_path / "cp-00000003" / "COMPLETE.json"
    whole = manifest.read_bytes()
    anew = CheckpointStore(str(tmp_path))
    assert anew.positions() == [1, 2, 3]
    if damage == "missing":
        anew.positions = lambda: [1, 2, 3]  # type: ignore[method-assign]  # a listing that is late
        manifest.unlink()
    else:
        manifest.write_bytes(b"{")
    assert anew.prune(1) == 1
    manifest.write_bytes(whole)
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == before
    assert anew.prune(1) == 3
    assert anew.read_state(last) == partition.tables()


def test_folders_that_only_keep_files_of_others_are_not_listed_again(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(store)
    chain(partition, range(1, 6))
    store.prune(2)
    listed = list[str]()
    names = Files.names

    def noted(self: Files, relative: str = "") -> list[str]:
        listed.append(relative)
        return names(self, relative)

    monkeypatch.setattr(Files, "names", noted)
    assert store.positions() == [4, 5]
    assert not {"cp-00000001", "cp-00000002", "cp-00000003"} & set(listed)
    complete(store, 2, partition.stored(6))  # everything went back to the beginning
    assert store.positions() == [2, 4, 5]


def test_how_large_a_checkpoint_is_counts_the_pages_in_files_of_others(
    store: CheckpointStore, tmp_path: Path
) -> None:
    first, *_, last = chain(Partition(store), range(1, 4))
    manifest = store.manifest(3)
    assert last.size < first.size / 5
    assert manifest.state_bytes == last.all_bytes
    assert _entry(store, 3, verify=False)["bytes"] == last.all_bytes


def test_a_state_in_pages_is_encoded_once_however_often_storing_it_is_tried(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the files before it have of the state is known when it is frozen alone: encoding again would leave pages out."""
    monkeypatch.setattr(snapshots, "RETRY_S", 0.01)
    partition = Partition(store)
    chain(partition, range(1, 3))
    partition.write(range(5000, 9000))
    frozen, expected, encoded = partition.held.freeze_pages(), partition.tables(), list[int]()
    partition.write(range(SIZE))  # the operator goes on meanwhile
    real, tries = Files.replace, list[str]()

    def away(self: Files, relative: str, data: object) -> None:
        tries.append(relative)
        if len(tries) < 3:
            raise StoreError("the store is away")
        real(self, relative, data)  # type: ignore[arg-type]

    def encode() -> dict[str, object]:
        encoded.append(1)
        return {"values": frozen()}

    monkeypatch.setattr(Files, "replace", away)
    writing = snapshots.SnapshotWriter(store, "host")
    writing.keep((3,), {"count.0": "1"})
    writing.submit("count.0", "1", 3, encode)  # type: ignore[arg-type]
    until = time.monotonic() + 30
    while not (acks := writing.collect()[0]) and time.monotonic() < until:
        time.sleep(0.01)
    writing.close()
    assert (len(tries), len(encoded)) == (3, 1)
    assert store.read_state(StateFile.from_json(acks[0].file or {})) == expected


def test_a_manifest_of_states_in_pages_comes_back_as_it_was(store: CheckpointStore) -> None:
    paged = Manifest.of_round(7, {"count.0": Partition(store).stored(7)}, {"in.0": 1})
    assert Manifest.from_json(paged.to_json()) == paged

"""Durable files: never a half one, never another one under the same name, and on disk before anybody is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import SinkError, StoreError
from reprise.spark_jobs.sinks import FileSink
from reprise.spark_jobs.sinks import files as sinks
from reprise.spark_jobs.sinks.url import file_sink
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.release import Release
from reprise.spark_jobs.storage import files
from reprise.spark_jobs.storage.files import Files, Way, way_of
from reprise.spark_jobs.topology import expand, load_text
from tests.unit.spark_jobs.state.test_storage import SMALL, TABLES

PLACE = Place("out", 0, 1)
LINES = b'{"a":1}\n' * 1000


def in_a_process_that_dies(body: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_a_writer_that_dies_between_link_and_unlink_leaves_nothing_that_a_successor_writes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts with the same process id, as in two containers; the second dies before its first byte is written."""
    monkeypatch.setattr(os, "getpid", lambda: 57)
    final = tmp_path / "out/0/batch-00000007.jsonl"

    def first() -> None:
        link = os.link

        def dies(source: Any, target: Any) -> None:
            link(source, target)
            os._exit(9)

        os.link = dies  # type: ignore[assignment]
        FileSink(tmp_path, PLACE, "jsonl").store(7, LINES)

    def second() -> None:
        opened = Path.open

        def dies(path: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
            if "r" in mode:
                return opened(path, mode, *more, **options)
            opened(path, mode, *more, **options).close()
            os._exit(9)

        Path.open = dies  # type: ignore[assignment]
        FileSink(tmp_path, PLACE, "jsonl").store(7, LINES)
        FileSink(tmp_path, PLACE, "jsonl").store(8, LINES)

    in_a_process_that_dies(first)
    assert final.read_bytes() == LINES and final.stat().st_nlink == 2
    in_a_process_that_dies(second)
    assert final.read_bytes() == LINES
    FileSink(tmp_path, PLACE, "jsonl").store(8, LINES)
    assert final.stat().st_nlink == 1, "what was left behind is swept"
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {final.name, "batch-00000008.jsonl"}


def stores(location: Path) -> None:
    store = CheckpointStore(str(location))
    file = store.write_state(5, "count.0", "host-1", TABLES)
    store.complete(Manifest.of_round(5, {"count.0": file}, {}))


def extends(location: Path) -> None:
    resource = load_text(SMALL)
    Ledger(str(location), resource, expand(resource)).reach(3)


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (lambda at: FileSink(at, PLACE, "jsonl").store(1, LINES), ["batch-00000001.jsonl"]),
        (stores, ["count.0.host-1.state", "COMPLETE.json"]),
        (extends, ["stream.json", "0000000001.json"]),
        (lambda at: Release(str(at), 0.5, epoch=1).start(1000.0), ["clock.json"]),
    ],
    ids=["sink", "checkpoint", "ledger", "clock"],
)
def test_bytes_are_on_disk_before_the_name_is_seen_and_the_name_before_anybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], object], names: list[str]
) -> None:
    """What a loss of power leaves: a name that is seen has its bytes, and what was answered has its name."""
    synced: set[int] = set()
    seen: dict[str, tuple[bool, Path]] = {}
    folders: set[Path] = set()
    fsync, link, replace = os.fsync, os.link, os.replace

    def syncs(number: int) -> None:
        fsync(number)
        synced.add(os.fstat(number).st_ino)
        for name, (whole, final) in seen.items():
            if os.fstat(number).st_ino == final.parent.stat().st_ino:
                folders.add(final)
                assert whole, f"{name} was seen before its bytes were on disk"

    def links(source: Any, target: Any) -> None:
        seen[Path(target).name] = (Path(source).stat().st_ino in synced, Path(target))
        link(source, target)

    def replaces(source: Any, target: Any) -> None:
        seen[Path(target).name] = (Path(source).stat().st_ino in synced, Path(target))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(os, "link", links)
    monkeypatch.setattr(os, "replace", replaces)
    write(tmp_path)
    assert list(seen) == names
    assert all(whole for whole, _ in seen.values())
    assert {final for _, final in seen.values()} == folders


class Growing(MemoryFileSystem):
    """A file system that nobody has heard of: files grow before the eyes of readers, and it loses power while they do."""

    protocol = "growing"
    cachable = False
    fails = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.replace("growing:", "memory:"))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        super().pipe_file(path, value[: len(value) // 2] if Growing.fails else value)
        if Growing.fails:
            raise RuntimeError("power cut, in the words of some client")


def test_a_file_system_that_is_not_known_to_be_atomic_shows_no_half_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fsspec.register_implementation("growing", Growing, clobber=True)
    sink = file_sink("growing://results", PLACE, "jsonl")
    monkeypatch.setattr(Growing, "fails", True)
    with pytest.raises(SinkError, match="RuntimeError: power cut"):
        sink.write(1, TABLES["counts"])
    fs = Growing()
    assert fs.glob("/results/out/0/batch-*") == []
    monkeypatch.setattr(Growing, "fails", False)
    sink.write(1, TABLES["counts"])
    assert fs.cat_file("/results/out/0/batch-00000001.jsonl") == sinks._jsonl(TABLES["counts"])


def test_only_stores_that_are_known_to_refuse_are_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {way_of(p) for p in (("s3", "s3a"), ("gs", "gcs"), ("abfs", "az", "abfss"))} == {Way.CONDITIONAL}
    unknown = ("dbfs", "root", "gdrive", "box", "hdfs", "ftp", ("ssh", "sftp"), "webdav", "dropbox")
    assert {way_of(protocol) for protocol in unknown} == {Way.RENAME}
    assert way_of(("file", "local")) is Way.LINK


@pytest.mark.parametrize("location", ["{}/here", "memory://of-a-test{}", "growing://of-a-test{}"])
def test_create_says_whose_file_it_is(tmp_path: Path, location: str) -> None:
    fsspec.register_implementation("growing", Growing, clobber=True)
    here = Files(location.format(tmp_path))
    assert here.read("a/b.json") is None and here.names("a") == [] and not here.exists("a/b.json")
    assert here.create("a/b.json", b"first")
    assert not Files(location.format(tmp_path)).create("a/b.json", b"second")
    assert here.read("a/b.json") == b"first"
    here.replace("a/b.json", [b"th", b"ird"])
    assert (here.read("a/b.json"), here.names("a"), here.names()) == (b"third", ["b.json"], ["a"])
    here.remove("a")
    here.remove("a")
    assert not here.exists("a/b.json")
    assert here.create("a/b.json", b"again")


def test_a_folder_without_hard_links_is_served_by_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(source: Any, target: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuses)
    here = Files(str(tmp_path))
    assert here.create("a", b"first") and not here.create("a", b"second")
    assert here.read("a") == b"first"
    assert [p.name for p in (tmp_path / files.PARTS).iterdir()] == []


def test_only_old_temporary_files_are_swept(tmp_path: Path) -> None:
    here = Files(str(tmp_path))
    here.create("visible", b"bytes")
    parts = tmp_path / files.PARTS
    os.link(tmp_path / "visible", parts / "1000-of-a-writer-that-died.part")
    (parts / "not-ours").touch()
    young = Path(here._part())
    young.touch()
    here.sweep()
    assert {p.name for p in parts.iterdir()} == {"not-ours", young.name}
    assert (tmp_path / "visible").read_bytes() == b"bytes"


def test_messages_name_file_and_place_and_no_password(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"a file where a folder should be")
    with pytest.raises(StoreError, match=rf"cannot write x\.json in {tmp_path}/taken: NotADirectoryError"):
        Files(f"{tmp_path}/taken").create("x.json", b"")
    with pytest.raises(StoreError, match=r"location warp://host/x: .*"):
        Files("warp://me:secret@host/x")


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("ftp://me:secret@host/x", "ftp://host/x"),
        ("ftp://me:se:c@ret@host/x@y", "ftp://host/x@y"),
        (
            "abfs://container@account.dfs.core.windows.net/x",
            "abfs://container@account.dfs.core.windows.net/x",
        ),
        ("abfs://container@account:443/x", "abfs://container@account:443/x"),
        ("/a//b:c/d@e", "/a//b:c/d@e"),
    ],
)
def test_only_a_password_is_cut_out_of_a_location(location: str, shown: str) -> None:
    assert files.without_password(location) == shown


def test_the_folder_of_a_new_file_is_flushed_else_a_power_cut_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(files.local, "flush", lambda path: flushed.append(Path(path)))
    assert Files(str(tmp_path)).create("folder/file", b"x")
    assert flushed[-1] == tmp_path / "folder"

"""Records copied from one ZooKeeper to another through a file, on two real servers; the first is then killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner

from reprise.controller.cli import main
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper import mirror
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.errors import MirrorError
from tests.support.zookeeper import zookeeper
from tests.unit.spark_jobs.storage.test_files import Growing

ROOT = "/reprise/default/t"
RECORDS = {
    "checkpoints/40": {"position": 40},
    "commands/paused": True,
    "desired": {"seq": 3},
    "incident": {"id": "inc-000002"},
    "incidents/inc-000001": {"id": "inc-000001"},
    "plans/inc-000001-p1": {"id": "inc-000001-p1"},
    "progress": {"driver": "2"},
    "nodes/n1": {"node": "n1"},
}
KEPT = {"checkpoints/40", "commands/paused", "incidents/inc-000001", "plans/inc-000001-p1"}


@pytest.fixture(scope="module")
def sites() -> Iterator[tuple[ZooKeeperServer, ZooKeeperServer]]:
    with zookeeper() as first, zookeeper() as second:
        yield first, second


@pytest.mark.slow
def test_a_second_site_has_the_records_when_the_first_is_lost(
    sites: tuple[ZooKeeperServer, ZooKeeperServer], tmp_path: Path
) -> None:
    first, second = sites
    with connected(first.hosts, 5.0) as client:
        for name, value in RECORDS.items():
            client.create(f"{ROOT}/{name}", json.dumps(value).encode(), makepath=True)
        client.create(f"{ROOT}/coordinator", b"{}", ephemeral=True)
        file, older = tmp_path / "mirror" / "t.json", tmp_path / "older.json"
        saved = reprise("save", "--zk", first.hosts, "--root", ROOT, "--to", str(file))
        assert (saved.exit_code, saved.output) == (0, f"6 records of {ROOT} in {file}\n")
    first.kill()

    mirror.save(mirror.Copy(ROOT, 0.0, {"desired": "{}"}), str(older))
    broken = tmp_path / "broken.json"
    broken.write_bytes(file.read_bytes()[:40])
    load = ("load", "--zk", second.hosts, "--root", ROOT)
    loaded = reprise(*load, "--from", str(broken), "--from", str(file), "--from", str(older))
    assert loaded.exit_code == 0, loaded.output
    assert f"4 records of {ROOT} put at {ROOT}" in loaded.output
    with connected(second.hosts, 5.0) as there:
        found = {name: json.loads(there.get(f"{ROOT}/{name}")[0]) for name in KEPT}
        names = there.get_children(ROOT)
    assert found == {name: RECORDS[name] for name in KEPT}
    assert sorted(names) == ["checkpoints", "commands", "incidents", "plans"]
    again = reprise(*load, "--from", str(file))
    assert (again.exit_code, "there are records already" in again.output) == (1, True)


def reprise(*arguments: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(main, ["records", *arguments])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "no copy of records"),
        (b"[]", "no copy of records"),
        (b'{"format": 9}', "format 9; this version reads 1"),
        (b'{"format": 1, "root": "/r"}', "no copy of records"),
    ],
)
def test_a_file_that_is_no_copy_says_so(tmp_path: Path, text: bytes, reason: str) -> None:
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(MirrorError, match=reason):
        mirror.load([str(tmp_path / "a.json")])


def test_the_first_copy_that_is_whole_is_taken(tmp_path: Path) -> None:
    good = mirror.Copy("/r", 7.0, {"plans/p": "{}"})
    mirror.save(good, str(tmp_path / "second.json"))
    assert mirror.load([str(tmp_path / "none.json"), str(tmp_path / "second.json")]) == good
    with pytest.raises(MirrorError, match=r"none.json: cannot be read"):
        mirror.load([str(tmp_path / "none.json")])


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MirrorError, match="cannot be written"):
        mirror.save(mirror.Copy("/r", 0.0, {}), str(tmp_path / "file" / "x.json"))


@pytest.mark.parametrize("place", ["growing://copies/t.json", "growing://t.json"])
def test_a_copy_is_replaced_as_a_whole_and_nobodys_error_gets_through(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A store whose client has exceptions of its own, and that shows files while they grow."""
    fsspec.register_implementation("growing", Growing, clobber=True)
    before = mirror.Copy("/r", 7.0, {"plans/p": "{}"})
    mirror.save(before, place)
    monkeypatch.setattr(Growing, "fails", True)
    with pytest.raises(MirrorError, match=rf"{place}: cannot be written: .*power cut"):
        mirror.save(mirror.Copy("/r", 8.0, {}), place)
    monkeypatch.setattr(Growing, "fails", False)
    assert mirror.load([place]) == before
    mirror.save(mirror.Copy("/r", 9.0, {}), place)
    assert mirror.load([place]).time == 9.0


def test_two_that_save_at_once_write_under_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "t.json")
    first, second = mirror.Copy("/r", 1.0, {"a": "x" * 1000}), mirror.Copy("/r", 2.0, {})
    encode = mirror.Copy.encode

    def another_is_there(copy: mirror.Copy) -> bytes:
        monkeypatch.setattr(mirror.Copy, "encode", encode)
        mirror.save(second, place)
        return encode(copy)

    monkeypatch.setattr(mirror.Copy, "encode", another_is_there)
    mirror.save(first, place)
    assert mirror.load([place]) == first


def test_a_password_is_not_shown() -> None:
    with pytest.raises(MirrorError) as caught:
        mirror.load(["warp://me:secret@host/t.json"])
    assert "secret" not in str(caught.value) and "host/t.json: cannot be read" in str(caught.value)

"""Names appear whole and once, also where a file system knows no hard links or cannot flush a folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from reprise.spark_jobs.storage import local_files


def part(folder: Path, content: str = "new") -> Path:
    path = folder / "part"
    path.write_text(content)
    return path


def test_a_name_is_given_once(tmp_path: Path) -> None:
    final = tmp_path / "final"
    assert local_files.link(part(tmp_path), final)
    assert local_files.link(tmp_path / "part", final), "the answer to our own attempt was lost"
    other = tmp_path / "other"
    other.write_text("other")
    assert not local_files.link(other, final)
    assert final.read_text() == "new"


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.EXDEV])
def test_without_hard_links_a_name_that_is_taken_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    final = tmp_path / "final"
    assert local_files.link(part(tmp_path), final)
    assert final.read_text() == "new"
    assert not local_files.link(part(tmp_path, "later"), final)
    assert final.read_text() == "new"


def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


def test_without_hard_links_a_name_that_is_taken_at_the_same_moment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that was frozen after it has seen that the name is free does not replace what its successor has written."""
    no_links(monkeypatch)
    monkeypatch.setattr(local_files, "is_taken", lambda _: False)
    final = tmp_path / "final"
    assert local_files.link(part(tmp_path, "successor"), final)
    assert not local_files.link(part(tmp_path, "frozen"), final)
    assert final.read_text() == "successor"
    assert local_files.creates_exclusively(tmp_path / "parts")
    assert list((tmp_path / "parts").iterdir()) == []


def test_a_file_system_without_any_exclusive_creation_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_links(monkeypatch)
    monkeypatch.setattr(local_files, "_rename_exclusively", lambda *_: None)
    final = tmp_path / "final"
    assert local_files.link(part(tmp_path), final)
    assert not local_files.link(part(tmp_path, "later"), final)
    assert final.read_text() == "new"
    assert not local_files.creates_exclusively(tmp_path / "parts")


def test_trouble_with_an_exclusive_rename_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_links(monkeypatch)
    with pytest.raises(FileNotFoundError):
        local_files.link(tmp_path / "missing", tmp_path / "final")


def test_other_trouble_with_a_link_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space left"):
        local_files.link(part(tmp_path), tmp_path / "final")


def test_whether_a_name_is_taken_is_known_of_a_link_that_leads_nowhere_too(tmp_path: Path) -> None:
    assert not local_files.is_taken(tmp_path / "a")
    (tmp_path / "a").symlink_to(tmp_path / "nowhere")
    assert local_files.is_taken(tmp_path / "a")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        local_files.is_taken(tmp_path / "file" / "b")


def test_a_rename_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    final = tmp_path / "final"
    final.write_text("old")
    assert local_files.rename(part(tmp_path), final)
    assert final.read_text() == "new"


def test_each_folder_that_is_made_is_flushed_in_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(local_files, "flush", flushed.append)
    local_files.make_folders(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert set(flushed) == {tmp_path, tmp_path / "a"}
    flushed.clear()
    local_files.make_folders(tmp_path / "a" / "b")
    assert flushed == []


def test_a_file_is_flushed_with_its_name_and_a_folder_that_cannot_be_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[bool] = []

    def sync(number: int) -> None:
        folder = Path(f"/proc/self/fd/{number}").readlink().is_dir()
        flushed.append(folder)
        if folder:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", sync)
    local_files.flush(part(tmp_path))
    assert flushed == [False, True]


def test_a_file_that_cannot_be_flushed_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        local_files.flush(part(tmp_path))


def test_to_look_again_leaves_nothing_and_needs_no_folder(tmp_path: Path) -> None:
    local_files.look_again(tmp_path)
    assert list(tmp_path.iterdir()) == []
    local_files.look_again(tmp_path / "missing")

"""A cached folder is complete or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.testbed.cached import made_once


def test_a_folder_is_there_when_it_is_complete_and_not_before(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "programs"
    with made_once(folder) as part:
        (part / "program").write_text("first")
        assert not folder.exists()
    assert (folder / "program").read_text() == "first"
    assert list(folder.parent.iterdir()) == [folder]


def test_nothing_is_left_of_what_failed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), made_once(tmp_path / "programs") as part:
        (part / "half").touch()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_who_comes_second_takes_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    with made_once(folder) as slow:
        (slow / "program").write_text("slow")
        with made_once(folder) as quick:
            (quick / "program").write_text("quick")
    assert (folder / "program").read_text() == "quick"
    assert list(tmp_path.iterdir()) == [folder]

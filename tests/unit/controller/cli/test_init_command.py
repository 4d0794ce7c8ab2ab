"""`reprise init`: files to begin with, and no file that is there is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli.init_command import command
from reprise.shipped import START

FILES = sorted(path.name for path in START.iterdir() if path.is_file())


def called(*words: str) -> Result:
    return CliRunner().invoke(command, words)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_file_is_written_as_it_is_shipped(here: Path) -> None:
    result = called()
    assert result.exit_code == 0
    assert sorted(p.name for p in here.iterdir()) == FILES
    assert all((here / name).read_bytes() == (START / name).read_bytes() for name in FILES)
    assert "topology.yaml" in FILES


def test_a_folder_is_made_and_how_to_go_there_is_said(here: Path) -> None:
    assert "cd a/b; reprise validate" in called("a/b").output
    assert sorted(p.name for p in (here / "a" / "b").iterdir()) == FILES


def test_where_one_is_there_none_is_written(here: Path) -> None:
    (here / FILES[-1]).write_text("mine")
    result = called()
    assert result.exit_code == 2 and f". has {FILES[-1]} already" in result.output
    assert [p.name for p in here.iterdir()] == [FILES[-1]]
    assert (here / FILES[-1]).read_text() == "mine"

"""`reprise graph`: text, or a picture of the kind that the file's name says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import graph_command
from reprise.controller.cli.graph_command import command
from reprise.controller.cli.graph_text import as_text
from reprise.spark_jobs.topology import expand
from tests.support import oncall


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.yaml"
    path.write_text(oncall.TEXT)
    return path


def called(file: Path, *words: str) -> Result:
    return CliRunner().invoke(command, ["-f", str(file), *words])


def test_without_a_file_it_is_text(file: Path) -> None:
    assert called(file).output == as_text(expand(oncall.resource()))


@pytest.mark.parametrize("name", ["a.svg", "b.png"])
def test_a_picture_is_drawn_where_it_is_asked_for(
    file: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[object, Path]] = []
    monkeypatch.setattr(graph_command, "draw", lambda topology, to: drawn.append((topology, to)))
    to = file.parent / name
    assert called(file, "--to", str(to)).output == f"{to} drawn\n"
    assert drawn == [(expand(oncall.resource()), to)]


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.SVG"])
def test_no_other_kind_of_picture(file: Path, name: str) -> None:
    result = called(file, "--to", str(file.parent / name))
    assert result.exit_code == 2 and f"{name} must end in .svg or .png" in result.output
    assert not (file.parent / name).exists()

"""`reprise verify`: of which folder, with whose modules, and which exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import verify_command
from reprise.controller.cli.verify_command import command
from reprise.controller.local.report.compare import Comparison
from reprise.spark_jobs.topology import StreamTopology
from tests.support import oncall

SAME = Comparison(7, (), (), (), ())
MARKED = Comparison(7, (), (), (), (), marked=(("count.1", 3),))
LOST = Comparison(7, (("count.1", 3),), (), (), ())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "run.json").write_text(json.dumps({"outcome": "done"}))
    (tmp_path / "topology.json").write_text(oncall.resource().document)
    return tmp_path


def called(
    monkeypatch: pytest.MonkeyPatch, out: Path, found: Comparison, *words: str
) -> tuple[Result, list[Any]]:
    asked: list[Any] = []

    def verify(resource: StreamTopology, folder: Path, ended: bool) -> Comparison:
        asked.append((resource.name, folder, ended, list(sys.path)))
        return found

    monkeypatch.setattr(verify_command, "verify", verify)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return CliRunner().invoke(command, ["--out", str(out), *words]), asked


@pytest.mark.parametrize(("found", "code"), [(SAME, 0), (MARKED, 1), (LOST, 1)])
def test_everything_but_identical_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, out: Path, found: Comparison, code: int
) -> None:
    result, _ = called(monkeypatch, out, found)
    assert result.exit_code == code
    assert result.output.startswith("identical: 7 pieces" if not code else "not identical: 7 pieces")


def test_programs_get_the_pieces(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    result, _ = called(monkeypatch, out, LOST, "-o", "json")
    assert json.loads(result.output)["missing"] == [["count.1", 3]]
    assert result.exit_code == 1


def test_ones_own_modules_come_behind_those_that_are_installed(
    monkeypatch: pytest.MonkeyPatch, out: Path
) -> None:
    _, asked = called(monkeypatch, out, SAME, "--code", str(out))
    ((name, folder, ended, path),) = asked
    assert (name, folder, ended) == ("oncall", out, True)
    assert path[-1] == str(out.resolve())


@pytest.mark.parametrize("outcome", ["timeout", "interrupted", None])
def test_a_run_that_did_not_end_is_compared_as_far_as_it_came(
    monkeypatch: pytest.MonkeyPatch, out: Path, outcome: str | None
) -> None:
    (out / "run.json").write_text(json.dumps({"outcome": outcome}))
    _, asked = called(monkeypatch, out, SAME)
    assert asked[0][2] is False

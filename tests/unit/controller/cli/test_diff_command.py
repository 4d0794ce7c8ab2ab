"""`reprise diff`: what is compared with what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli.diff_command import command
from reprise.controller.cli.target import Address
from reprise.spark_jobs.topology import override
from tests.support import oncall
from tests.support.fake_target import FakeTarget


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.yaml"
    path.write_text(oncall.TEXT)
    return path


@pytest.fixture(autouse=True)
def running(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topology runs with another priority."""
    before = override(oncall.resource(), {"operators[count].output.priority": 9})
    monkeypatch.setattr(Address, "open", lambda _: FakeTarget(before, oncall.steady()))


def called(*words: object) -> Result:
    return CliRunner().invoke(command, list(map(str, words)))


def test_a_run_in_a_folder_is_compared_with_the_file(file: Path) -> None:
    result = called("-f", file, "--out", "x", "-o", "json")
    assert result.exit_code == 0, result.output
    assert [(row["path"], row["before"], row["after"]) for row in json.loads(result.output)] == [
        ("spec.operators[count].output.priority", 9, 1)
    ]


def test_on_kubernetes_what_kubectl_adds_is_no_change(file: Path) -> None:
    result = called("oncall", "-n", "streams", "-f", file, "--set", "checkpoint.keep=9", "-o", "json")
    rows = json.loads(result.output)
    assert {row["path"] for row in rows} == {"spec.operators[count].output.priority", "spec.checkpoint.keep"}

"""`reprise approve` and `reprise restart`: both are for Kubernetes alone, and say why they are not for a run here."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import approve_command, restart_command
from reprise.controller.cli.target import Address
from reprise.controller.cli.target_kubernetes import KubernetesTarget
from tests.support import oncall
from tests.support.fake_target import FakeClusterTarget

COMMANDS = {"approve": approve_command.command, "restart": restart_command.command}


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> FakeClusterTarget:
    found = FakeClusterTarget(oncall.resource(), oncall.steady())
    for module in (approve_command, restart_command):
        monkeypatch.setattr(module, "cluster_target", lambda address, elsewhere: found)
    return found


def called(of: click.Command, *words: str) -> Result:
    return CliRunner().invoke(of, words)


def test_the_plan_that_was_read_is_approved_and_no_other(target: FakeClusterTarget) -> None:
    assert called(approve_command.command, "oncall", "--plan", "p1").output == "written\n"
    assert called(approve_command.command, "oncall").exit_code == 0
    assert target.asked == [("approve p1", True), ("approve None", True)]


def test_a_restart_asks_for_one(target: FakeClusterTarget) -> None:
    assert called(restart_command.command, "oncall").output == "written\n"
    assert target.asked == [("restart", True)]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("way", [["--out", "x"], ["--zk", "z:1", "--root", "/r", "-f", "t.yaml"]])
def test_elsewhere_it_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, way: list[str]) -> None:
    def never(_: Address) -> KubernetesTarget:
        raise AssertionError("nothing is asked")

    monkeypatch.setattr(Address, "open", never)
    result = called(COMMANDS[name], *way)
    assert (result.exit_code, "Kubernetes" in result.output) == (2, True)

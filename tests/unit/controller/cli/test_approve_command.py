"""`reprise approve` and `reprise restart`: both are for Kubernetes alone, and say why they are not for a run here."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from reprise.controller.cli import approve_command, restart_command
from reprise.controller.cli.target import Address
from reprise.controller.cli.target_kubernetes import KubernetesTarget

COMMANDS = {"approve": approve_command.command, "restart": restart_command.command}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("way", [["--out", "x"], ["--zk", "z:1", "--root", "/r", "-f", "t.yaml"]])
def test_elsewhere_it_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, way: list[str]) -> None:
    def never(_: Address) -> KubernetesTarget:
        raise AssertionError("nothing is asked")

    monkeypatch.setattr(Address, "open", never)
    result = CliRunner().invoke(COMMANDS[name], way)
    assert (result.exit_code, "Kubernetes" in result.output) == (2, True)

"""The topologies on Kubernetes: a line each by its resource, also of one that nobody has looked at."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from reprise.controller.cli import list_command
from reprise.controller.cli.list_command import command, row


@pytest.mark.parametrize(
    "status", [None, {}, {"conditions": None}, {"conditions": [{"type": "Valid", "status": "True"}]}]
)
def test_one_that_was_not_looked_at_is_unknown(status: Any) -> None:
    found = row({"metadata": {"namespace": "streams", "name": "new"}, "status": status})
    assert (found["ready"], found["reason"], found["queries"], found["nodes"], found["incident"]) == (
        "Unknown", "NotLookedAtYet", "-", "-", "-",
    )  # fmt: skip


def test_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_command, "listed", lambda *_: [])
    assert CliRunner().invoke(command).output == "no topologies\n"
    assert CliRunner().invoke(command, ["-o", "json"]).output == "[]\n"

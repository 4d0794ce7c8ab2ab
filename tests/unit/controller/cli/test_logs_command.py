"""`reprise logs`: lines of each pod, in which nothing is left that a terminal would obey."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import logs_command
from reprise.controller.cli.logs_command import _harmless, command
from tests.support import oncall
from tests.support.fake_target import FakeClusterTarget


def called(monkeypatch: pytest.MonkeyPatch, target: FakeClusterTarget, *words: str) -> Result:
    monkeypatch.setattr(logs_command, "cluster_target", lambda address, elsewhere: target)
    return CliRunner().invoke(command, words)


def of(**pods: str) -> FakeClusterTarget:
    return FakeClusterTarget(oncall.resource(), oncall.steady(), pods=pods)


@pytest.mark.parametrize("tail", ["0", "100001", "x"])
def test_no_number_of_lines_that_a_server_would_refuse(monkeypatch: pytest.MonkeyPatch, tail: str) -> None:
    target = of(a="x")
    assert called(monkeypatch, target, "oncall", "--tail", tail).exit_code == 2
    assert target.asked == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("over\rwritten", "over\\rwritten"),
        ("\x00\x07\x7f\x9b2J", "\\x00\\x07\\x7f\\x9b2J"),
        ("ä \u20ac ", "ä \u20ac "),
        ("", ""),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert _harmless(text) == shown

"""`reprise logs`: lines of each pod, in which nothing is left that a terminal would obey."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

from reprise.controller.cli import logs_command
from reprise.controller.cli.logs_command import _harmless, command


def test_so_many_lines_of_that_role_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    target = MagicMock()
    target.__enter__().logs.return_value = [("a", "one\n\x07\n")]
    monkeypatch.setattr(logs_command, "cluster_target", lambda *_: target)
    result = CliRunner().invoke(command, ["oncall", "--role", "executor", "--tail", "20"])
    target.__enter__().logs.assert_called_once_with("executor", 20)
    assert result.output == "==> a <==\none\n\\x07\n"


@pytest.mark.parametrize("tail", ["0", "100001", "x"])
def test_no_number_of_lines_that_a_server_would_refuse(tail: str) -> None:
    result = CliRunner().invoke(command, ["oncall", "--tail", tail])
    assert (result.exit_code, "--tail" in result.output) == (2, True)


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

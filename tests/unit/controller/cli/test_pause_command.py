"""`reprise pause` and `reprise resume`: each asks for one thing, and says what was written where."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli.exits import NotRunningError
from reprise.controller.cli.pause_command import command, resume
from reprise.controller.cli.target import Address
from tests.support import oncall
from tests.support.fake_target import FakeTarget


def called(
    monkeypatch: pytest.MonkeyPatch, of: click.Command, *words: str
) -> tuple[Result, FakeTarget, list[Address]]:
    target, asked = FakeTarget(oncall.resource(), oncall.steady()), list[Address]()

    def opened(address: Address) -> FakeTarget:
        asked.append(address)
        return target

    monkeypatch.setattr(Address, "open", opened)
    return CliRunner().invoke(of, words), target, asked


@pytest.mark.parametrize(("of", "paused"), [(command, True), (resume, False)])
def test_it_asks_once_and_says_what_was_written(
    monkeypatch: pytest.MonkeyPatch, of: click.Command, paused: bool
) -> None:
    result, target, asked = called(monkeypatch, of, "--out", "x")
    assert (result.output, result.exit_code) == ("written\n", 0)
    assert target.asked == [("pause", paused)]
    assert asked == [Address(out=Path("x"))]


def test_on_kubernetes_the_topology_is_named_as_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, asked = called(monkeypatch, command, "oncall", "-n", "streams")
    assert asked == [Address(name="oncall", namespace="streams")]


def test_what_does_not_answer_is_not_said_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> str:
        raise NotRunningError("ZooKeeper does not answer")

    monkeypatch.setattr(FakeTarget, "pause", away)
    result, _, _ = called(monkeypatch, command, "--out", "x")
    assert result.output == "" and isinstance(result.exception, NotRunningError)

"""`reprise status`: once, or again and again until nothing more comes; and by the resources where the page is away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli.status_command import command
from reprise.controller.cli.target import Address
from reprise.controller.cli.target_kubernetes import PageError
from tests.support import oncall
from tests.support.fake_target import FakeTarget

SEEN = (oncall.steady(), oncall.after_the_burst())


def called(monkeypatch: pytest.MonkeyPatch, target: FakeTarget, *words: str) -> Result:
    monkeypatch.setattr(Address, "open", lambda _: target)
    return CliRunner().invoke(command, ["--out", "x", *words])


def test_one_look_is_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    result = called(monkeypatch, FakeTarget(oncall.resource(), *SEEN))
    assert result.exit_code == 0
    assert "count.3" in result.output and "incident" not in result.output


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_that_watch_get_one_document_after_the_other(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    result = called(
        monkeypatch, FakeTarget(oncall.resource(), *SEEN), "--watch", "--interval", "0", "-o", form
    )
    assert result.exit_code == 0
    if form == "json":
        decoder, text, found = json.JSONDecoder(), result.output.lstrip(), []
        while text:
            value, end = decoder.raw_decode(text)
            found.append(value)
            text = text[end:].lstrip()
        assert [one["time"] for one in found] == [one.time for one in SEEN]
    else:
        assert sum(line.startswith("time:") for line in result.output.splitlines()) == len(SEEN)


def test_a_watch_ends_when_there_is_nothing_more_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(oncall.resource(), *SEEN)
    result = called(monkeypatch, target, "--watch", "--interval", "0")
    assert result.exit_code == 0
    assert target.is_over()
    assert "incident" in result.output, "the last page is that of the end"


class AwayTarget(FakeTarget):
    """The controller's page cannot be asked; `known`: the objects."""

    known: dict[str, Any] | None = None

    def document(self) -> Any:
        raise PageError("no pod answers")

    def resources(self) -> dict[str, Any] | None:
        return self.known


def test_where_the_page_is_away_the_resources_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    target = AwayTarget(oncall.resource(), oncall.steady())
    topology = {"metadata": {"namespace": "streams", "name": "oncall"}, "status": {"position": 20}}
    target.known = {"topology": topology, "incidents": [], "plans": []}
    result = called(monkeypatch, target)
    assert result.exit_code == 0, result.output
    assert "streams/oncall  batch 20" in result.output
    assert "from the resources alone: no pod answers" in result.output
    assert json.loads(called(monkeypatch, target, "-o", "json").output) == target.known

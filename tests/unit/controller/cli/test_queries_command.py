"""`reprise queries`: every query, those that are down first, all or those of one state."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli.queries_command import command
from reprise.controller.cli.queries_table import BY_NEED, STYLES, rest_line, state_text
from reprise.controller.cli.target import Address
from reprise.controller.status.query_state import Status
from reprise.controller.zookeeper.observation import Observation
from tests.support import oncall
from tests.support.fake_target import FakeTarget


def called(monkeypatch: pytest.MonkeyPatch, seen: Observation, *words: str) -> Result:
    monkeypatch.setattr(Address, "open", lambda _: FakeTarget(oncall.resource(), seen))
    return CliRunner().invoke(command, ["--out", "x", *words])


def test_what_is_down_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(called(monkeypatch, oncall.after_the_burst(), "-o", "json").output)
    order = ["waiting", "recovering", "available"]
    states = [order.index(query["state"]) for query in found]
    assert states == sorted(states) and states[0] < 2
    assert {query["id"] for query in found} == {"count.0", "count.1", "count.2", "count.3"}


def test_one_state_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    every = json.loads(called(monkeypatch, oncall.after_the_burst(), "-o", "json").output)
    for state in ("waiting", "recovering", "available"):
        some = json.loads(
            called(monkeypatch, oncall.after_the_burst(), "--state", state, "-o", "json").output
        )
        assert some == [query for query in every if query["state"] == state]
    assert called(monkeypatch, oncall.steady(), "--state", "down").exit_code == 2


@pytest.mark.parametrize("form", ["table", "wide"])
def test_people_get_a_line_for_each(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    result = called(monkeypatch, oncall.after_the_burst(), "-o", form)
    assert result.exit_code == 0
    for query in ("count.0", "count.1", "count.2", "count.3"):
        assert any(line.startswith(query) for line in result.output.splitlines())


def test_of_none_there_is_an_empty_list(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called(monkeypatch, oncall.steady(), "--state", "waiting", "-o", "json").output == "[]\n"
    assert called(monkeypatch, oncall.steady(), "--state", "waiting").exit_code == 0


def test_every_state_has_a_colour_and_a_place() -> None:
    assert set(STYLES) == set(BY_NEED) == set(Status)
    for state in Status:
        assert (state_text(state).plain, state_text(state).style) == (state.value, STYLES[state])


def test_what_is_most_in_need_is_counted_first_and_what_there_is_none_of_is_left_out() -> None:
    states = [Status.AVAILABLE, Status.WAITING, Status.AVAILABLE]
    assert rest_line(states).plain == "and 3 more: 1 waiting, 2 available"

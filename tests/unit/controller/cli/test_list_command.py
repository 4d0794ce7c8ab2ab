"""The topologies on Kubernetes: a line each by its resource, also of one that nobody has looked at."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.controller.cli import list_command
from reprise.controller.cli.list_command import command, row
from reprise.controller.cli.target import Address

READY = {
    "metadata": {"namespace": "streams", "name": "flights"},
    "status": {
        "conditions": [{"type": "Valid", "status": "True"}, {"type": "Ready", "status": "True", "reason": "AllAvailable"}],
        "queries": {"summary": "22/22"}, "nodes": {"summary": "10/10"}, "incident": "flights-inc-000003",
    },
}  # fmt: skip
NEW = {"metadata": {"namespace": "streams", "name": "a-topology-with-a-very-long-name-that-is-never-cut"}}


def test_what_a_line_says() -> None:
    assert row(READY) == {
        "namespace": "streams", "name": "flights", "ready": "True", "reason": "AllAvailable", "queries": "22/22",
        "nodes": "10/10", "incident": "flights-inc-000003",
    }  # fmt: skip


@pytest.mark.parametrize(
    "status", [None, {}, {"conditions": None}, {"conditions": [{"type": "Valid", "status": "True"}]}]
)
def test_one_that_was_not_looked_at_is_unknown(status: Any) -> None:
    found = row({**NEW, "status": status})
    assert (found["ready"], found["reason"], found["queries"], found["nodes"], found["incident"]) == (
        "Unknown", "NotLookedAtYet", "-", "-", "-",
    )  # fmt: skip


def asked(
    monkeypatch: pytest.MonkeyPatch, found: list[Any], *words: str
) -> tuple[Result, list[tuple[Address, bool]]]:
    calls: list[tuple[Address, bool]] = []

    def listed(address: Address, everywhere: bool) -> list[Any]:
        calls.append((address, everywhere))
        return found

    monkeypatch.setattr(list_command, "listed", listed)
    return CliRunner().invoke(command, words), calls


def test_people_get_a_table_in_which_no_name_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = asked(monkeypatch, [READY, NEW], "-n", "streams")
    head, *lines = result.output.splitlines()
    assert head.split() == ["namespace", "name", "ready", "reason", "queries", "nodes", "incident"]
    assert [line.split()[1] for line in lines] == ["flights", NEW["metadata"]["name"]]
    assert calls == [(Address(namespace="streams"), False)]


def test_programs_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = asked(monkeypatch, [READY], "-A", "-o", "json")
    assert json.loads(result.output) == [row(READY)]
    assert calls == [(Address(), True)]
    assert asked(monkeypatch, [], "-o", "json")[0].output == "[]\n"


def test_none_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, [])[0].output == "no topologies\n"


def test_one_namespace_and_all_of_them_do_not_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = asked(monkeypatch, [], "-n", "streams", "-A")
    assert result.exit_code == 2 and "-n and -A are two ways" in result.output
    assert calls == []

"""`reprise incident export`: of which incident, from which records, and what is damaged in a run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from reprise.controller.cli import incident_command
from reprise.controller.cli.incident_command import _chosen, _records, export_command
from reprise.controller.cli.recorded import heartbeats
from reprise.controller.cli.target import Address
from reprise.controller.errors import ReportError
from reprise.controller.zookeeper.recovery_records import encode_incident, encode_plan
from tests.support import oncall
from tests.support.fake_target import FakeTarget

PLAYED = oncall.played()
LAST = PLAYED.last
INCIDENTS = [*PLAYED.closed, *([LAST.incident] if LAST is not None and LAST.incident is not None else [])]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    plans = {
        "incidents": [json.loads(encode_incident(one)) for one in INCIDENTS],
        "plans": [json.loads(encode_plan(one)) for one in PLAYED.plans],
    }
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    (tmp_path / "topology.json").write_text(oncall.resource().document)
    record(tmp_path, ended=oncall.START + 100)
    return tmp_path


def record(out: Path, **fields: Any) -> None:
    (out / "run.json").write_text(json.dumps({"outcome": "done", **fields}))


def test_a_run_that_has_ended_is_read_from_its_folder(out: Path) -> None:
    topology, seen = _records(Address(out=out))
    assert set(topology.queries) == {"count.0", "count.1", "count.2", "count.3"}
    assert seen.time == oncall.START + 100
    assert [one.id for one in seen.incidents] == [one.id for one in INCIDENTS]
    assert set(seen.plans) == {plan.id for plan in PLAYED.plans}


def test_without_a_time_of_its_end_the_last_incident_says_it(out: Path) -> None:
    record(out)
    _, seen = _records(Address(out=out))
    assert seen.time == max(one.closed_at or one.opened_at for one in INCIDENTS)


@pytest.mark.parametrize("ended", ["soon", None, [], float("nan"), float("inf"), 10**400])
def test_a_time_that_is_none_is_named(out: Path, ended: object) -> None:
    record(out, ended=ended)
    with pytest.raises(ReportError, match=r"run\.json: ended: not what a run writes there"):
        _records(Address(out=out))


def test_elsewhere_the_records_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = oncall.after_the_burst()
    monkeypatch.setattr(Address, "open", lambda _: FakeTarget(oncall.resource(), seen))
    _, found = _records(Address(zk="z", root="/r", file=Path("t.yaml")))
    assert found is seen


def test_the_newest_is_meant_unless_another_is_named() -> None:
    assert _chosen(INCIDENTS, None) is INCIDENTS[-1]
    assert _chosen(INCIDENTS, INCIDENTS[0].id) is INCIDENTS[0]
    with pytest.raises(click.BadParameter, match=f"no incident 'inc-999999'; there are {INCIDENTS[0].id}"):
        _chosen(INCIDENTS, "inc-999999")
    with pytest.raises(click.UsageError, match="no incident is on record there"):
        _chosen([], None)


def test_arrivals_that_a_run_has_noted(out: Path) -> None:
    assert heartbeats(out) == []
    record(
        out, actions=[{"action": "kill", "time": 1}, {"action": "arrived", "time": 2, "nodes": ["n4", "n5"]}]
    )
    assert heartbeats(out) == [(2.0, "n4"), (2.0, "n5")]


@pytest.mark.parametrize(
    "actions",
    [
        7,
        ["x"],
        [{"time": 1}],
        [{"action": "arrived", "nodes": ["n4"]}],
        [{"action": "arrived", "nodes": ["n4"], "time": "x"}],
    ],
)
def test_actions_of_another_kind_are_named(out: Path, actions: object) -> None:
    record(out, actions=actions)
    with pytest.raises(ReportError, match=r"run\.json: actions"):
        heartbeats(out)


def test_what_was_written_is_listed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def export(_story: object, _points: object, folder: Path) -> list[Path]:
        folders.append(folder)
        return [folder / "postmortem.md"]

    monkeypatch.setattr(incident_command, "export", export)
    result = CliRunner().invoke(export_command, ["--out", str(out)])
    assert result.exit_code == 0, result.output
    expected = out / f"postmortem-{INCIDENTS[-1].id}"
    assert folders == [expected]
    assert result.output == f"{expected / 'postmortem.md'}\n"
    CliRunner().invoke(export_command, [INCIDENTS[0].id, "--out", str(out), "--to", str(out / "x")])
    assert folders[1:] == [out / "x"]

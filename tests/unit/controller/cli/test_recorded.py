"""The planning questions of a run's folder, put again; what is missing or damaged there is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms import solve
from reprise.controller.cli.recorded import recorded, recorded_plans
from reprise.controller.errors import ReportError
from reprise.controller.zookeeper.recovery_records import encode_incident, encode_plan
from tests.support import oncall

PLAYED = oncall.played()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    incidents = [*PLAYED.closed]
    if PLAYED.last is not None and PLAYED.last.incident is not None:
        incidents.append(PLAYED.last.incident)
    plans = {
        "incidents": [json.loads(encode_incident(one)) for one in reversed(incidents)],
        "plans": [json.loads(encode_plan(one)) for one in reversed(PLAYED.plans)],
    }
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    (tmp_path / "topology.json").write_text(oncall.resource().document)
    return tmp_path


def change(folder: Path, **changes: Any) -> None:
    file = folder / "plans.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_everything_is_there_and_the_oldest_comes_first(folder: Path) -> None:
    topology, incidents, plans = recorded(folder)
    assert set(topology.queries) == {"count.0", "count.1", "count.2", "count.3"}
    assert [one.turn for one in incidents] == sorted(one.turn for one in incidents)
    assert [plan.id for plan in plans] == [plan.id for plan in PLAYED.plans]
    assert len(plans) > 1


def test_a_question_that_is_put_again_has_the_same_answer(folder: Path) -> None:
    found = recorded_plans(folder)
    assert [one.id for one in found] == [plan.id for plan in PLAYED.plans]
    for one in found:
        answer = solve(one.instance)
        assert answer.value == one.plan["value"]
        assert sorted(answer.queries) == sorted(one.plan["queries"])  # type: ignore[call-overload]


def test_a_plan_whose_incident_is_not_there_is_left_out(folder: Path) -> None:
    change(folder, incidents=[])
    assert recorded_plans(folder) == []


@pytest.mark.parametrize("name", ["plans.json", "topology.json"])
def test_a_run_that_has_not_finished_is_said_to_be_none(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ReportError, match=rf"no finished run there \(no {name}\)"):
        recorded(folder)

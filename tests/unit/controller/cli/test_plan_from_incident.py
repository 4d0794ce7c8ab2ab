"""`reprise plan --from-incident`: the questions of a recorded run put again, and records that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprise.algorithms import solve
from reprise.controller.cli import main
from reprise.controller.cli.recorded import recorded, recorded_plans
from reprise.controller.errors import ReportError
from reprise.controller.zookeeper.recovery_records import encode_incident, encode_plan
from reprise.scheduler import Incident, Kind, Phase, PlanRecord
from reprise.scheduler.incident import Candidate, Trigger
from reprise.spark_jobs.topology import expand, load_topology, to_json
from tests.support import oncall

MINIMAL = Path(__file__).parents[4] / "examples" / "minimal.yaml"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a run leaves behind, by the writers that it uses: one plan with room for one query of two."""
    resource = load_topology(MINIMAL)
    topology = expand(resource)
    sinks = ("count.0", "count.1")
    costs = dict.fromkeys(sinks, 40)
    incident = Incident(
        "inc-1", Kind.CORRELATED, Phase.CLOSED, 1022.0, 10, 2, 3, 1023.0,
        plans=("inc-1-p1",), costs=costs, closed_at=1035.0,
    )  # fmt: skip
    candidates = tuple(Candidate(sink, 2 + i, 40) for i, sink in enumerate(sinks))
    plan = PlanRecord(
        "inc-1-p1", "inc-1", 1023.0, Trigger.FIRST, True, 10, 2, {"n1#1": 50}, candidates,
        {"value": 2, "algorithm": "best-density"}, {"count.0": "n1#1"}, 0.01, {}, pending=sinks,
    )  # fmt: skip
    assert set(sinks) <= set(topology.partitions)
    (tmp_path / "topology.json").write_text(to_json(resource))
    records = {"incidents": [encode_incident(incident)], "plans": [encode_plan(plan)]}
    whole = {name: [json.loads(raw) for raw in raws] for name, raws in records.items()}
    (tmp_path / "plans.json").write_text(json.dumps(whole))
    return tmp_path


def again(folder: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["plan", "--from-incident", str(folder), *more])


def test_the_recorded_answer_stands_beside_the_one_of_now(run: Path) -> None:
    (pair,) = json.loads(again(run, "--algorithm", "ilp", "-o", "json").output)
    assert (pair["id"], pair["recorded"]["value"], pair["again"]["value"]) == ("inc-1-p1", 2, 3)
    assert pair["again"]["placement"] == {"count.1": "n1#1"}
    table = again(run).output
    assert "inc-1-p1" in table
    assert "50m" in table


def change(folder: Path, *path: str | int, value: Any) -> None:
    whole = json.loads((folder / "plans.json").read_text())
    at = whole
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    (folder / "plans.json").write_text(json.dumps(whole))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("incidents", 0, "costs"), {"count.0": 40}, "costs: no partition 'count.1'"),
        (("plans", 0, "pending"), ["ghost.0"], "no partition 'ghost.0'"),
        (("plans", 0, "candidates", 0, "query"), "ghost.1", "no query 'ghost.1'"),
        (("plans", 0, "free"), {"n1#1": "much"}, "free"),
        (("plans",), 7, "not the plans of a run"),
    ],
)
def test_a_damaged_record_gets_one_line_that_names_it(
    run: Path, path: tuple[str | int, ...], value: object, said: str
) -> None:
    change(run, *path, value=value)
    wrong = again(run)
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert said in wrong.stderr
    assert "plans.json" in wrong.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An incident with several plans, the newest first."""
    played = oncall.played()
    plans = {
        "incidents": [json.loads(encode_incident(one)) for one in reversed(played.closed)],
        "plans": [json.loads(encode_plan(one)) for one in reversed(played.plans)],
    }
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    (tmp_path / "topology.json").write_text(oncall.resource().document)
    return tmp_path


def test_everything_is_there_and_the_oldest_comes_first(folder: Path) -> None:
    topology, incidents, plans = recorded(folder)
    assert set(topology.queries) == {"count.0", "count.1", "count.2", "count.3"}
    assert [one.turn for one in incidents] == sorted(one.turn for one in incidents)
    assert [plan.id for plan in plans] == [plan.id for plan in oncall.played().plans]
    assert len(plans) > 1


def test_a_question_that_is_put_again_has_the_same_answer(folder: Path) -> None:
    found = recorded_plans(folder)
    assert [one.id for one in found] == [plan.id for plan in oncall.played().plans]
    for one in found:
        answer = solve(one.instance)
        assert answer.value == one.plan["value"]
        assert sorted(answer.queries) == sorted(one.plan["queries"])  # type: ignore[call-overload]


def test_a_plan_whose_incident_is_not_there_is_left_out(folder: Path) -> None:
    change(folder, "incidents", value=[])
    assert recorded_plans(folder) == []


@pytest.mark.parametrize("name", ["plans.json", "topology.json"])
def test_a_run_that_has_not_finished_is_said_to_be_none(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ReportError, match=rf"no finished run there \(no {name}\)"):
        recorded(folder)

"""The report of a whole made-up run: what is in incident.json, and that the pictures are there."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reprise.controller.agent.processes import inspect
from reprise.controller.cli.carry_out import verdict
from reprise.controller.cli.history_command import queries_table
from reprise.controller.local.errors import OutDirError
from reprise.controller.local.report.layout import (
    Layout,
    is_running,
    new_record,
    prepare,
    read_record,
    write_json,
)
from reprise.controller.local.report.versus import draw_versus, since_failure
from reprise.controller.local.report.write import write_report
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.controller.status.timeline import incident_entry
from reprise.scheduler import Event, Incident, Kind, LostNode, Phase, PlanRecord, QueryTimeline
from reprise.scheduler.incident import Trigger
from reprise.spark_jobs.topology import StreamTopology, load_topology, override

MINIMAL = Path(__file__).parents[5] / "examples" / "minimal.yaml"


@pytest.fixture(scope="module")
def resource() -> StreamTopology:
    return override(load_topology(MINIMAL), {"batch.interval": "1s"})


def _write_events(layout: Layout, zero: float, lost_from: int, back: float) -> None:
    lines = []
    for batch in range(1, 41):
        due = zero + batch
        for query, late in (("count.0", batch >= lost_from and batch < back), ("count.1", False)):
            at = zero + back if late else due + 0.5
            lines.append(json.dumps({"query": query, "batch": batch, "at": at, "due": due}))
    layout.events.write_text("\n".join(lines) + "\n")


INCIDENT = Incident(
    "inc-1", Kind.CORRELATED, Phase.CLOSED, 1022.0, 10, 2, 3, 1023.0,
    lost=(LostNode("n3#1", 1021.9),), plans=("inc-1-p1",), costs={"count.0": 40},
    queries={"count.0": QueryTimeline(1022.0, 1028.0, 1030.0)},
    events=(Event.of(1022.0, "opened", "1 node"), Event.of(1023.0, "plan", "twice told")), closed_at=1035.0,
)  # fmt: skip
PLAN = PlanRecord(
    "inc-1-p1", "inc-1", 1023.0, Trigger.FIRST, True, 10, 2, {"n1#1": 80}, (),
    {"queries": ["count.0"], "value": 5, "bound": 5, "optimal": True, "algorithm": "ilp"}, {"count.0": "n1#1"}, 0.01, {},
)  # fmt: skip


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run") / "out"


@pytest.fixture(scope="module")
def report(out: Path, resource: StreamTopology) -> dict[str, Any]:
    layout = prepare(out, resource, resume=False)
    _write_events(layout, 1000.0, 21, 30.0)
    actions = [
        {"time": 1000.0, "action": "stream-began"},
        {"time": 1020.6, "action": "kill", "nodes": ["n3"]},
        {"time": 1027.0, "action": "arrived", "nodes": ["n4"], "took": 3.0},
    ]
    record = new_record(resource) | {"zero": 1000.0, "outcome": "done", "ended": 1042.0, "actions": actions}
    return write_report(layout, resource, record, [INCIDENT], [PLAN], {"pause_s": 0.5, "skipped": 2})


def test_the_timeline_is_in_order_and_tells_each_thing_once(report: dict[str, Any]) -> None:
    story = [(line["elapsed"], line["what"]) for line in report["timeline"]]
    assert story == [
        (0.0, "stream-began"),
        (20.6, "kill"),
        (22.0, "opened"),
        (23.0, "plan"),
        (27.0, "arrived"),
    ]
    assert report["timeline"][3]["detail"].endswith(
        "brings back count.0 (summed priority 5, the most that is possible)"
    )


def test_what_checkpoints_have_cost_is_as_the_driver_has_told(report: dict[str, Any]) -> None:
    assert report["checkpoints"] == {"pause_s": 0.5, "skipped": 2}


def test_recovery_times_are_per_query(report: dict[str, Any]) -> None:
    (incident,) = report["incidents"]
    query = incident["queries"]["count.0"]
    assert (query["lost"], query["restored_after_s"], query["recovery_s"]) == (22.0, 6.0, 8.0)
    assert incident["plans"][0]["added"] == {"count.0": "n1#1"}
    assert report["queries"]["count.0"]["available_again_s"] == pytest.approx(30.0 + 3.0 - 20.6, abs=0.5)
    assert report["queries"]["count.1"]["available_again_s"] == 0.0


def test_a_run_says_of_every_query_how_long_it_was_down_or_how_long_at_least(
    resource: StreamTopology,
) -> None:
    queries = {
        "count.0": QueryTimeline(1022.0, 1028.0, 1030.0),
        "count.1": QueryTimeline(1022.5, 1028.0, None, 2, relapses=1, up_s=2.0),
    }
    closed = replace(INCIDENT, queries=queries)
    entry = incident_entry(closed, {}, {"count.0": 5, "count.1": 1}, 1000.0, 1099.0)
    assert entry["recovery"] == "1 of 2 back, down for 8.0 s; 1 not measured (at least 10.5 s); 1 relapse"
    assert (entry["queries"]["count.1"]["recovery_s"], entry["queries"]["count.1"]["at_least_s"]) == (
        None,
        10.5,
    )
    result = RunResult(Outcome.DONE, Path("out"), {}, {"incidents": [entry]})
    console = Console(record=True, width=200)
    verdict(console, result)
    assert f"2 queries lost: {entry['recovery']}" in console.export_text()
    console.print(queries_table(entry, {}))
    assert "at least 10.5 s" in console.export_text()


def test_relative_latency_is_a_series_that_returns_to_one(report: dict[str, Any]) -> None:
    relative = report["series"]["relative_latency"]["count.0"]
    assert len(relative) == len(report["series"]["elapsed"]) == len(report["series"]["share"])
    assert max(relative) > 10
    assert relative[-1] == pytest.approx(1.0, abs=0.1)
    assert min(report["series"]["share"]) == pytest.approx(1 / 6, abs=0.01)
    assert report["criterion"]["theta"] == 1.2


def test_files_can_be_read_and_the_pictures_are_pictures(report: dict[str, Any], out: Path) -> None:
    assert json.loads((out / "incident.json").read_text()) == report
    assert len(json.loads((out / "plans.json").read_text())["plans"]) == 1
    assert (out / "queries.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (out / "queries.svg").read_text()


def test_runs_side_by_side(report: dict[str, Any], tmp_path: Path) -> None:
    curve = since_failure(report)
    assert curve.elapsed[0] >= -5.0
    assert curve.arrivals == (pytest.approx(6.4),)
    stem = draw_versus({"incremental": curve, "blocking": curve}, tmp_path / "versus")
    assert stem.with_suffix(".png").stat().st_size > 1000


def test_a_run_that_wrote_nothing_has_a_report_too(tmp_path: Path, resource: StreamTopology) -> None:
    layout = prepare(tmp_path / "out", resource, resume=False)
    report = write_report(layout, resource, new_record(resource) | {"outcome": "failed"}, [], [])
    assert report["checkpoints"] is None
    assert report["timeline"] == []
    assert "series" not in report
    assert not layout.plot.with_suffix(".png").exists()


def test_a_folder_holds_one_run_unless_it_is_resumed(tmp_path: Path, resource: StreamTopology) -> None:
    layout = prepare(tmp_path / "out", resource, resume=False)
    write_json(layout.record, new_record(resource) | {"outcome": "timeout"})
    with pytest.raises(OutDirError, match=r"earlier run.*--resume"):
        prepare(tmp_path / "out", resource, resume=False)
    prepare(tmp_path / "out", resource, resume=True)
    assert read_record(tmp_path / "out") is None
    assert json.loads((tmp_path / "out" / "run-1.json").read_text())["outcome"] == "timeout"


def test_another_dataflow_cannot_resume(tmp_path: Path, resource: StreamTopology) -> None:
    prepare(tmp_path / "out", resource, resume=False)
    other = override(resource, {"sources[tweets].parallelism": 7})
    with pytest.raises(
        OutDirError, match=r"spec\.sources\[tweets\]\.parallelism was 1 and is 7\..*reprise savepoint NAME"
    ):
        prepare(tmp_path / "out", other, resume=True)
    prepare(tmp_path / "out", override(resource, {"nodes.count": 7}), resume=True)
    # whether other code may go on depends on what was shown
    prepare(tmp_path / "out", override(resource, {"sources[tweets].with.rate": 7}), resume=True)
    with pytest.raises(OutDirError, match="no run to resume"):
        prepare(tmp_path / "other", resource, resume=True)


def test_a_run_of_a_version_that_had_other_fields_can_be_resumed(
    tmp_path: Path, resource: StreamTopology
) -> None:
    """Its graph is compared, and nothing else of its topology is needed."""
    layout = prepare(tmp_path / "out", resource, resume=False)
    before = json.loads(layout.topology.read_text())
    before["spec"]["recovery"]["ofAnotherVersion"] = 7
    layout.topology.write_text(json.dumps(before))
    prepare(tmp_path / "out", resource, resume=True)
    before["spec"]["operators"].pop()
    layout.topology.write_text(json.dumps(before))
    with pytest.raises(
        OutDirError, match=r"spec\.operators\[\w+\] was not there and is {.*reprise run --from-savepoint"
    ):
        prepare(tmp_path / "out", resource, resume=True)


def test_a_folder_in_use_is_refused(tmp_path: Path, resource: StreamTopology) -> None:
    layout = prepare(tmp_path / "out", resource, resume=False)
    parent = inspect(1)
    assert parent is not None
    write_json(layout.record, new_record(resource) | {"pid": 1, "pid_started": parent.started})
    with pytest.raises(OutDirError, match="in use by process 1"):
        prepare(tmp_path / "out", resource, resume=True)


@pytest.mark.parametrize(
    "pid", [None, "x", float("inf"), [], {}, True, -1, 2**70], ids=lambda pid: f"pid={pid!r}"
)
def test_a_record_whose_process_cannot_be_one_is_of_none_that_runs(pid: object) -> None:
    assert not is_running({"pid": pid, "pid_started": None, "outcome": "running"})


def test_a_process_of_another_start_with_the_same_number_is_not_the_one_that_ran() -> None:
    parent = inspect(1)
    assert parent is not None
    running = {"pid": 1, "pid_started": parent.started, "outcome": "running"}
    assert is_running(running)
    assert not is_running({**running, "pid_started": parent.started + 1})
    assert not is_running({**running, "outcome": "done"})
    assert not is_running({**running, "pid": os.getpid(), "pid_started": None}), (
        "whoever asks is not in its own way"
    )


@pytest.mark.parametrize("damage", ["", "{", "[7]", '{"metadata": []}', "null", "\udcff"])
def test_a_run_whose_topology_cannot_be_read_is_not_resumed(
    tmp_path: Path, resource: StreamTopology, damage: str
) -> None:
    layout = prepare(tmp_path / "out", resource, resume=False)
    write_json(layout.record, new_record(resource) | {"outcome": "timeout"})
    layout.topology.write_text(damage, errors="surrogateescape")
    with pytest.raises(OutDirError, match=r"^--resume: .*topology\.json: not the topology of a run"):
        prepare(tmp_path / "out", resource, resume=True)
    assert layout.record.exists(), "what is there stays as it was"


def test_each_attempt_keeps_its_records_under_its_number(tmp_path: Path, resource: StreamTopology) -> None:
    out = tmp_path / "out"
    layout = prepare(out, resource, resume=False)
    for attempt in (1, 2, 3):
        write_json(layout.record, new_record(resource) | {"outcome": f"attempt {attempt}"})
        if attempt != 2:  # that one was killed before it had written a report
            write_json(layout.incident, {"attempt": attempt})
        prepare(out, resource, resume=True)
    kept = {path.name: json.loads(path.read_text()) for path in out.glob("*-*.json")}
    assert sorted(kept) == ["incident-1.json", "incident-3.json", "run-1.json", "run-2.json", "run-3.json"]
    assert [kept[f"run-{n}.json"]["outcome"] for n in (1, 2, 3)] == ["attempt 1", "attempt 2", "attempt 3"]
    assert kept["incident-3.json"] == {"attempt": 3}
    assert not layout.record.exists() and not layout.incident.exists()


def test_a_folder_that_is_a_file_is_said(tmp_path: Path, resource: StreamTopology) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OutDirError, match=r"out"):
        prepare(tmp_path / "out", resource, resume=False)

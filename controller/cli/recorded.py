"""The planning questions of a recorded run, put again: plans.json holds all that each plan rested on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reprise.algorithms import Instance
from reprise.controller.analysis.postmortem.story import instance_of
from reprise.controller.errors import ReportError
from reprise.controller.local.report.layout import read_record
from reprise.controller.status.actions import ARRIVED
from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.recovery_records import parse_incident, parse_plan
from reprise.scheduler.incident import Incident, PlanRecord
from reprise.spark_jobs.topology import Topology, expand, from_json


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A plan's question, and the answer that was given."""

    id: str
    instance: Instance
    plan: Mapping[str, object]


def recorded_plans(folder: Path, edges: bool = False) -> list[RecordedPlan]:
    """All plans of a run folder, oldest first; `edges` as `instance_of` has it.  ReportError names what is missing
    or damaged."""
    topology, incidents, plans = recorded(folder)
    by_id = {incident.id: incident for incident in incidents}
    source = str(folder / "plans.json")
    return [
        RecordedPlan(plan.id, instance_of(plan, by_id[plan.incident], topology, source, edges), plan.plan)
        for plan in plans
        if plan.incident in by_id
    ]


def recorded(folder: Path) -> tuple[Topology, list[Incident], list[PlanRecord]]:
    """Topology, incidents and plans of a run folder, oldest first.  ReportError as above."""
    path = folder / "plans.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        topology = expand(from_json((folder / "topology.json").read_text(encoding="utf-8")))
        incidents = [parse_incident(json.dumps(i).encode(), str(path)) for i in data["incidents"]]
        plans = [parse_plan(json.dumps(p).encode(), str(path)) for p in data["plans"]]
    except FileNotFoundError as error:
        raise ReportError(f"{folder}: no finished run there (no {Path(error.filename).name})") from None
    except RecordError as error:
        raise ReportError(str(error)) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReportError(f"{path}: not the plans of a run: {error!r}") from error
    plans.sort(key=lambda plan: plan.turn)
    incidents.sort(key=lambda incident: incident.turn)
    return topology, incidents, plans


def heartbeats(folder: Path) -> list[tuple[float, str]]:
    """(time, node) of each arrival that the run in `folder` recorded.  ReportError names the field that is damaged."""
    actions = (read_record(folder) or {}).get("actions", [])
    with named(folder, "actions"):
        return [
            (float(a["time"]), str(name))
            for a in actions
            if a["action"] == ARRIVED
            for name in a.get("nodes", [])
        ]


@contextlib.contextmanager
def named(folder: Path, field: str) -> Iterator[None]:
    """ReportError with the field of run.json whose content is of another kind."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise ReportError(f"{folder}/run.json: {field}: not what a run writes there: {error!r}") from error

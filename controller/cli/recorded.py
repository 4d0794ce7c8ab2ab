"""The planning questions of a recorded run, put again: plans.json holds all that each plan rested on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost
from controller.coordination.errors import RecordError
from controller.coordination.recovery_records import parse_incident, parse_plan
from controller.report.errors import ReportError
from scheduler.incident import Incident, PlanRecord
from spark_jobs.topology import Topology, expand, from_json


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A plan's question, and the answer that was given."""

    id: str
    instance: Instance
    plan: Mapping[str, object]


def recorded_plans(folder: Path) -> list[RecordedPlan]:
    """All plans of a run folder, oldest first.  ReportError names what is missing or damaged."""
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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{path}: not the plans of a run: {error!r}") from error
    by_id = {incident.id: incident for incident in incidents}
    plans.sort(key=lambda plan: (plan.time, plan.id))
    return [
        RecordedPlan(plan.id, _instance(plan, by_id[plan.incident], topology, path), plan.plan)
        for plan in plans
        if plan.incident in by_id
    ]


def _instance(plan: PlanRecord, incident: Incident, topology: Topology, path: Path) -> Instance:
    wanted = {p for candidate in plan.candidates for p in candidate.partitions}
    for partition in sorted(wanted):
        if partition not in topology.partitions:
            raise ReportError(
                f"{path}: plan {plan.id}: candidates: topology.json has no partition {partition!r}"
            )
        if partition not in incident.costs:
            raise ReportError(f"{path}: incident {incident.id}: costs: no partition {partition!r}")
    order = [p for p in topology.order if p in wanted]
    edges = [
        (u.partition, p)
        for p in order
        for u in topology.partitions[p].upstream
        if u.partition in wanted and not u.feedback
    ]
    return Instance(
        capacity=sum(plan.free.values()),
        partitions=tuple(PartitionCost(p, incident.costs[p]) for p in order),
        queries=tuple(FailedQuery(c.query, c.priority, c.partitions) for c in plan.candidates),
        nodes=tuple(NodeCapacity(node, room) for node, room in plan.free.items()),
        edges=tuple(edges),
    )

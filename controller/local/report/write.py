"""The report of a run: incident.json, plans.json and the plot, from what was recorded while it ran.

Written after every run, also one that failed or was interrupted: that is when it is needed.  So nothing here raises for
data that is not there; a run that wrote nothing has no availability and no plot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from reprise.controller.local.report.history import read_events
from reprise.controller.local.report.latency import criterion_for
from reprise.controller.local.report.layout import Layout, write_json
from reprise.controller.local.report.output_availability import (
    OutputAvailability,
    first_failure,
    output_availability,
)
from reprise.controller.status.timeline import incident_entry, marks, timeline
from reprise.controller.zookeeper.recovery_records import encode_incident, encode_plan
from reprise.scheduler.incident import Incident, PlanRecord
from reprise.spark_jobs.topology import StreamTopology, expand


def write_report(
    layout: Layout,
    resource: StreamTopology,
    record: Mapping[str, Any],
    incidents: Sequence[Incident],
    plans: Sequence[PlanRecord],
    checkpoints: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Write the files; returns what is in incident.json.  `checkpoints`: what they have cost, as the last driver has told;
    None: it has not.  ReportError when events.jsonl is damaged."""
    zero = float(record.get("zero", record["started"]))
    priorities = {q.id: q.priority for q in expand(resource).queries.values()}
    failure = first_failure(record["actions"], [i.opened_at for i in incidents])
    span = (zero, float(record.get("ended", zero)))
    done = record.get("outcome") == "done"
    criterion = criterion_for(resource.batch_interval_s)
    found = output_availability(read_events(layout.events), priorities, span, failure, done, criterion)
    lines = timeline(record["actions"], incidents, plans, zero)
    by_id = {plan.id: plan for plan in plans}
    report = {
        "topology": resource.name,
        "strategy": resource.recovery.strategy,
        "order": resource.recovery.order,
        "outcome": record.get("outcome", ""),
        "zero": zero,
        "failure": None if failure is None else round(failure - zero, 3),
        "incidents": [incident_entry(i, by_id, priorities, zero, span[1]) for i in incidents],
        "timeline": lines,
        "checkpoints": None if checkpoints is None else dict(checkpoints),
        **({} if found is None else _measured(found)),
    }
    write_json(
        layout.plans,
        {
            "incidents": [json.loads(encode_incident(i)) for i in incidents],
            "plans": [json.loads(encode_plan(p)) for p in plans],
        },
    )
    write_json(layout.incident, report)
    if found is not None:
        title = f"{resource.name}, {resource.nodes.count} nodes, {resource.recovery.strategy} recovery"
        # here: an operator imports this module, and draws nothing
        from reprise.controller.local.report.plot import draw

        draw(found, marks(lines), title, layout.plot)
    return report


def _measured(found: OutputAvailability) -> dict[str, Any]:
    criterion = found.criterion
    return {
        "criterion": {
            "text": "available: mean latency over the window < theta * l_s + tolerance; l_s: mean latency before the"
            " failure; latency: write time of a batch less its due time, or the age of the oldest batch that is due and"
            " unwritten if that is more",
            "theta": criterion.theta,
            "window_s": criterion.window_s,
            "tolerance_s": criterion.tolerance_s,
        },
        "lost_s": round(found.lost_s, 3),
        "queries": {name: _query(found, name) for name in found.queries},
        "series": {
            "elapsed": _rounded(found.elapsed),
            "share": _rounded(found.share),
            "available": [int(n) for n in found.count],
            "relative_latency": {name: _rounded(s.relative) for name, s in found.queries.items()},
        },
    }


def _query(found: OutputAvailability, name: str) -> dict[str, Any]:
    one = found.queries[name]
    again = found.again_s(name)
    return {
        "priority": one.priority,
        "baseline_s": round(one.baseline_s, 4),
        "limit_s": round(found.criterion.limit(one.baseline_s), 4),
        "available_again_s": None if again is None else round(again, 3),
        "worst_latency_s": round(float(one.latency_s.max()), 3),
    }


def _rounded(values: Any) -> list[float]:
    return [round(float(v), 3) for v in values]

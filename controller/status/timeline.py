"""What happened, in order: faults, detection, plans with their explanation, arrivals, queries lost and back.

Everything comes from records that others wrote while it happened (run.json, the incidents and plans in ZooKeeper); nothing
is guessed afterwards, and each line keeps its real time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from reprise.controller.plan_summary import plan_summary
from reprise.controller.status.actions import ARRIVED, BREAKS
from reprise.controller.status.model import QueryTimesView
from reprise.controller.zookeeper.records import encode_spans
from reprise.scheduler import back
from reprise.scheduler.incident import EventName, Incident, PlanRecord
from reprise.scheduler.node_start import NodeStart, StartPhase, eldest_first

Line = dict[str, Any]
Entry = tuple[float, str, str]
"""Unix seconds, what happened, detail."""
MarkKind = Literal["fault", "arrival", "plan"]
Mark = tuple[float, MarkKind, str]
"""Seconds since the stream began, what it is, detail."""


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Sort entries by time; what is of one moment stays in the order in which it was recorded."""
    return sorted(entries, key=lambda entry: entry[0])


def plan_entry_of(at: float, plan: str, summary: str) -> Entry:
    """A plan is one entry, with its summary; the event of the same name in an incident says less."""
    return at, EventName.PLAN, f"{plan} {summary}"


def entries(incidents: Iterable[Incident], plans: Iterable[PlanRecord]) -> list[Entry]:
    """Everything that happened in these incidents, which these plans belong to."""
    found = [
        (e.time, *e.written)
        for incident in incidents
        for e in incident.events
        if e.name is not EventName.PLAN
    ]
    return in_order([*found, *(plan_entry_of(plan.time, plan.id, plan_summary(plan)) for plan in plans)])


def query_times(incident: Incident, priorities: Mapping[str, int], now: float) -> tuple[QueryTimesView, ...]:
    """When each query was lost and back, and how long it was down, the most valuable first.  `now`: when the records were
    read, which is the end of an incident that is open."""
    found = []
    for query, t in incident.queries.items():
        took = back.recovery_of(t, now if incident.closed_at is None else incident.closed_at)
        found.append(
            QueryTimesView(
                query=query,
                priority=priorities.get(query, 1),
                lost_at=t.lost_at,
                restored_at=t.restored_at,
                caught_up_at=t.caught_up_at,
                losses=t.losses,
                relapses=t.relapses,
                down_s=took.seconds,
                measured=took.measured,
            )
        )
    return tuple(sorted(found, key=lambda entry: (-entry.priority, entry.query)))


def timeline(
    actions: Iterable[Mapping[str, Any]],
    incidents: Iterable[Incident],
    plans: Iterable[PlanRecord],
    zero: float,
) -> list[Line]:
    """All lines in the order of time; `elapsed` is in seconds since the stream began."""
    lines = in_order([*((float(a["time"]), *_action(a)) for a in actions), *entries(incidents, plans)])
    return [
        {"time": at, "elapsed": round(at - zero, 3), "what": what, "detail": text} for at, what, text in lines
    ]


def _action(action: Mapping[str, Any]) -> tuple[str, str]:
    detail = " ".join(action.get("nodes", [])) or str(action.get("target", ""))
    if "error" in action:
        detail = f"{detail} not done: {action['error']}".strip()
    return str(action["action"]), detail


def incident_entry(
    incident: Incident,
    plans: Mapping[str, PlanRecord],
    priorities: Mapping[str, int],
    zero: float,
    now: float,
) -> dict[str, Any]:
    """One incident with its plans and queries, times in seconds since the stream began.  `now`: when the records were read,
    which is the end of an incident that is open.  `skipped`: by partition the first and last batch that its readers did
    without (`availability: amnesia`); `marked`: by output those whose rows may therefore be missing; `..._spans`: each of
    these, where it is more than one."""
    return {
        "id": incident.id,
        "kind": incident.kind.value,
        "phase": incident.phase.value,
        "detected": _since(incident.opened_at, zero),
        "closed": _since(incident.closed_at, zero),
        "checkpoint": incident.checkpoint,
        "lost_nodes": [{"node": lost.node, "elapsed": _since(lost.time, zero)} for lost in incident.lost],
        "node_starts": {node: _start_entry(start, zero) for node, start in eldest_first(incident.starts)},
        "plans": [plan_entry(plans[name], zero) for name in incident.plans if name in plans],
        "recovery": back.summary(incident, now),
        "queries": {
            times.query: _query_entry(times, zero) for times in query_times(incident, priorities, now)
        },
        **encode_spans("skipped", incident.skipped),
        **encode_spans("marked", incident.marked),
        "costs_milli": dict(incident.costs),
    }


def _start_entry(start: NodeStart, zero: float) -> dict[str, Any]:
    """`ended`: when each phase was over; `seconds`: from the request until then; phases that nobody saw end are absent."""
    return {
        "ended": {phase.value: _since(start.at[phase], zero) for phase in StartPhase if phase in start.at},
        "seconds": {phase.value: round(seconds, 3) for phase, seconds in start.seconds.items()},
    }


def _query_entry(times: QueryTimesView, zero: float) -> dict[str, Any]:
    """`recovery_s`: how long it was down, None where that was not measured; then `at_least_s` says how long at least."""
    return {
        "priority": times.priority,
        "lost": _since(times.lost_at, zero),
        "restored": _since(times.restored_at, zero),
        "caught_up": _since(times.caught_up_at, zero),
        "losses": times.losses,
        "relapses": times.relapses,
        "restored_after_s": _since(times.restored_at, times.lost_at),
        "recovery_s": round(times.down_s, 3) if times.measured else None,
        "at_least_s": None if times.measured else round(times.down_s, 3),
    }


def plan_entry(plan: PlanRecord, zero: float) -> dict[str, Any]:
    """A plan with all that explains it."""
    return {
        "id": plan.id,
        "elapsed": _since(plan.time, zero),
        "summary": plan_summary(plan),
        "trigger": plan.trigger,
        "rollback": plan.rollback,
        "checkpoint": plan.checkpoint,
        "seconds": plan.seconds,
        "free_milli": dict(plan.free),
        "added": dict(plan.added),
        "left_out": dict(plan.left_out),
        "note": plan.note,
        "plan": dict(plan.plan),
    }


def _since(at: float | None, zero: float) -> float | None:
    return None if at is None else round(at - zero, 3)


def marks(lines: Sequence[Line]) -> list[Mark]:
    """What a plot shows as vertical lines."""
    found: list[Mark] = []
    for line in lines:
        what = str(line["what"])
        if what in BREAKS:
            found.append((float(line["elapsed"]), "fault", f"{what} {line['detail']}"))
        elif what == ARRIVED:
            found.append((float(line["elapsed"]), "arrival", str(line["detail"])))
        elif what == EventName.PLAN:
            found.append((float(line["elapsed"]), "plan", str(line["detail"])))
    return found

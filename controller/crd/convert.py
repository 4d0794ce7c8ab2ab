"""Makes Incident and RecoveryPlan objects of the coordinator's records.

ZooKeeper holds the truth and all of it; an object holds what a person asks for, cut to a bounded size.  So conversion is
total and one-way: any record gives an object that the API server accepts, and nothing is ever read back from one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reprise.algorithms.spans import Spans, batches
from reprise.controller.crd.base import (
    LARGEST,
    MAX_LISTED,
    MAX_REASON,
    TopologyReference,
    WaitingQuery,
    Written,
)
from reprise.controller.crd.crds import GROUP, VERSION
from reprise.controller.crd.incident import (
    MAX_SPANS,
    Affected,
    BatchSpan,
    IncidentSpec,
    IncidentStatus,
    LostNodes,
    LostNodeStatus,
    Plans,
    QueryGaps,
    TimelineEntry,
)
from reprise.controller.crd.plan import ChosenQuery, LeftOutQuery, NodeRoom, PlanSpec
from reprise.controller.utc import utc
from reprise.scheduler import back
from reprise.scheduler.incident import Incident, PlanRecord, batches_in, gaps_of
from reprise.scheduler.model import SkipWish
from reprise.spark_jobs.state.savepoint_wish import SavepointWish

TOPOLOGY_LABEL = f"{GROUP}/topology"
INCIDENT_LABEL = f"{GROUP}/incident"
DRAIN = f"{GROUP}/drain"
"""Annotation of a topology: names of its executor pods that are to be emptied, with commas between them."""

APPROVED = f"{GROUP}/approved"
"""Annotation on a proposed RecoveryPlan: `true` lets it be carried out."""

SKIP = f"{GROUP}/skip"
"""Annotation of a topology: queries that are to do without what they have missed, `QUERY=UID.ID` with commas between."""


SAVEPOINT = f"{GROUP}/savepoint"
"""Annotation of a topology: savepoints that are to be taken or deleted, `UID.ID=NAME`, or `UID.ID=-NAME`, with commas
between."""
MOST_SAVEPOINTS = 20
"""Wishes that the annotation holds, the newest: what came of older ones is long known."""


def savepoints_by_hand(meta: Mapping[str, Any]) -> tuple[SavepointWish, ...]:
    """The savepoints that the annotation of a topology asks for.  A wish that was made for another object, from which this
    one was copied, is none."""
    found, uid = [], str(meta.get("uid", ""))
    for entry in str((meta.get("annotations") or {}).get(SAVEPOINT, "")).split(","):
        key, _, name = entry.strip().partition("=")
        owner, _, wish = key.rpartition(".")
        if uid and owner == uid and wish and "/" not in wish and name.strip("-"):
            found.append(SavepointWish(name.removeprefix("-"), wish, name.startswith("-")))
    return tuple(found)


def savepoints_annotation(uid: str, wishes: Iterable[SavepointWish]) -> str | None:
    """The inverse; None: the annotation goes."""
    newest = sorted(wishes, key=lambda wish: wish.id)[-MOST_SAVEPOINTS:]
    return ",".join(f"{uid}.{w.id}={'-' if w.delete else ''}{w.name}" for w in newest) or None


def drained_by_hand(annotations: Mapping[str, str]) -> frozenset[str]:
    """The pods that the annotation of a topology names."""
    names = (name.strip() for name in annotations.get(DRAIN, "").split(","))
    return frozenset(name for name in names if name)


def skips_by_hand(meta: Mapping[str, Any]) -> dict[str, SkipWish]:
    """The queries that the annotation of a topology, of which `meta` is the metadata, asks to skip.  A wish that was made
    for another object, from which this one was copied, is none."""
    found, uid = {}, str(meta.get("uid", ""))
    for entry in str((meta.get("annotations") or {}).get(SKIP, "")).split(","):
        query, _, wish = entry.strip().partition("=")
        if query and uid and wish.startswith(f"{uid}."):
            found[query] = SkipWish(wish)
    return found


def skips_annotation(wishes: Mapping[str, SkipWish]) -> str | None:
    """The inverse; None: the annotation goes."""
    return ",".join(f"{query}={wish.id}" for query, wish in sorted(wishes.items())) or None


def object_name(topology: str, record: str) -> str:
    """Name of the object of an incident or a plan, which have ids that are unique in their topology."""
    return f"{topology}-{record}"


def incident_object(incident: Incident, topology: TopologyReference, namespace: str) -> dict[str, Any]:
    """The Incident without its status, which is written apart and again and again."""
    spec = IncidentSpec(
        topology=topology,
        id=incident.id,
        opened_at=rfc3339(incident.opened_at),
        nodes_before=_integer(incident.nodes_before),
    )
    return _object("Incident", topology, namespace, incident.id, spec)


def incident_status(
    incident: Incident, topology: str, newest: PlanRecord | None, priorities: Mapping[str, int]
) -> dict[str, Any]:
    """What is known of an incident now; `newest` is its last plan, `priorities` are those of all queries."""
    queries, gaps = incident.queries, gaps_of([incident])
    restored = sum(entry.restored_at is not None for entry in queries.values())
    status = IncidentStatus(
        kind=incident.kind.value,
        phase=incident.phase.value,
        checkpoint=_integer(incident.checkpoint),
        generation=_integer(incident.generation),
        closed_at=None if incident.closed_at is None else rfc3339(incident.closed_at),
        lost=LostNodes(
            count=len(incident.lost),
            latest=[
                LostNodeStatus(node=cut(lost.node, 253), time=rfc3339(lost.time))
                for lost in incident.lost[-MAX_LISTED:]
            ],
        ),
        queries=Affected(
            affected=len(queries),
            restored=restored,
            caught_up=sum(entry.caught_up_at is not None for entry in queries.values()),
            # while it is open the times grow, and each of them would be a write
            recovery=None if incident.closed_at is None else cut(back.summary(incident, incident.closed_at)),
            summary=f"{restored}/{len(queries)}",
        ),
        waiting=waiting_queries(newest.left_out if newest else {}, priorities),
        waiting_total=len(newest.left_out) if newest else 0,
        gaps=_gaps(gaps, priorities),
        gaps_total=len(gaps),
        gap_batches=_integer(batches_in(gaps)),
        plans=Plans(
            count=len(incident.plans),
            last=object_name(topology, incident.plans[-1]) if incident.plans else None,
        ),
        timeline=[
            TimelineEntry(time=rfc3339(e.time), name=cut(name, 253), detail=cut(detail))
            for e in incident.events[-MAX_LISTED:]
            for name, detail in [e.written]
        ],
        timeline_total=len(incident.events),
    )
    return _dump(status)


def plan_object(
    plan: PlanRecord, topology: TopologyReference, namespace: str, priorities: Mapping[str, int],
    outlook: str = "",
) -> dict[str, Any]:  # fmt: skip
    """The RecoveryPlan without its status; `outlook`: whether more nodes were expected when it was written."""
    answer = plan.plan
    chosen = [entry for entry in _objects(answer.get("chosen")) if "query" in entry]
    value = _integer(answer.get("value"))
    spec = PlanSpec(
        topology=topology,
        id=plan.id,
        incident=object_name(topology.name, plan.incident),
        time=rfc3339(plan.time),
        trigger=plan.trigger.value,
        rollback=plan.rollback,
        checkpoint=_integer(plan.checkpoint),
        generation=_integer(plan.generation),
        algorithm=cut(str(answer.get("algorithm", "unknown")), 253),
        why=cut(str(answer.get("why", ""))),
        value=value,
        bound=max(value, _integer(answer.get("bound"))),
        optimal=answer.get("optimal") is True,
        cost_milli_cpu=_integer(answer.get("cost")),
        capacity_milli_cpu=_integer(sum(max(0, free) for free in plan.free.values())),
        micros=_integer(plan.seconds * 1_000_000),
        partitions=len(plan.added),
        candidates=len(plan.candidates),
        summary=f"{len(chosen)}/{len(plan.candidates)}",
        chosen=[_chosen(entry) for entry in chosen[:MAX_LISTED]],
        left_out=_left_out(plan, priorities),
        left_out_total=len(plan.left_out),
        nodes=_rooms(plan),
        nodes_total=len(plan.free),
        note=cut("; ".join(filter(None, (plan.note, outlook)))),
    )
    labels = {INCIDENT_LABEL: object_name(topology.name, plan.incident)[:63]}
    return _object("RecoveryPlan", topology, namespace, plan.id, spec, labels)


def _gaps(gaps: Mapping[str, Spans], priorities: Mapping[str, int]) -> list[QueryGaps]:
    """The most valuable of the queries that may lack rows, with the newest batches that do."""
    return [
        QueryGaps(
            query=cut(query, 253),
            batches=_integer(batches(gaps[query])),
            spans=[BatchSpan(first=_integer(a), last=_integer(b)) for a, b in gaps[query][-MAX_SPANS:]],
        )
        for query in _by_priority(gaps, priorities)[:MAX_LISTED]
    ]


def waiting_queries(reasons: Mapping[str, str], priorities: Mapping[str, int]) -> list[WaitingQuery]:
    """The most valuable of the queries that wait, with their reasons."""
    return [
        WaitingQuery(query=cut(query, 253), priority=priorities.get(query, 1), reason=cut(reasons[query]))
        for query in _by_priority(reasons, priorities)[:MAX_LISTED]
    ]


def rfc3339(seconds: float) -> str:
    """UTC with microseconds, from seconds since the epoch; what no clock shows becomes the nearest that one does."""
    return utc(seconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def cut(text: str, length: int = MAX_REASON) -> str:
    """The text, at most so many characters of it, the last of them three dots where something is missing."""
    return text if len(text) <= length else text[: length - 3] + "..."


def _chosen(entry: Mapping[str, Any]) -> ChosenQuery:
    restores = entry.get("restores")
    return ChosenQuery(
        query=cut(str(entry["query"]), 253),
        priority=_priority(entry.get("priority")),
        cost_milli_cpu=_integer(entry.get("cost")),
        alone_milli_cpu=_integer(entry.get("cost_alone")),
        partitions=len(restores) if isinstance(restores, list) else 0,
    )


def _left_out(plan: PlanRecord, priorities: Mapping[str, int]) -> list[LeftOutQuery]:
    why = {entry.get("query"): entry for entry in _objects(plan.plan.get("excluded"))}
    found = []
    for query in _by_priority(plan.left_out, priorities)[:MAX_LISTED]:
        entry = why.get(query, {})
        code = entry.get("code")
        found.append(
            LeftOutQuery(
                query=cut(query, 253),
                priority=priorities.get(query, 1),
                reason=cut(plan.left_out[query]),
                code=code if isinstance(code, str) else None,
                missing_milli_cpu=_integer(entry.get("missing_capacity")),
            )
        )
    return found


def _rooms(plan: PlanRecord) -> list[NodeRoom]:
    placed: dict[str, int] = {}
    for node in plan.added.values():
        placed[node] = placed.get(node, 0) + 1
    most = sorted(plan.free, key=lambda node: (-plan.free[node], node))[:MAX_LISTED]
    return [
        NodeRoom(node=cut(n, 253), free_milli_cpu=_integer(plan.free[n]), partitions=placed.get(n, 0))
        for n in most
    ]


def _by_priority(queries: Iterable[str], priorities: Mapping[str, int]) -> list[str]:
    return sorted(queries, key=lambda query: (-priorities.get(query, 1), query))


def _objects(value: object) -> Sequence[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _integer(value: object) -> int:
    """A number of a planner's answer; costs are whole milli-CPU already, and what is no number says nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return min(LARGEST, max(0, round(value)))


def _priority(value: object) -> int:
    return min(10, max(1, _integer(value)))


def _object(
    kind: str,
    topology: TopologyReference,
    namespace: str,
    record: str,
    spec: Written,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": {
            "name": object_name(topology.name, record),
            "namespace": namespace,
            "labels": {TOPOLOGY_LABEL: topology.name, **(labels or {})},
        },
        "spec": _dump(spec),
    }


def _dump(model: Written) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)

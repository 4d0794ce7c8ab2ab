"""What a snapshot adds to the record of the open incident: nodes lost, queries lost, restored, back, down again.

Observation never decides. It runs before the rules, so that a rule finds the record up to date and its own
write carries the observation with it; with no rule to fire, what was observed is written alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from reprise.algorithms.positions import Origin
from reprise.algorithms.spans import Spans, behind, joined
from reprise.scheduler import back
from reprise.scheduler.incident import EventName, Incident, LostNode, Phase, QueryTimeline, some
from reprise.scheduler.node_start import MAX_STARTS, NodeStart, StartPhase
from reprise.scheduler.view import View


def observe(view: View, incident: Incident) -> Incident:
    """The incident with all that the snapshot shows; the same object's equal if that is nothing."""
    incident = _on_this_clock(view, incident)
    incident = _nodes_lost(view, incident)
    incident = _queries_lost(view, incident)
    incident = _nodes_started(view, incident)
    incident = _batches_skipped(view, incident)
    if view.acked:
        incident = _went_back(view, incident)
        incident = _queries_restored(view, incident)
        incident = _waiting_or_recovering(view, incident)
    return incident


def _on_this_clock(view: View, incident: Incident) -> Incident:
    """Deadlines are times of whoever led when they were set.  On a clock that is behind that leader's they would last longer
    than the policy ever asks for, so none is later than if it were set now."""
    settle = min(incident.settle_until, view.now + view.policy.settle_s)
    driver = incident.driver_until
    if driver is not None:
        driver = min(driver, view.now + view.policy.driver_grace_s)
    if (settle, driver) == (incident.settle_until, incident.driver_until):
        return incident
    return replace(incident, settle_until=settle, driver_until=driver)


def lost_now(view: View) -> tuple[str, ...]:
    """Nodes of the assignment that are lost by their heartbeat, or, before that has expired, by the driver: it
    has dropped the node and reports all that ran there as failed."""
    desired = view.snapshot.desired
    members: dict[str, list[str]] = {}
    for partition, node in (desired.assignment if desired else {}).items():
        members.setdefault(node, []).append(partition)
    usable = view.usable_ids
    return tuple(
        node
        for node, partitions in sorted(members.items())
        if node not in view.alive
        or (view.acked and node not in usable and all(p in view.failed for p in partitions))
    )


def lost_since_checkpoint(view: View, incident: Incident) -> int:
    """Nodes to count against X: lost since the incident opened and so since the last global checkpoint, not longer ago
    than the policy's window, if it has one, and not back as the same incarnation (Su and Zhou, 4.2.1)."""
    since = -math.inf if view.policy.window_s is None else view.now - view.policy.window_s
    still_lost = frozenset(lost_now(view))
    return sum(
        1
        for entry in incident.lost
        if entry.time >= since and (entry.node not in view.alive or entry.node in still_lost)
    )


def _nodes_lost(view: View, incident: Incident) -> Incident:
    known = {entry.node for entry in incident.lost}
    for node in lost_now(view):
        if node not in known:
            incident = replace(incident, lost=(*incident.lost, LostNode(node, view.now)))
            incident = incident.log(view.now, EventName.NODE_LOST, node)
    return incident


def _nodes_started(view: View, incident: Incident) -> Incident:
    """The incident with what is known by now of the starts of nodes that have come since it was opened."""
    progress, desired = view.snapshot.progress, view.snapshot.desired
    given = frozenset(desired.assignment.values()) if desired else frozenset()
    planned = next((event.time for event in reversed(incident.events) if event.name is EventName.PLAN), None)
    starts = dict(incident.starts)
    for node in view.snapshot.nodes:
        came = node.start.at.get(StartPhase.HEARTBEAT)
        if node.id not in starts and (came is None or came < incident.opened_at or len(starts) >= MAX_STARTS):
            continue
        before = starts.get(node.id, NodeStart())
        now = before.known(node.start.at)
        if progress is not None and node.id in progress.starts:
            now = now.known(progress.starts[node.id].at)
        if planned is not None and node.id in given:
            now = now.known({StartPhase.PLANNED: planned})
        starts[node.id] = now
    return incident if starts == incident.starts else replace(incident, starts=starts)


def _went_back(view: View, incident: Incident) -> Incident:
    """The incident with the snapshots that the driver has chosen: what went back to where."""
    progress = view.snapshot.progress
    if progress is None or not progress.restored:
        return incident
    lines = {p: Origin(incident.generation, k) for p, k in sorted(progress.restored.items())}
    known = {p: origin.position for p, origin in incident.lines.items()}
    if known == progress.restored:
        return incident
    new = [f"{p} to {k}" for p, k in sorted(progress.restored.items()) if known.get(p) != k]
    return replace(incident, lines=lines).log(view.now, EventName.WENT_BACK, some(new))


def _batches_skipped(view: View, incident: Incident) -> Incident:
    """The incident with what the driver has skipped since; what lies before its checkpoint is of another one."""
    progress = view.snapshot.progress
    if progress is None or not progress.skipped:
        return incident
    skipped, marked = (
        _behind(progress.skipped, incident.checkpoint),
        _behind(progress.marked, incident.checkpoint),
    )
    new, gaps = _unknown(incident.skipped, skipped), _unknown(incident.marked, marked)
    if not new and not gaps:
        return incident
    detail = f"without rows of {some(new)}; marked: {some(gaps) or 'none'}"
    incident = replace(
        incident, skipped=_and(incident.skipped, skipped), marked=_and(incident.marked, marked)
    )
    return incident.log(view.now, EventName.BATCHES_SKIPPED, detail)


def _behind(told: Mapping[str, Spans], batch: int) -> dict[str, Spans]:
    """Those spans that end behind a batch, of whatever has one."""
    late = {name: behind(spans, batch) for name, spans in told.items()}
    return {name: spans for name, spans in late.items() if spans}


def _unknown(known: Mapping[str, Spans], told: Mapping[str, Spans]) -> list[str]:
    """Those told of that are not within what is known, in words, by name."""
    return [
        f"{name} {first} to {last}"
        for name, spans in sorted(told.items())
        for first, last in spans
        if joined((*known.get(name, ()), (first, last))) != known.get(name)
    ]


def _and(known: Mapping[str, Spans], told: Mapping[str, Spans]) -> dict[str, Spans]:
    """Both: a second gap in one incident must neither hide the first nor what is whole between them."""
    return {**known, **{name: joined((*known.get(name, ()), *spans)) for name, spans in told.items()}}


def _queries_lost(view: View, incident: Incident) -> Incident:
    changed: dict[str, QueryTimeline] = {}
    poisoned = [q for q in view.snapshot.topology.queries if q.id in incident.queries and view.poisoned(q)]
    # without a driver nobody moves, also of what lives on
    failed = view.snapshot.topology.queries if view.driver_changed else view.failed_queries
    for query in (*failed, *poisoned):
        entry = incident.queries.get(query.id)
        if entry is None:
            changed[query.id] = QueryTimeline(lost_at=view.now)
        elif entry.restored_at is not None:
            entry = back.relapsed(entry, view.now)
            changed[query.id] = replace(entry, restored_at=None, losses=entry.losses + 1)
    return _with_queries(view, incident, changed, EventName.QUERIES_LOST)


def last_look(view: View, incident: Incident) -> Incident:
    """An incident that is being closed, with how its queries stand in the end."""
    return _queries_restored(view, incident, last=True) if view.acked else incident


def _queries_restored(view: View, incident: Incident, last: bool = False) -> Incident:
    restored: dict[str, QueryTimeline] = {}
    changed: dict[str, QueryTimeline] = {}
    for query in view.snapshot.topology.queries:
        entry = incident.queries.get(query.id)
        if entry is None or not query.partitions <= view.at_work:
            continue
        if entry.restored_at is None:
            entry = restored[query.id] = replace(entry, restored_at=view.now)
        now = back.seen(entry, _sight(view, incident, query.id, last))
        if now != entry:
            changed[query.id] = now
    incident = _with_queries(view, incident, restored, EventName.QUERIES_RESTORED)
    return _turned(incident, changed)


def _sight(view: View, incident: Incident, query: str, last: bool) -> back.Sight:
    progress = view.snapshot.progress
    assert progress is not None  # acked
    position = reported = progress.positions[query]
    if (
        last
    ):  # a checkpoint covers nothing that is not shown, and is often on record before the report that says so
        position = max(reported, view.newest.of(query))
    behind = max(0, back.lag(progress, incident, query) - (position - reported))
    return back.Sight(view.now, position, behind <= back.limit(incident, query), behind == 0, last)


def _turned(incident: Incident, changed: Mapping[str, QueryTimeline]) -> Incident:
    """The incident with the queries that are back or down again, at the moment from which on they were."""
    moments: dict[tuple[float, EventName], list[str]] = {}
    for query, now in changed.items():
        before = incident.queries[query]
        if now.caught_up_at is not None and before.caught_up_at is None:
            moments.setdefault((now.caught_up_at, EventName.QUERIES_CAUGHT_UP), []).append(query)
        elif now.relapses > before.relapses:
            since = before.turning_since
            assert since is not None  # it has held
            moments.setdefault((since, EventName.QUERIES_BEHIND), []).append(query)
    incident = replace(incident, queries={**incident.queries, **changed}) if changed else incident
    for (at, name), queries in moments.items():
        incident = incident.log(at, name, " ".join(queries))
    return incident


def _waiting_or_recovering(view: View, incident: Incident) -> Incident:
    if incident.phase not in (Phase.WAITING, Phase.RECOVERING):
        return incident
    desired = view.snapshot.desired
    at_rest = desired is not None and all(
        p in view.at_work for p in desired.assignment if p not in view.failed
    )
    phase = Phase.WAITING if view.failed and at_rest else Phase.RECOVERING
    return incident if phase is incident.phase else replace(incident, phase=phase)


def _with_queries(
    view: View, incident: Incident, changed: Mapping[str, QueryTimeline], event: EventName
) -> Incident:
    if not changed:
        return incident
    incident = replace(incident, queries={**incident.queries, **changed})
    return incident.log(view.now, event, " ".join(changed))

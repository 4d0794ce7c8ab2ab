"""The status of a StreamTopology from what is known of it: pure, and bounded however large the topology is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from reprise.controller.crd.base import MAX_LISTED, WaitingQuery
from reprise.controller.crd.conditions import ConditionReason, ConditionUpdate, Truth, merged
from reprise.controller.crd.convert import cut, object_name, rfc3339, waiting_queries
from reprise.controller.crd.topology_status import (
    MAX_NAMED,
    CheckpointStatus,
    DriverStatus,
    FailureDomainsStatus,
    NodesStatus,
    OutputStatus,
    QueriesStatus,
    SkipStatus,
    StandbysStatus,
    TopologyStatus,
    UpstreamBackupStatus,
)
from reprise.controller.kubernetes.pods import USUAL
from reprise.controller.operator.pods.verdict import State
from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.plural import counted
from reprise.controller.status.query_state import RunState, Status
from reprise.controller.status.skips import skip_views
from reprise.controller.topology_view import promises_of
from reprise.controller.zookeeper.advance import FEW, STILL_S
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.domains import Losses
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.promise import Guarantee


def status_of(
    now: TopologyState, before: Mapping[str, Any], moment: float | None = None
) -> tuple[dict[str, Any], list[ConditionUpdate]]:
    """The new status and its conditions; `before` is the one that stands, whose times are kept."""
    moment = time.time() if moment is None else moment
    updates = condition_updates(now)
    conditions = merged(before.get("conditions") or [], updates, now.generation, moment)
    seen, resource = now.observation, now.resource
    status: dict[str, Any] = {"observedGeneration": now.generation, "conditions": conditions}
    if resource is None or now.state is None or seen is None:
        return {**{k: v for k, v in before.items() if k not in status}, **status}, updates
    progress = seen.progress
    model = TopologyStatus(
        started_at=_started(before.get("startedAt"), seen, moment),
        queries=_queries(now.state),
        waiting=_waiting(now.state),
        waiting_total=len(now.state.queries) - now.state.count(Status.AVAILABLE),
        nodes=_nodes(now),
        partitions=sum(stage.parallelism for stage in resource.stages),
        standbys=_standbys(resource, seen),
        failure_domains=_failure_domains(now.losses),
        upstream_backup=_upstream_backup(resource, seen),
        outputs=outputs_status(resource),
        skips=_skips(now.state, seen),
        checkpoint=CheckpointStatus(
            position=progress.checkpoint if progress else 0,
            completed_at=None if now.completed_at is None else rfc3339(now.completed_at),
        ),
        position=progress.horizon if progress else 0,
        lag_batches=max((q.lag for q in now.state.queries), default=0),
        incident=object_name(resource.name, seen.incident.id) if seen.incident else None,
        driver=DriverStatus(pod=now.driver or None, epoch=_epoch(seen)),
        coordinator=now.coordinator or None,
        root=now.root,
    )
    found = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    found.pop("conditions", None)
    return {**found, **status}, updates


def condition_updates(now: TopologyState) -> list[ConditionUpdate]:
    """The conditions, most telling first."""
    state, seen = now.state, now.observation
    current = seen is not None and seen.connected and not now.problem
    observed = ConditionUpdate("Observed", Truth.TRUE, ConditionReason.UP_TO_DATE)
    if not current:
        observed = ConditionUpdate(
            "Observed", Truth.FALSE, ConditionReason.NO_ANSWER, now.problem or "ZooKeeper does not answer"
        )
    valid = (
        ConditionUpdate("Valid", Truth.FALSE, ConditionReason.SPEC_REFUSED, now.invalid)
        if now.invalid
        else ConditionUpdate("Valid", Truth.TRUE, ConditionReason.ACCEPTED)
    )
    refused = _refused(now)
    paused = (
        ConditionUpdate("Paused", Truth.TRUE, ConditionReason.ASKED, now.paused_by)
        if now.paused_by
        else _no("Paused", ConditionReason.RUNNING)
    )
    if state is None or seen is None or not current:
        unknown = [
            ConditionUpdate(t, Truth.UNKNOWN, ConditionReason.NOT_OBSERVED, now.problem)
            for t in ("Ready", "Recovering", "Degraded", "Reconciling")
        ]
        if state is None and now.invalid:
            unknown[0] = ConditionUpdate("Ready", Truth.FALSE, ConditionReason.SPEC_REFUSED, now.invalid)
        return [*unknown, paused, valid, observed, refused]
    available = state.count(Status.AVAILABLE)
    missing = len(state.queries) - available
    shown = [_ready(now, missing), _recovering(now, seen), _degraded(now, missing), paused, valid, observed]
    return [*shown, refused, _reconciling(now, seen)]


def _refused(now: TopologyState) -> ConditionUpdate:
    """`Stalled`, as kstatus has it: tools that wait for a spec to take effect are told that this one never will.  `Ready`
    says how the queries stand, and those of the spec before go on."""
    if now.invalid:
        return ConditionUpdate("Stalled", Truth.TRUE, ConditionReason.SPEC_REFUSED, now.invalid)
    return _no("Stalled", ConditionReason.ACCEPTED)


def _reconciling(now: TopologyState, seen: Observation) -> ConditionUpdate:
    """`Reconciling`, as kstatus has it: the topology is being started, or its driver still runs the spec before, as where it
    drains first or its successor could not start.  An incident is none of it: the spec is in effect."""
    if seen.desired is None and not now.invalid:
        return ConditionUpdate("Reconciling", Truth.TRUE, ConditionReason.STARTING, _start_waits(now, seen))
    if now.driver_outdated:
        return ConditionUpdate("Reconciling", Truth.TRUE, ConditionReason.SPEC_PENDING, now.driver_problem)
    return _no("Reconciling", ConditionReason.UP_TO_DATE)


def _ready(now: TopologyState, missing: int) -> ConditionUpdate:
    seen = now.observation
    if seen is None or seen.desired is None:
        return _no("Ready", ConditionReason.STARTING, _start_waits(now, seen))
    if now.held_back:
        return _no("Ready", ConditionReason.AWAITING_APPROVAL, f"plan {now.held_back} waits for approval")
    if now.state is not None and now.state.stalled:
        return _no("Ready", ConditionReason.NOT_ADVANCING, _stalled(now.state))
    if missing:
        return _no("Ready", ConditionReason.QUERIES_DOWN, _down(missing, seen))
    if unwatched := _unwatched(seen, now.state):
        return ConditionUpdate("Ready", Truth.UNKNOWN, ConditionReason.NOT_WATCHED_YET, unwatched)
    return ConditionUpdate("Ready", Truth.TRUE, ConditionReason.ALL_QUERIES_AVAILABLE)


def _down(missing: int, seen: Observation) -> str:
    return cut(f"{counted(missing, 'query is', 'queries are')} not available{_newest_problem(seen)}", 512)


def _newest_problem(seen: Observation | None) -> str:
    """What the driver has reported last, which may be why, or an older matter."""
    return f"; the driver's newest problem: {seen.problems[-1]}" if seen is not None and seen.problems else ""


def _stalled(state: RunState) -> str:
    """The most valuable of the queries that run and show nothing, and why."""
    first = state.stalled[0]
    return cut(
        f"{counted(len(state.stalled), 'query does', 'queries do')} not advance: {first.id} {first.reason}",
        512,
    )


def _unwatched(seen: Observation, state: RunState | None) -> str:
    """What an operator that has just started cannot say yet: whether queries that are far behind advance.  Once it has seen
    one move that one is slow, and no more."""
    if seen.watched_since is None or seen.time - seen.watched_since >= STILL_S or state is None:
        return ""
    still = [q.id for q in state.queries if q.lag > FEW and seen.still.get(q.id) == seen.watched_since]
    many = counted(len(still), "query is behind and has", "queries are behind and have")
    return f"{many} not been seen to advance yet" if still else ""


def _start_waits(now: TopologyState, seen: Observation | None) -> str:
    """What the start waits for."""
    return now.driver_problem or cut(seen.waits if seen is not None else "", 512) or _starting(now)


def _starting(now: TopologyState) -> str:
    """What is waited for: answers "why is nothing happening"."""
    pending = [
        (name, v) for name, v in now.findings.verdicts.items() if v.state is State.PENDING and v.reason
    ]
    if pending:
        return cut(f"{len(pending)} executor pods have no Kubernetes node: {pending[0][1].reason}", 512)
    held_up = [
        v.reason
        for v in now.findings.verdicts.values()
        if v.state is State.STARTING and v.reason not in ("", *USUAL)
    ]
    if held_up:
        return cut(f"{len(held_up)} executor pods do not start: {held_up[0]}", 512)
    ready = sum(v.state is State.ALIVE for v in now.findings.verdicts.values())
    wanted = now.resource.nodes.count if now.resource else 0
    return cut(f"{ready} of {wanted} nodes are there{_newest_problem(now.observation)}", 512)


def _recovering(now: TopologyState, seen: Observation) -> ConditionUpdate:
    if seen.incident is None:
        return _no("Recovering", ConditionReason.NO_INCIDENT)
    name = object_name(now.resource.name if now.resource else "", seen.incident.id)
    phase = ConditionReason(seen.incident.phase.value.capitalize())
    outlook = f"; {now.forecast}" if str(now.forecast) else ""
    return ConditionUpdate(
        "Recovering", Truth.TRUE, phase, cut(f"incident {name}: {seen.incident.kind.value}{outlook}")
    )


def _degraded(now: TopologyState, missing: int) -> ConditionUpdate:
    if now.driver_problem:
        return ConditionUpdate("Degraded", Truth.TRUE, ConditionReason.DRIVER_DOWN, now.driver_problem)
    if now.observation is not None and now.observation.waits:
        return ConditionUpdate(
            "Degraded", Truth.TRUE, ConditionReason.DRIVER_WAITS, cut(now.observation.waits, 512)
        )
    if now.observation is not None and now.observation.undecided:
        return ConditionUpdate(
            "Degraded", Truth.TRUE, ConditionReason.CANNOT_DECIDE, cut(now.observation.undecided)
        )
    if now.state is not None and now.state.stalled:
        return ConditionUpdate("Degraded", Truth.TRUE, ConditionReason.NOT_ADVANCING, _stalled(now.state))
    if missing and now.observation is not None and now.observation.desired is not None:
        return ConditionUpdate(
            "Degraded", Truth.TRUE, ConditionReason.QUERIES_DOWN, _down(missing, now.observation)
        )
    return _no("Degraded", ConditionReason.NOTHING_IS_DOWN)


def _queries(state: RunState) -> QueriesStatus:
    available, total = state.count(Status.AVAILABLE), len(state.queries)
    ready = sum(q.priority for q in state.queries if q.status is Status.AVAILABLE)
    return QueriesStatus(
        available=available,
        recovering=state.count(Status.RECOVERING),
        waiting=state.count(Status.WAITING),
        total=total,
        summary=f"{available}/{total}",
        value=f"{ready}/{sum(q.priority for q in state.queries)}",
    )


def _waiting(state: RunState) -> list[WaitingQuery]:
    down = {q.id: q.reason for q in state.queries if q.status is not Status.AVAILABLE}
    return waiting_queries(down, {q.id: q.priority for q in state.queries})


def _standbys(resource: StreamTopology, seen: Observation) -> StandbysStatus | None:
    wanted = sum(operator.parallelism for operator in resource.operators if operator.has_standby)
    ready = len(seen.progress.standbys) if seen.progress else 0
    return StandbysStatus(ready=min(ready, wanted), wanted=wanted) if wanted else None


def _failure_domains(found: Losses | None) -> FailureDomainsStatus | None:
    if found is None:
        return None
    return FailureDomainsStatus(
        count=len(found.by_domain), priority=found.priority, worst=found.worst, summary=str(found)
    )


def _upstream_backup(resource: StreamTopology, seen: Observation) -> UpstreamBackupStatus | None:
    backed = {o.name: o.parallelism for o in resource.operators if o.backed_upstream}
    wanted = sum(backed.values())
    now = seen.progress.backed if seen.progress else ()
    ready = sum(partition.rpartition(".")[0] in backed for partition in now)
    return UpstreamBackupStatus(ready=min(ready, wanted), wanted=wanted) if wanted else None


def _skips(state: RunState, seen: Observation) -> list[SkipStatus]:
    queries = {query.id for query in state.queries}
    asked = sorted(seen.desired.anew) if seen.desired else ()
    return [
        SkipStatus(query=cut(skip.query, 253), taken=skip.taken, partitions=len(skip.partitions))
        for skip in skip_views(queries, asked, seen)[:MAX_LISTED]
    ]


_LEAST_FIRST = {Guarantee.GAP: 0, Guarantee.PRECISE_BY_CHECKPOINT: 1, None: 2, Guarantee.PRECISE: 3}


def outputs_status(resource: StreamTopology) -> list[OutputStatus]:
    """What is promised of outputs, the least first, as many as an object may list."""
    found = sorted(
        promises_of(resource).items(), key=lambda one: (_LEAST_FIRST[one[1].guarantee], one[1].whole)
    )
    return [
        OutputStatus(
            operator=name,
            guarantee=promise.guarantee,
            limited_by=list(promise.limited_by[:MAX_NAMED]),
            given_up=list(promise.given_up[:MAX_NAMED]),
        )
        for name, promise in found[:MAX_LISTED]
    ]


def _nodes(now: TopologyState) -> NodesStatus:
    seen, resource = now.observation, now.resource
    assert seen is not None
    assert resource is not None
    ready = len(seen.progress.nodes & frozenset(seen.nodes)) if seen.progress else 0
    return NodesStatus(
        ready=ready,
        wanted=resource.nodes.count,
        lost=len(seen.incident.lost) if seen.incident else 0,
        pending=sum(v.state is State.PENDING for v in now.findings.verdicts.values()),
        summary=f"{ready}/{resource.nodes.count}",
        expected=sum(e.in_s is not None for e in now.forecast.expected),
        room=now.forecast.room,
        outlook=cut(str(now.forecast)) or None,
    )


def _started(before: Any, seen: Observation, moment: float) -> Any:
    """When batches were first released: `before`, if the status says it already, or now."""
    if before is None and seen.progress is not None and seen.progress.horizon > 0:
        return rfc3339(moment)
    return before


def _epoch(seen: Observation) -> int:
    return int(seen.progress.driver) if seen.progress and seen.progress.driver.isdigit() else 0


def _no(kind: str, reason: ConditionReason, message: str = "") -> ConditionUpdate:
    return ConditionUpdate(kind, Truth.FALSE, reason, message)

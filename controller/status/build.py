"""The status document of a topology: each part from the records, put together."""

from __future__ import annotations

from collections.abc import Mapping

from reprise.algorithms.cpu import under_cap
from reprise.algorithms.spans import Spans
from reprise.controller.plural import counted
from reprise.controller.status.availability import availability
from reprise.controller.status.failure_domains import failure_domains
from reprise.controller.status.incidents import MAX_MISSING, incident_view, planner_answers
from reprise.controller.status.model import (
    FORMAT,
    CalmPhase,
    CheckpointView,
    CounterView,
    EdgeView,
    GraphView,
    NodeView,
    OperatorView,
    OverheadView,
    PartitionView,
    QueriesView,
    QueryView,
    RebalancingView,
    StatusDocument,
)
from reprise.controller.status.partition_state import node_states
from reprise.controller.status.partitions import LOST, partition_views, seconds_of
from reprise.controller.status.query_state import QueryState, Status, run_state
from reprise.controller.status.recovery_time import QueryRecovery, overhead_of, query_recoveries
from reprise.controller.status.skips import skip_views
from reprise.controller.status.standbys import standbys_view
from reprise.controller.zookeeper.advance import FEW
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.incident import Incident, gaps_of
from reprise.scheduler.missing import Missing
from reprise.scheduler.overcommit import slowdown
from reprise.spark_jobs.topology import Topology
from reprise.spark_jobs.topology.layout import by_operator, edges, place
from reprise.spark_jobs.topology.promise import NO_PROMISE
from reprise.spark_jobs.topology.resource import Mode

MAX_GAPS = 20
"""Gaps that are listed for a query, the newest; a count beside it says how many there are."""


def document(topology: Topology, seen: Observation) -> StatusDocument:
    """All that the records say, at one moment."""
    partitions = partition_views(topology, seen)
    priorities = {query.id: query.priority for query in topology.queries.values()}
    queries = _queries(topology, seen, partitions)
    answers = planner_answers(seen)
    opened = incident_view(seen.incident, seen, topology.queries, answers) if seen.incident else None
    closed = max(seen.closed.values(), key=lambda incident: incident.turn, default=None)
    return StatusDocument(
        format=FORMAT,
        topology=topology.name,
        time=seen.time,
        connected=seen.connected,
        phase=phase_of(seen),
        batch=seen.progress.horizon if seen.progress else 0,
        due=seen.progress.newest if seen.progress else 0,
        ended=seen.progress.ended if seen.progress else False,
        queries=queries,
        incident=opened,
        plan=opened.plans[-1] if opened and opened.plans else None,
        last_incident=incident_view(closed, seen, topology.queries, answers) if closed else None,
        incidents=len(seen.incidents),
        nodes=_nodes(topology, seen, partitions),
        checkpoint=_checkpoint(seen),
        buffers=dict(seen.progress.buffers) if seen.progress else {},
        problems=(
            *filter(None, [seen.undecided, seen.silence, _one_look(seen, queries)]),
            *seen.problems,
            *seen.unreadable,
        ),
        graph=_graph(topology),
        partitions=tuple(partitions.values()),
        availability=availability(priorities, seen, answers, queries.share, queries.available),
        counters=_counters(seen),
        standbys=standbys_view(topology, seen),
        failure_domains=failure_domains(topology, seen),
        skips=skip_views(topology.queries, topology.order, seen),
        rebalancing=_rebalancing(seen),
        overhead=_overhead(seen),
        batch_interval_s=topology.batch_interval_s or None,
        chained=seen.progress.chained if seen.progress else "",
    )


def _rebalancing(seen: Observation) -> RebalancingView | None:
    desired = seen.desired
    if desired is None or seen.incident is not None or (now := desired.rebalancing) is None:
        return None
    moving = desired.moving.to if desired.moving is not None and desired.moving.rebalances else {}
    ended = seen.progress is not None and seen.progress.ended
    if ended or (now.over and not moving):
        return None
    return RebalancingView(moving, len(now.to), None if moving or now.to else now.at)


def _overhead(seen: Observation) -> OverheadView:
    found = overhead_of(seen)
    return OverheadView(found.detection_s, found.plan_s, found.install_s, found.assumed)


def _counters(seen: Observation) -> tuple[CounterView, ...]:
    counted = seen.progress.counters if seen.progress else {}
    return tuple(
        CounterView(operator, name, value)
        for operator, own in sorted(counted.items())
        for name, value in sorted(own.items())
    )


def _one_look(seen: Observation, queries: QueriesView) -> str:
    """What a look alone cannot say of queries that are further behind than usual, and miss nothing: whether they advance."""
    if seen.watched_since != seen.time or not seen.connected:
        return ""
    behind = [q.lag for q in queries.items if q.lag > FEW and q.id in seen.still and not q.missing_total]
    many = f"{counted(len(behind), 'query is', 'queries are')} up to {max(behind)}" if behind else ""
    return f"{many} batches behind; one look cannot say whether they advance, so look again" if many else ""


def phase_of(seen: Observation) -> str:
    """One word for how the whole stands."""
    if seen.progress is None or seen.desired is None:
        return CalmPhase.STARTING.value
    if seen.incident is not None:
        return seen.incident.phase.value
    if seen.progress.done:
        return CalmPhase.ENDED.value
    if seen.desired.paused:
        return CalmPhase.PAUSED.value
    return (CalmPhase.SILENT if seen.silence else CalmPhase.STEADY).value


def _graph(topology: Topology) -> GraphView:
    boxes = place(topology).boxes
    operators = []
    for name, partitions in by_operator(topology).items():
        output = any(p.id in topology.queries for p in partitions)
        kind = "source" if partitions[0].is_source else "output" if output else "operator"
        box = boxes[name]
        standbys, label = name in topology.standbys, topology.standbys.get(name)
        ids = tuple(p.id for p in partitions)
        promise = topology.promises.get(name, NO_PROMISE)
        operators.append(
            OperatorView(
                name, kind, ids, box.layer, box.y, standbys, label,
                promise.guarantee, promise.limited_by, promise.because, promise.given_up,
            )
        )  # fmt: skip
    found = [
        EdgeView(e.origin, e.target, e.label, e.feedback, e.grouping.mode is Mode.FORWARD)
        for e in edges(topology)
    ]
    return GraphView(tuple(operators), tuple(found))


def _queries(topology: Topology, seen: Observation, partitions: Mapping[str, PartitionView]) -> QueriesView:
    state = run_state(topology, seen)
    down = {p for p, view in partitions.items() if view.state in LOST}
    missing = Missing({p: k for k, p in enumerate(partitions)}, down)
    seconds = {
        p.id: (p.node, p.load_s + p.replay_s)
        for p in partitions.values()
        if p.node is not None and p.load_s is not None and p.replay_s is not None
    }
    recoveries = query_recoveries(topology.queries.values(), seconds, overhead_of(seen))
    gaps = gaps_of(seen.incidents)
    items = tuple(
        _query(topology, query, seen.incident, missing, recoveries.get(query.id), gaps.get(query.id, ()))
        for query in state.queries
    )
    total = sum(query.priority for query in items)
    ready = sum(query.priority for query in items if query.state is Status.AVAILABLE)
    return QueriesView(
        total=len(items),
        available=state.count(Status.AVAILABLE),
        recovering=state.count(Status.RECOVERING),
        waiting=state.count(Status.WAITING),
        priority_total=total,
        priority_available=ready,
        share=state.share,
        items=items,
    )


def _query(
    topology: Topology,
    state: QueryState,
    incident: Incident | None,
    missing: Missing,
    recovery: QueryRecovery | None,
    gaps: Spans,
) -> QueryView:
    needs, objective_s = topology.queries[state.id].partitions, topology.queries[state.id].objective_s
    times = incident.queries.get(state.id) if incident else None
    return QueryView(
        id=state.id,
        priority=state.priority,
        state=state.status,
        lag=state.lag,
        reason=state.reason,
        partitions=len(needs),
        missing=missing.first(needs, MAX_MISSING),
        missing_total=missing.count(needs),
        lost_at=times.lost_at if times else None,
        restored_at=times.restored_at if times else None,
        caught_up_at=times.caught_up_at if times else None,
        stalled_since=state.stalled_since,
        recovery_s=recovery.seconds if recovery else None,
        slowest_node=recovery.node if recovery else None,
        objective_s=objective_s,
        held=recovery.seconds <= objective_s if recovery and objective_s is not None else None,
        lag_s=seconds_of(state.lag, topology),
        gaps=gaps[-MAX_GAPS:],
        gaps_total=len(gaps),
    )


def _nodes(
    topology: Topology, seen: Observation, partitions: Mapping[str, PartitionView]
) -> tuple[NodeView, ...]:
    """Alive ones, and those that the open incident has lost."""
    named = {label for label in (topology.failure_domain, *topology.standbys.values()) if label is not None}
    assignment = seen.desired.assignment if seen.desired else {}
    hosted: dict[str, list[str]] = {}
    for partition, node in assignment.items():
        hosted.setdefault(node, []).append(partition)
    lost = {entry.node for entry in seen.incident.lost} if seen.incident else set()
    found = []
    for node, state in node_states({*seen.nodes, *hosted, *lost}, seen).items():
        members = hosted.get(node, [])
        record = seen.nodes.get(node)
        used = sum(partitions[p].cost for p in members if p in partitions)
        name = node.rpartition("#")[0]
        cpu, known = (record.cpu_milli, record.labels) if record else (None, {})
        labels = {label: value for label, value in known.items() if label in named}
        above = cpu is not None and used > under_cap(topology.cpu_cap, cpu)
        slower = slowdown(used, cpu) if above and cpu is not None else None
        found.append(NodeView(node, name, state, cpu, len(members), used, labels, slower))
    return tuple(sorted(found, key=lambda node: (len(node.name), node.id)))


def _checkpoint(seen: Observation) -> CheckpointView | None:
    progress, desired = seen.progress, seen.desired
    if progress is None:
        return None
    return CheckpointView(
        newest=progress.checkpoint,
        announced=progress.punctuation,
        age_batches=max(0, progress.horizon - progress.covers.oldest),
        restored_from=desired.checkpoint if desired else 0,
        enabled=desired is not None and desired.punctuate and not desired.paused,
    )

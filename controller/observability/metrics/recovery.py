"""The part of the controller's metrics that speaks of recovery: incident, plans, and what capacity there is for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from reprise.controller.observability.metrics import catalogue
from reprise.controller.observability.metrics.look import Look
from reprise.controller.observability.metrics.metric import Sample
from reprise.controller.status.query_state import Status, current_plan
from reprise.controller.status.recovery_time import overhead_of, partition_recoveries, query_recoveries
from reprise.controller.status.standbys import missing
from reprise.scheduler.costs import free_on, partition_costs
from reprise.scheduler.incident import Incident, PlanRecord, batches_in, gaps_of
from reprise.scheduler.placement import spread
from reprise.scheduler.standby_places import differ
from reprise.spark_jobs.topology import StreamTopology

RECENT_S = 900.0
"""So long after an incident its gaps are told: nothing that is skipped comes back, so nothing else ends the alert."""


def recovery_samples(look: Look, now: float) -> Iterator[Sample]:
    """Without the label `topology`, which the caller adds."""
    seen = look.state.observation
    yield from _incident(seen.incident, now)
    look.totals.add(seen)
    for kind in catalogue.KINDS:
        yield Sample("reprise_incidents_total", {"kind": kind}, look.totals.incidents[kind])
    yield from _plans(look)
    yield from _capacity(look)
    yield Sample("reprise_recovery_progress_batches", {}, _progress(look))
    yield Sample("reprise_marked_batches", {}, _marked(seen.incidents, now))
    yield from _standbys(look)
    yield Sample("reprise_upstream_backups_missing", {}, len(seen.progress.unbacked) if seen.progress else 0)
    yield from _expected(look)


def _expected(look: Look) -> Iterator[Sample]:
    """How many seconds queries would be down if a node were lost now."""
    seen, objectives = look.state.observation, _objectives(look.resource)
    own = look.resource
    found = partition_recoveries(
        (p.id for p in look.topology.partitions), seen, own.passive_every, own.batch_interval_s
    )
    placed = seen.desired.assignment if seen.desired else {}
    seconds = {
        p: (placed[p], one.load_s + one.replay_s) for p, one in found.items() if placed.get(p) in seen.nodes
    }
    queries = query_recoveries(look.topology.queries, seconds, overhead_of(seen))
    yield Sample(
        "reprise_recovery_expected_seconds", {}, max((q.seconds for q in queries.values()), default=0.0)
    )
    missed = [q for q, one in queries.items() if one.seconds > objectives.get(q.rpartition(".")[0], inf)]
    yield Sample("reprise_recovery_objectives_missed", {}, len(missed))


def _objectives(resource: StreamTopology) -> dict[str, float]:
    """Operator -> seconds."""
    given = {o.name: o.output.objective_s for o in resource.operators if o.output is not None}
    return {name: seconds for name, seconds in given.items() if seconds is not None}


def _standbys(look: Look) -> Iterator[Sample]:
    seen, wanted, domains = look.state.observation, look.topology.standbys, look.topology.domains
    yield Sample("reprise_standbys_wanted", {}, len(wanted))
    yield Sample("reprise_standbys_missing", {}, len(missing(wanted, seen.progress)))
    placed, at = (seen.desired.standbys, seen.desired.assignment) if seen.desired else ({}, {})
    apart = [
        differ(domains[p], seen.nodes.get(at.get(p, "")), seen.nodes.get(node))
        for p, node in placed.items()
        if p in domains
    ]
    yield Sample("reprise_standbys_not_apart", {}, len(apart) - apart.count(True))


def _incident(incident: Incident | None, now: float) -> Iterator[Sample]:
    for kind in catalogue.KINDS:
        is_open = incident is not None and incident.kind.value == kind
        yield Sample("reprise_incident_open", {"kind": kind}, is_open)
    for phase in catalogue.PHASES:
        stands = incident is not None and incident.phase.value == phase
        yield Sample("reprise_incident_phase", {"phase": phase}, stands)
    age = max(0.0, now - incident.opened_at) if incident else 0.0
    yield Sample("reprise_incident_age_seconds", {}, age)
    yield Sample("reprise_incident_lost_nodes", {}, len(incident.lost) if incident else 0)


def _marked(incidents: Iterable[Incident], now: float) -> int:
    recent = (i for i in incidents if i.closed_at is None or i.closed_at > now - RECENT_S)
    return batches_in(gaps_of(recent))


def _plans(look: Look) -> Iterator[Sample]:
    seen, totals = look.state.observation, look.totals
    for algorithm in catalogue.PLANNED_BY:
        for outcome in catalogue.OUTCOMES:
            labels = {"algorithm": algorithm, "outcome": outcome}
            yield Sample("reprise_plans_total", labels, totals.plans[algorithm, outcome])
    yield Sample("reprise_planning_seconds", observations=tuple(totals.seconds))
    for phase in catalogue.START_PHASES:
        took = tuple(totals.starts.get(phase, ()))
        yield Sample("reprise_node_start_seconds", {"phase": phase}, observations=took)
    yield Sample("reprise_plan_gap_ratio", {}, _gap(seen.newest_plan))
    current = current_plan(seen)
    infeasible = current is not None and not current.added and bool(current.left_out)
    yield Sample("reprise_plan_infeasible", {}, infeasible)


def _gap(plan: PlanRecord | None) -> float:
    value, bound = (plan.plan.get(name) for name in ("value", "bound")) if plan else (0, 0)
    if not isinstance(value, int | float) or not isinstance(bound, int | float) or bound <= 0:
        return 0.0
    return max(0.0, (bound - value) / bound)


def _capacity(look: Look) -> Iterator[Sample]:
    costs, homeless = _costs(look), _homeless(look)
    free = _free(look, costs)
    yield Sample("reprise_free_cpu_cores", {}, sum(free.values()) / 1000)
    yield Sample("reprise_waiting_cpu_cores", {}, sum(costs[p] for p in homeless) / 1000)
    waiting = [q.id for q in look.state.queries if q.status is Status.WAITING]
    fitting = scattered = 0
    needs = {query.id: query.partitions for query in look.topology.queries}
    for query in waiting:
        missing = [p.id for p in look.topology.partitions if p.id in needs[query] & homeless]
        if missing and spread(missing, costs, free) is not None:
            fitting += 1
        elif missing and sum(costs[p] for p in missing) <= sum(free.values()):
            scattered += 1
    yield Sample("reprise_waiting_queries_that_fit", {}, fitting)
    yield Sample("reprise_waiting_queries_without_a_node", {}, scattered)


def _costs(look: Look) -> Mapping[str, int]:
    """Milli-CPU, as plans count them."""
    seen = look.state.observation
    declared = {p.id: p.cpu_milli for p in look.topology.partitions}
    return partition_costs(declared, look.policy, seen.nodes, seen.desired, seen.stats, seen.incident)


def _free(look: Look, costs: Mapping[str, int]) -> dict[str, int]:
    """Milli-CPU under the cap of each living node; also of those that the driver does not use yet."""
    seen = look.state.observation
    held = seen.desired.assignment if seen.desired else {}
    return free_on(seen.nodes.values(), look.policy, costs, held)


def _homeless(look: Look) -> frozenset[str]:
    seen = look.state.observation
    placed = seen.desired.assignment if seen.desired else {}
    return frozenset(p.id for p in look.topology.partitions if placed.get(p.id) not in seen.nodes)


def _progress(look: Look) -> int:
    progress = look.state.observation.progress
    if progress is None:
        return 0
    total, needs = 0, {query.id: query.partitions for query in look.topology.queries}
    for query in look.state.queries:
        if query.status is not Status.AVAILABLE:
            working = needs[query.id] & progress.positions.keys()
            total += progress.positions.get(query.id, 0) + len(working)
    return total

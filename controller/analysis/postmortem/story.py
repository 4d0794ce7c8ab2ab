"""An incident with all that its post-mortem rests on, and the facts that follow from the records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost
from reprise.controller.errors import ReportError
from reprise.controller.status.model import QueryTimesView
from reprise.controller.status.timeline import query_times
from reprise.scheduler.incident import Incident, PlanRecord
from reprise.scheduler.missing import Missing
from reprise.spark_jobs.topology import Topology


@dataclass(frozen=True, slots=True)
class Story:
    """`plans`: those of the incident, oldest first.  `end`: when it was closed, else when the records were read; never
    before the incident was opened, as the clock of another coordinator may say."""

    topology: Topology
    incident: Incident
    plans: tuple[PlanRecord, ...]
    end: float
    heartbeats: tuple[tuple[float, str], ...] = ()
    """(time, name) of nodes that were seen to arrive, where something but the plans recorded it."""

    @property
    def priorities(self) -> Mapping[str, int]:
        return {query.id: query.priority for query in self.topology.queries.values()}

    @property
    def downtimes(self) -> tuple[QueryTimesView, ...]:
        """The most valuable first."""
        return query_times(self.incident, self.priorities, self.end)

    @property
    def lost_s(self) -> float:
        """Seconds of the whole topology lost: downtime weighted by priority, over the summed priority of all queries.  Where
        a query was not measured it counts until the end of the record, so this is a lower bound then."""
        total = sum(self.priorities.values()) or 1
        return sum(d.priority * d.down_s for d in self.downtimes) / total

    @property
    def arrivals(self) -> tuple[tuple[float, str, int], ...]:
        """(time, node, free milli-CPU) of each node that a later plan could use and the one before could not; and of those
        that came when nothing was left to plan, where their heartbeats are on record: what is free on them is on none, so
        they count as `new_node_free`."""
        known = {node.rpartition("#")[0] for plan in self.plans for node in plan.free}
        free = self.new_node_free
        late = [(at, name, free) for at, name in self.heartbeats if name not in known]
        inside = [entry for entry in late if self.incident.opened_at <= entry[0] <= self.end]
        return tuple(sorted([*self.planned_arrivals, *inside]))

    @property
    def planned_arrivals(self) -> tuple[tuple[float, str, int], ...]:
        """Those of the arrivals that a plan could use.  None is before the plan that could not, nor before the incident,
        even if the clock went back between the two."""
        times = accumulate((max(plan.time, self.incident.opened_at) for plan in self.plans), max)
        found: list[tuple[float, str, int]] = []
        for at, (before, after) in zip(islice(times, 1, None), pairwise(self.plans), strict=True):
            new = sorted(after.free.keys() - before.free.keys())
            found += [(at, node, after.free[node]) for node in new]
        return tuple(found)

    @property
    def new_node_free(self) -> int:
        """Milli-CPU that is free on a node that comes: the most that one brought; where no plan saw one come, the most that
        a plan found free on a node."""
        brought = [free for _, _, free in self.planned_arrivals]
        return max(brought or [free for plan in self.plans for free in plan.free.values()], default=0)


def make_story(
    topology: Topology,
    incident: Incident,
    plans: Sequence[PlanRecord],
    now: float,
    heartbeats: Sequence[tuple[float, str]] = (),
) -> Story:
    """`plans`: of any incidents."""
    mine = sorted((p for p in plans if p.incident == incident.id), key=lambda plan: plan.turn)
    end = incident.closed_at if incident.closed_at is not None else now
    return Story(topology, incident, tuple(mine), max(end, incident.opened_at), tuple(heartbeats))


def instance_of(
    plan: PlanRecord, incident: Incident, topology: Topology, source: str, edges: bool = False
) -> Instance:
    """The question that a plan answered; with `edges` for who asks the operator-centric baseline, which alone looks at them:
    there may be millions.  ReportError names `source` and what in it does not belong together."""
    _require_known(plan, topology, source)
    place = {p: k for k, p in enumerate(topology.order)}
    missing = Missing(place, frozenset(plan.pending))
    needs = {c.query: missing(topology.queries[c.query].partitions) for c in plan.candidates}
    wanted = set[str]().union(*needs.values())
    for partition in sorted(wanted):
        if partition not in incident.costs:
            raise ReportError(f"{source}: incident {incident.id}: costs: no partition {partition!r}")
    order = [p for p in topology.order if p in wanted]
    upstream = (
        (u.partition, p)
        for p in order
        for u in topology.partitions[p].upstream
        if u.partition in wanted and not u.feedback
    )
    return Instance(
        capacity=sum(plan.free.values()),
        partitions=tuple(PartitionCost(p, incident.costs[p]) for p in order),
        queries=tuple(FailedQuery(c.query, c.priority, needs[c.query]) for c in plan.candidates),
        nodes=tuple(NodeCapacity(node, room) for node, room in plan.free.items()),
        edges=tuple(upstream) if edges else (),
    )


def _require_known(plan: PlanRecord, topology: Topology, source: str) -> None:
    """ReportError where a plan names what the topology does not have."""
    named = (
        ("pending", "partition", plan.pending, topology.partitions),
        ("candidates", "query", [c.query for c in plan.candidates], topology.queries),
    )
    for field, kind, names, known in named:
        if unknown := next((name for name in names if name not in known), None):
            raise ReportError(f"{source}: plan {plan.id}: {field}: topology.json has no {kind} {unknown!r}")

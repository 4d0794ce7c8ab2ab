"""Why a query is where it is, and when it comes back.

What it misses and what the plan said of it are facts.  The time is a range: the arrivals that are still needed at the pace
seen so far, and the restore and catch-up times measured so far.  Where one of them was never measured the range is unknown
and `basis` says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from reprise.controller.analysis.measured import Measured, Sample, measured
from reprise.controller.analysis.recovery import Recovery, needed_by, recovery_of
from reprise.controller.status import StatusDocument
from reprise.controller.status.model import LeftOutView, PartitionView, PlanView, QueryView
from reprise.controller.status.partition_state import PartitionState
from reprise.controller.status.partitions import LOST
from reprise.controller.status.query_state import Status
from reprise.controller.status.standbys import with_upstream_backup
from reprise.spark_jobs.topology.promise import Promise


@dataclass(frozen=True, slots=True)
class MissingPartition:
    partition: str
    state: PartitionState
    cost: int
    """Milli-CPU."""
    node: str | None
    """`node#incarnation` on which it is being restored; None where it has no place."""
    reason: str
    shared_with: int
    """Other queries that need it, too."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Milli-CPU in sum over all nodes, under their caps."""

    needs: int
    """Of its partitions that have no place."""
    free: int | None
    """What the newest plan has left; None where no plan has looked."""
    missing: int | None
    """To add it to that plan."""
    enters_at: int | None
    """Smallest free capacity before the plan at which it comes in, and whether that is exact."""
    exact: bool
    """Of `enters_at`: False, it comes in there for certain, and may come in earlier."""
    competes_with: tuple[str, ...]
    """Chosen queries that would have to make way."""
    nodes_needed: int | None
    """As many as must arrive; None where no node has arrived whose size could be taken."""
    node_size: int | None
    """Milli-CPU that was free on a node that had just arrived, the most of all that have; None: none has."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds from now.  Both None: unknown; `high` alone: it takes at least `low`, as not all of its basis was measured."""

    low: float | None
    high: float | None
    basis: str
    """What the range rests on, or what was never measured."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the way back: `times` times what `sample` measured."""

    what: str
    sample: Sample
    times: int = 1

    def __str__(self) -> str:
        known = self.sample.range is not None
        return f"{self.what} {self.sample}" if known else f"{self.what.removesuffix(' took')}: {self.sample}"


@dataclass(frozen=True, slots=True)
class Explanation:
    query: str
    priority: int
    state: Status
    lag: int
    """Batches between its output and the last one that is due."""
    waits_for: str
    """One sentence."""
    missing: tuple[MissingPartition, ...]
    capacity: Capacity | None
    """None where it does not wait for capacity."""
    expected: Expected
    plan: str | None
    """The plan that this is taken from."""
    recovery: Recovery | None = None
    """If a node were lost now; None where it is not known, as while something is missing."""
    slower: tuple[str, ...] = ()
    """Nodes above their cap that it has partitions on, with how much slower that makes it."""
    promise: Promise | None = None
    """What is promised of its output; None where a controller of an earlier version does not say."""
    fed_again: tuple[str, ...] = ()
    """Operators that it needs of which a lost partition is fed again by what it reads (`availability: upstream-backup`),
    which is built for one failure along a path (level 1); empty before a driver has reported."""


def explain(document: StatusDocument, query_id: str) -> Explanation:
    """LookupError names the queries that there are."""
    query = next((q for q in document.queries.items if q.id == query_id), None)
    if query is None:
        known = ", ".join(q.id for q in document.queries.items)
        raise LookupError(f"no query {query_id!r}; there are {known}")
    missing = tuple(_missing(partition) for partition in _lost_of(document, query.id))
    waiting = [m for m in missing if m.state is PartitionState.WAITING]
    left_out = _left_out(document.plan, query.id)
    capacity = _capacity(document, waiting, left_out) if waiting and document.incident else None
    times = measured(document)
    waits_for = _waits_for(query, missing, capacity, left_out)
    expected = _expected(document, query, missing, capacity, times)
    if not document.connected:
        waits_for = f"unknown: ZooKeeper does not answer; as known last: {waits_for}"
        expected = Expected(None, None, "unknown: ZooKeeper does not answer")
    return Explanation(
        query=query.id,
        priority=query.priority,
        state=query.state,
        lag=query.lag,
        waits_for=waits_for,
        missing=missing,
        capacity=capacity,
        expected=expected,
        plan=document.plan.id if document.plan else None,
        recovery=recovery_of(document, query),
        slower=_slower(document, query.id),
        promise=_promise(document, query.id),
        fed_again=_fed_again(document, query.id),
    )


def _slower(document: StatusDocument, query: str) -> tuple[str, ...]:
    nodes = {partition.node for partition in needed_by(document, query)}
    return tuple(
        f"{n.name} is to run {n.used}m of {n.cpu}m: about {n.slowdown:g} times as slow"
        for n in document.nodes
        if n.id in nodes and n.slowdown is not None and n.slowdown > 1
    )


def _promise(document: StatusDocument, query: str) -> Promise | None:
    operator = query.rpartition(".")[0]
    return next((o.promise for o in document.graph.operators if o.name == operator), None)


def _fed_again(document: StatusDocument, query: str) -> tuple[str, ...]:
    """One with standbys is fed as a last resort, where both copies are lost: that is said of the partition."""
    found = with_upstream_backup(needed_by(document, query), document.graph)
    return tuple(dict.fromkeys(partition.operator for partition in found))


def _lost_of(document: StatusDocument, query: str) -> list[PartitionView]:
    """All that a query misses, in topological order; its own list names the first of them."""
    return [p for p in needed_by(document, query) if p.state in LOST]


def _missing(partition: PartitionView) -> MissingPartition:
    others = max(0, partition.needed_by - 1)
    why = "; ".join(text for text in (partition.reason, _BACKED[partition.backed]) if text)
    return MissingPartition(partition.id, partition.state, partition.cost, partition.node, why, others)


_BACKED = {
    None: "",
    True: "what it reads can feed it again, without its stored state",
    False: "what it reads cannot feed it again now: it comes from the checkpoint",
}
"""By `PartitionView.backed`."""


def _left_out(plan: PlanView | None, query: str) -> LeftOutView | None:
    return next((entry for entry in plan.left_out if entry.query == query), None) if plan else None


def _capacity(
    document: StatusDocument, waiting: list[MissingPartition], left_out: LeftOutView | None
) -> Capacity:
    costs = {p.id: p.cost for p in document.partitions}
    plan = document.plan
    free = sum(plan.free.values()) - sum(costs.get(p, 0) for p in plan.added) if plan else None
    size = _node_size(document)
    missing = left_out.missing_capacity if left_out else None
    return Capacity(
        needs=sum(m.cost for m in waiting),
        free=free,
        missing=missing,
        enters_at=left_out.enters_at if left_out else None,
        exact=left_out.entry_exact if left_out else False,
        competes_with=left_out.competes_with if left_out else (),
        nodes_needed=max(1, ceil(missing / size)) if missing is not None and size else None,
        node_size=size,
    )


def _node_size(document: StatusDocument) -> int | None:
    """What a node that arrives brings: the most that one which had just come had free."""
    found = []
    for incident in (document.incident, document.last_incident):
        for before, after in zip(incident.plans, incident.plans[1:], strict=False) if incident else ():
            found += [free for node, free in after.free.items() if node not in before.free]
    return max(found, default=None)


def _waits_for(
    query: QueryView,
    missing: tuple[MissingPartition, ...],
    capacity: Capacity | None,
    left_out: LeftOutView | None,
) -> str:
    if query.state is Status.AVAILABLE:
        return "nothing: it is available"
    if any(m.state is PartitionState.POISONED for m in missing):
        return "repaired code: an operator raised, and is not tried again while this driver lives"
    if left_out is not None:
        summed = (
            " (plans maximise the summed priority of what comes back)" if left_out.code == "outbid" else ""
        )
        return f"capacity: {left_out.reason}{summed}" if left_out.code else left_out.reason
    if capacity is not None:
        return "the next plan"
    if missing:
        return f"its partitions to be restored: {query.reason}"
    return query.reason or "its output to catch up"


def _expected(
    document: StatusDocument,
    query: QueryView,
    missing: tuple[MissingPartition, ...],
    capacity: Capacity | None,
    times: Measured,
) -> Expected:
    if query.state is Status.AVAILABLE:
        return Expected(0.0, 0.0, "it is available")
    if any(m.state is PartitionState.POISONED for m in missing):
        return Expected(None, None, "unknown: it depends on when the code is repaired")
    if query.stalled_since is not None:
        return Expected(None, None, "unknown: its output does not advance")
    if document.incident is None:
        return Expected(None, None, "unknown: no incident is open")
    if capacity is not None and capacity.nodes_needed is None:
        return Expected(None, None, f"unknown: {_why_unknown(capacity)}")
    return _timed(document, bool(missing), capacity, times)


def _timed(document: StatusDocument, missing: bool, capacity: Capacity | None, times: Measured) -> Expected:
    restore, catch_up = Part("restoring took", times.restore), Part("catching up took", times.catch_up)
    if capacity is not None and capacity.nodes_needed is not None:
        needed = capacity.nodes_needed
        since = document.time - (times.last_arrival or document.time)
        nodes = f"{needed} node{'s' if needed > 1 else ''} needed; nodes came every"
        return _sum([Part(nodes, times.gaps, needed), restore, catch_up], since)
    if missing:
        started = document.plan.time if document.plan else document.time
        return _sum([restore, catch_up], document.time - started)
    return _sum([catch_up], 0.0)


def _why_unknown(capacity: Capacity) -> str:
    if capacity.missing is None:
        return "no plan has said yet what it needs"
    return "no node has arrived yet, so neither their size nor their pace is known"


def _sum(parts: list[Part], spent: float) -> Expected:
    """The ranges added up less what has passed of the first; unknown when one of them is."""
    basis = "; ".join(map(str, parts))
    low, high = 0.0, 0.0
    open_end = False
    for part, passed in zip(parts, (spent, *[0.0] * len(parts)), strict=False):
        span = part.sample.range
        if span is None:
            return Expected(None, None, f"unknown: {basis}")
        low += max(0.0, part.times * span[0] - passed)
        open_end = open_end or span[1] is None
        high += max(0.0, part.times * (span[1] or 0.0) - passed)
    first = parts[0].sample.range
    if first and first[1] is not None and spent > parts[0].times * first[1]:
        basis += f"; it has taken {spent:.0f} s already, longer than ever before"
    return Expected(round(low, 1), None if open_end else round(high, 1), basis)

"""What a recovery was worth: area under the priority-weighted availability up to a fixed horizon, and where the rest went.

The yardstick is the bound that the arrivals of nodes allow: at each moment the greatest summed priority of whole queries
that the nodes alive then can run under the CPU cap, as if every partition could be placed at once and for nothing
(`reprise.algorithms.solve`, exact).  No strategy of this project can reach it: detection, restoring and catching up take
time, and what runs stays where it is.  It can be passed for a moment only: a query that has just been lost counts as
available until its latency exceeds the limit (`reprise.controller.local.report.latency`).  Other engines have no cap, so it
is no bound for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost, solve
from reprise.algorithms.cpu import milli_cpu
from reprise.controller.local.report.history import Seconds, Writes
from reprise.controller.local.report.latency import criterion_for
from reprise.controller.local.report.output_availability import output_availability
from reprise.scheduler.node_start import StartPhase
from reprise.spark_jobs.topology import StreamTopology, expand

PLAN_S = 10.0
"""Time limit of one exact plan; 17 partitions take well under a second."""
SILENCE_S = 1.5
"""A query that writes nothing for so long is silent, where batches come more often."""
USUAL_S = 15.0
"""Before the failure, in which the usual time between two writes is measured."""
NEVER = float("inf")
Steps = Sequence[tuple[float, float]]
"""(seconds since the failure, value from then on), rising in time."""
Share = Callable[[int], float]
"""Nodes alive -> the greatest share of the summed priorities that they can run, 0..1."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One run; all times are seconds since its failure.  `relative` is the mean relative latency of the lost queries."""

    elapsed: tuple[float, ...]
    share: tuple[float, ...]
    available: tuple[int, ...]
    relative: tuple[float, ...]
    lost_nodes: int
    priorities: Mapping[str, int]
    nodes: Mapping[StartPhase, tuple[float, ...]] = field(default_factory=dict)
    """When each new node had passed a phase; one that never did is left out."""
    queries: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What has come back -> query -> when (`RETURNS`); a query that never did is left out."""
    usual_s: float = 0.0
    """Mean latency before the failure, weighted by priority."""
    again_s: float | None = None
    """Until every query was available for good; None: not by the horizon."""
    last_s: float = NEVER
    """The last output of the run."""

    @property
    def first_s(self) -> float | None:
        """Until the first of the queries that had fallen silent wrote again; 0: one never was silent."""
        return min(self.queries.get(OUTPUT, {}).values(), default=None)


RESTORED, OUTPUT, CAUGHT_UP, AVAILABLE = RETURNS = (
    "queries from the driver's report that they are restored",
    "queries from their first output",
    "queries from when they have caught up",
    "queries from when they are available",
)
"""How a query comes back, in this order; it is available by the criterion, the first time since its first output."""
BOUNDS = {
    StartPhase.REQUESTED: "bound, nodes from the request",
    StartPhase.HEARTBEAT: "bound, nodes from the heartbeat",
    StartPhase.READY: "bound, nodes from when the exchange reaches them",
}
WHOLE, MEASURED = "no failure", "measured"
CAUSES = (WHOLE, *BOUNDS.values(), *RETURNS, MEASURED)
"""What is counted in a ladder of causes, from the greatest area to the measured one."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a contestant left behind; all times are unix seconds."""

    zero: float
    """When its stream began."""
    failure: float
    writes: Mapping[str, Writes]
    priorities: Mapping[str, int]
    lost_nodes: int
    nodes: Mapping[StartPhase, tuple[float, ...]]
    """When each new node had passed a phase."""
    returns: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What its records have of how queries came back (`RETURNS`) -> query -> when."""


def evidence_of(report: Mapping[str, Any], writes: Mapping[str, Writes]) -> Evidence | None:
    """From an incident.json and the outputs of the run; None when nothing was written or failed."""
    if report.get("failure") is None or not any(one.written.size for one in writes.values()):
        return None
    zero, incidents = float(report["zero"]), report["incidents"]
    starts = [start["ended"] for incident in incidents for start in incident["node_starts"].values()]
    failure = zero + float(report["failure"])
    lost = {query for incident in incidents for query in incident["queries"]}
    returns: dict[str, dict[str, float]] = {
        what: {query: failure for query in report["queries"] if query not in lost}
        for what in (RESTORED, CAUGHT_UP)
    }
    for incident in incidents:
        for query, one in incident["queries"].items():
            for what, event in ((RESTORED, "restored"), (CAUGHT_UP, "caught_up")):
                if one[event] is not None:
                    returns[what].setdefault(query, zero + one[event])
    return Evidence(
        zero=zero,
        failure=failure,
        writes=writes,
        priorities={query: one["priority"] for query, one in report["queries"].items()},
        lost_nodes=sum(
            len(str(line["detail"]).split()) for line in report["timeline"] if line["what"] == "kill"
        ),
        nodes={
            phase: tuple(sorted(zero + start[phase] for start in starts if phase in start))
            for phase in BOUNDS
        },
        returns=returns,
    )


def curve_of(evidence: Evidence, interval_s: float, horizon_s: float, lead_s: float = 5.0) -> Curve:
    """Availability until the horizon by the criterion that all contestants share, for batches of `interval_s`."""
    failure, end = evidence.failure, evidence.failure + horizon_s
    writes = {query: _until(one, end) for query, one in evidence.writes.items()}
    found = output_availability(
        writes, evidence.priorities, (evidence.zero, end), failure, False, criterion_for(interval_s)
    )
    assert found is not None
    since = found.grid - failure
    shown = np.flatnonzero((since >= -lead_s) & (since <= horizon_s))
    down = [s for s in found.queries.values() if not s.available[since >= 0].all()] or [
        *found.queries.values()
    ]
    again = [found.again_s(query) for query in found.queries]
    output = {query: first_output(one, failure) for query, one in writes.items()}
    back = {
        OUTPUT: output,
        AVAILABLE: {q: _available(one.available, since, output.get(q)) for q, one in found.queries.items()},
        **{what: {q: at - failure for q, at in times.items()} for what, times in evidence.returns.items()},
    }
    return Curve(
        elapsed=tuple(float(t) for t in since[shown]),
        share=tuple(float(s) for s in found.share[shown]),
        available=tuple(int(n) for n in found.count[shown]),
        relative=tuple(float(r) for r in np.mean([one.relative[shown] for one in down], axis=0)),
        lost_nodes=evidence.lost_nodes,
        priorities=evidence.priorities,
        nodes={phase: tuple(at - failure for at in times) for phase, times in evidence.nodes.items()},
        queries={
            what: {q: at for q, at in times.items() if at is not None}
            for what, times in back.items()
            if times
        },
        usual_s=sum(one.priority * one.baseline_s for one in found.queries.values())
        / sum(evidence.priorities.values()),
        again_s=None if None in again else max((at for at in again if at is not None), default=0.0),
        last_s=max(float(one.written.max()) for one in evidence.writes.values() if one.written.size)
        - failure,
    )


def _until(writes: Writes, end: float) -> Writes:
    kept = writes.written <= end
    return Writes(writes.batches[kept], writes.due[kept], writes.written[kept])


def _available(
    available: np.ndarray[Any, np.dtype[np.bool_]], since: Seconds, output: float | None
) -> float | None:
    """When a query was available from its first `output` on; 0 where it had been throughout, None where it never was."""
    if output is None:
        return None
    if available[(since >= 0) & (since <= output)].all():
        return 0.0
    up = np.flatnonzero(available & (since >= output))
    return float(since[up[0]]) if up.size else None


def first_output(writes: Writes, failure: float) -> float | None:
    """Seconds from the failure (unix seconds) to the end of the first silence after it; 0 where the query was never silent,
    None where it never ended."""
    at = np.unique(writes.written)
    before = np.diff(at[(at > failure - USUAL_S) & (at <= failure)])
    limit = max(SILENCE_S, 2 * float(np.median(before)) if before.size else 0.0)
    since = at[max(0, int(np.searchsorted(at, failure, side="right")) - 1) :]
    for earlier, later in pairwise(since):
        if later > failure and later - earlier > limit:
            return float(later - failure)
    return 0.0 if since.size and since[-1] > failure + limit else None


def area(steps: Steps, until: float) -> float:
    """Integral from 0 to `until`; each value holds until the next step, the last one for ever."""
    total = 0.0
    ends = [at for at, _ in steps[1:]] + [until]
    for (at, value), end in zip(steps, ends, strict=True):
        total += value * max(0.0, min(end, until) - max(at, 0.0))
    return total


def greatest_share(resource: StreamTopology, cpu_milli: int) -> Share:
    """What fits on a number of nodes under the cap."""
    topology = expand(resource)
    partitions = tuple(PartitionCost(p.id, milli_cpu(p.cpu_cores)) for p in topology.partitions.values())
    queries = tuple(
        FailedQuery(q.id, q.priority, tuple(sorted(q.partitions))) for q in topology.queries.values()
    )
    free = int(resource.recovery.cpu_cap * cpu_milli)
    total = sum(q.priority for q in queries)

    @lru_cache(maxsize=64)
    def share(alive: int) -> float:
        nodes = tuple(NodeCapacity(f"n{i:03}", free) for i in range(alive))
        instance = Instance(free * alive, partitions, queries, nodes)
        plan = solve(instance, "auto", PLAN_S, time.monotonic)
        return (plan.value if plan.optimal else min(plan.bound, total)) / total

    return share


def bound_steps(arrivals: Sequence[float], alive: int, share: Share) -> list[tuple[float, float]]:
    """The bound over time: `alive` nodes after the failure, standby nodes included, and those that arrived later."""
    steps = [(0.0, share(alive))]
    for number, at in enumerate(sorted(max(0.0, at) for at in arrivals), 1):
        steps.append((at, share(alive + number)))
    return steps


def ladder(curve: Curve, nodes: int, share: Share | None, horizon_s: float) -> list[tuple[str, float]]:
    """Area in seconds with one cause of loss after the other: (from which moment nodes or queries count, area).  `share`:
    None where no bound is known.

    The last entry is the measured area.  Relapses make it less than the entry before it, because a query counts there from
    the first time on.  The moment in which a lost query still counts as available makes it more."""
    found = [(WHOLE, horizon_s)]
    alive = nodes - curve.lost_nodes
    for phase, name in BOUNDS.items():
        if share is not None and phase in curve.nodes:
            found.append((name, area(bound_steps(curve.nodes[phase], alive, share), horizon_s)))
    total = sum(curve.priorities.values())
    for name in RETURNS:
        if at := curve.queries.get(name):
            there = (p * (horizon_s - min(at.get(q, NEVER), horizon_s)) for q, p in curve.priorities.items())
            found.append((name, sum(there) / total))
    return [*found, (MEASURED, area(list(zip(curve.elapsed, curve.share, strict=True)), horizon_s))]

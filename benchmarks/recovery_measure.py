"""What a recovery was worth: area under the priority-weighted availability up to a fixed horizon, and where the rest went.

The yardstick is the bound that the arrivals of nodes allow: at each moment the greatest summed priority of whole queries
that the nodes alive then can run under the CPU cap, as if every partition could be placed at once and for nothing
(`reprise.algorithms.solve`, exact).  No strategy can reach it: detection, restoring and catching up take time, and what runs
stays where it is.  It can be passed for a moment only: a query that has just been lost counts as available until its latency
exceeds the limit (`reprise.controller.local.report.latency`).
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
from reprise.controller.local.report.history import Writes
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
    again_s: float | None = None
    """Until every query was available for good; None: not in this run."""

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
"""How a query comes back, in this order; available is what the criterion says, the first time."""
BOUNDS = {
    StartPhase.REQUESTED: "bound, nodes from the request",
    StartPhase.HEARTBEAT: "bound, nodes from the heartbeat",
    StartPhase.READY: "bound, nodes from when the exchange reaches them",
}


@dataclass(frozen=True, slots=True)
class Worth:
    """Areas in seconds up to one horizon."""

    area_s: float
    asked_s: float
    """The bound, where a node counts from the request for it."""
    heartbeat_s: float
    """The bound, where a node counts from its heartbeat."""
    horizon_s: float

    @property
    def of_bound(self) -> float:
        return self.area_s / self.heartbeat_s if self.heartbeat_s else 1.0

    @property
    def of_asked(self) -> float:
        return self.area_s / self.asked_s if self.asked_s else 1.0

    @property
    def lost_s(self) -> float:
        return self.horizon_s - self.area_s


def curve_of(report: Mapping[str, Any], writes: Mapping[str, Writes], lead_s: float = 5.0) -> Curve | None:
    """From an incident.json and the outputs of the run; None when it has no series or nothing failed."""
    if "series" not in report or report["failure"] is None:
        return None
    failure, series = float(report["failure"]), report["series"]
    rows = [k for k, t in enumerate(series["elapsed"]) if t - failure >= -lead_s]
    incidents = report["incidents"]
    failed = {q for i in incidents for q in i["queries"]} or set(series["relative_latency"])
    latencies = [series["relative_latency"][q] for q in sorted(failed)]
    elapsed = np.array([series["elapsed"][k] - failure for k in rows])
    late = [one["available_again_s"] for one in report["queries"].values()]
    down = [line for line in report["timeline"] if line["what"] == "kill"]
    return Curve(
        elapsed=tuple(float(t) for t in elapsed),
        share=tuple(series["share"][k] for k in rows),
        available=tuple(series["available"][k] for k in rows),
        relative=tuple(sum(one[k] for one in latencies) / len(latencies) for k in rows),
        lost_nodes=sum(len(str(line["detail"]).split()) for line in down),
        priorities={q: one["priority"] for q, one in report["queries"].items()},
        nodes=_starts([start["ended"] for i in incidents for start in i["node_starts"].values()], failure),
        queries={
            RESTORED: _first(incidents, "restored", failure),
            OUTPUT: {
                q: found
                for q, one in writes.items()
                if (found := first_output(one, report["zero"] + failure)) is not None
            },
            CAUGHT_UP: _first(incidents, "caught_up", failure),
            AVAILABLE: {
                q: found
                for q, one in report["queries"].items()
                if (found := _available(one, series["relative_latency"][q], rows, elapsed)) is not None
            },
        },
        again_s=None if None in late else max(late, default=0.0),
    )


def _starts(starts: Sequence[Mapping[str, float]], failure: float) -> Mapping[StartPhase, tuple[float, ...]]:
    return {
        phase: tuple(sorted(start[phase] - failure for start in starts if phase in start)) for phase in BOUNDS
    }


def _first(incidents: Sequence[Mapping[str, Any]], event: str, failure: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for incident in incidents:
        for query, one in incident["queries"].items():
            if one[event] is not None:
                found.setdefault(query, one[event] - failure)
    return found


def first_output(writes: Writes, failure: float) -> float | None:
    """Seconds from the failure (unix seconds) to the end of the first silence after it; 0 where the query was never silent,
    None where it never ended."""
    at = np.unique(writes.written)
    before = np.diff(at[(at > failure - USUAL_S) & (at <= failure)])
    limit = max(SILENCE_S, 2 * float(np.median(before)) if before.size else 0.0)
    since = at[at > failure - limit]
    for earlier, later in pairwise(since):
        if later > failure and later - earlier > limit:
            return float(later - failure)
    return 0.0 if since.size and since[-1] > failure + limit else None


def _available(
    query: Mapping[str, Any], relative: Sequence[float], rows: Sequence[int], elapsed: np.ndarray[Any, Any]
) -> float | None:
    """When a query was available for the first time after it was not; 0 where it always was, None where it never was."""
    limit = query["limit_s"] / max(query["baseline_s"], 1e-3)
    there = np.array([relative[k] < limit for k in rows])
    down = np.flatnonzero(~there & (elapsed >= 0))
    if not down.size:
        return 0.0
    up = np.flatnonzero(there[down[0] :])
    return float(elapsed[down[0] + up[0]]) if up.size else None


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


def worth(curve: Curve, nodes: int, share: Share, horizon_s: float) -> Worth:
    """`nodes`: those before the failure, standby nodes included."""
    measured = list(zip(curve.elapsed, curve.share, strict=True))
    asked, heartbeat = (
        area(bound_steps(curve.nodes.get(phase, ()), nodes - curve.lost_nodes, share), horizon_s)
        for phase in (StartPhase.REQUESTED, StartPhase.HEARTBEAT)
    )
    return Worth(area(measured, horizon_s), asked, heartbeat, horizon_s)


def ladder(curve: Curve, nodes: int, share: Share, horizon_s: float) -> list[tuple[str, float]]:
    """Area in seconds with one cause of loss after the other: (from which moment nodes or queries count, area).

    The last entry is the measured area.  Relapses make it less than the entry before it, because a query counts there from
    the first time on.  The moment in which a lost query still counts as available makes it more."""
    found = [("no failure", horizon_s)]
    alive = nodes - curve.lost_nodes
    for phase, name in BOUNDS.items():
        if phase in curve.nodes:
            found.append((name, area(bound_steps(curve.nodes[phase], alive, share), horizon_s)))
    total = sum(curve.priorities.values())
    for name in RETURNS:
        if name in curve.queries:
            at = curve.queries[name]
            there = (p * (horizon_s - min(at.get(q, NEVER), horizon_s)) for q, p in curve.priorities.items())
            found.append((name, sum(there) / total))
    return [*found, ("measured", area(list(zip(curve.elapsed, curve.share, strict=True)), horizon_s))]


def order_broken(areas: Mapping[str, float]) -> list[str]:
    """What of the expected order best-case >= incremental > operator-centric, blocking a seed did not show."""
    found = []
    if areas.get("best-case", float("inf")) < areas.get("incremental", 0.0):
        found.append("incremental lost less than best-case")
    for other in ("operator-centric", "blocking"):
        if areas.get("incremental", float("inf")) <= areas.get(other, 0.0):
            found.append(f"incremental was no better than {other}")
    return found

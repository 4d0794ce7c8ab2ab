"""What a recovery was worth: area under the priority-weighted availability, against two yardsticks of the same run.

Yardsticks: the best case (every lost node has a standby), and the bound that node arrivals allow: at each moment the
greatest summed priority of whole queries that the nodes alive then can run under the CPU cap, as if every partition could
be placed anew at once and for nothing (`reprise.algorithms.solve`, exact).  No strategy can reach the bound: detection,
restoring and catching up take time, and what runs stays where it is.  It can be passed for a moment only, because a query
that has just been lost counts as available until its latency says otherwise (`reprise.controller.local.report.latency`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost, solve
from reprise.algorithms.cpu import milli_cpu
from reprise.spark_jobs.topology import StreamTopology, expand

PLAN_S = 10.0
"""Time limit of one exact plan; 17 partitions take well under a second."""
Steps = Sequence[tuple[float, float]]
"""(seconds since the failure, value from then on), rising in time."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One run since its failure; `relative` is the mean relative latency of the queries that were lost."""

    elapsed: tuple[float, ...]
    share: tuple[float, ...]
    available: tuple[int, ...]
    relative: tuple[float, ...]
    arrivals: tuple[float, ...]
    lost_nodes: int
    again_s: float | None
    """Until every query was available for good; None: not in this run."""


@dataclass(frozen=True, slots=True)
class Worth:
    """Areas in seconds up to one horizon that all runs of a seed share."""

    area_s: float
    bound_s: float
    horizon_s: float

    @property
    def of_bound(self) -> float:
        return self.area_s / self.bound_s if self.bound_s else 1.0

    @property
    def lost_s(self) -> float:
        return self.horizon_s - self.area_s


def curve_of(report: Mapping[str, Any], lead_s: float = 5.0) -> Curve | None:
    """From an incident.json; None when it has no series or nothing failed."""
    if "series" not in report or report["failure"] is None:
        return None
    failure, series = float(report["failure"]), report["series"]
    rows = [k for k, t in enumerate(series["elapsed"]) if t - failure >= -lead_s]
    failed = {q for i in report["incidents"] for q in i["queries"]} or set(series["relative_latency"])
    latencies = [series["relative_latency"][q] for q in sorted(failed)]
    times = {q: one["available_again_s"] for q, one in report["queries"].items()}
    late = [t for t in times.values() if t is not None]
    down = [line for line in report["timeline"] if line["what"] == "kill"]
    return Curve(
        elapsed=tuple(series["elapsed"][k] - failure for k in rows),
        share=tuple(series["share"][k] for k in rows),
        available=tuple(series["available"][k] for k in rows),
        relative=tuple(sum(one[k] for one in latencies) / len(latencies) for k in rows),
        arrivals=tuple(
            float(line["elapsed"]) - failure for line in report["timeline"] if line["what"] == "arrived"
        ),
        lost_nodes=sum(len(str(line["detail"]).split()) for line in down),
        again_s=max(late, default=0.0) if len(late) == len(times) else None,
    )


def area(steps: Steps, until: float) -> float:
    """Integral from 0 to `until`; each value holds until the next step, the last one for ever."""
    total = 0.0
    ends = [at for at, _ in steps[1:]] + [until]
    for (at, value), end in zip(steps, ends, strict=True):
        total += value * max(0.0, min(end, until) - max(at, 0.0))
    return total


def greatest_share(resource: StreamTopology, cpu_milli: int) -> Callable[[int], float]:
    """Nodes alive -> the greatest priority-weighted share of queries that fits on them under the cap."""
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


def bound_steps(curve: Curve, nodes: int, share: Callable[[int], float]) -> list[tuple[float, float]]:
    """The bound over time: `nodes` before the failure, standby nodes included, then as they came."""
    alive = nodes - curve.lost_nodes
    steps = [(0.0, share(alive))]
    for at in sorted(curve.arrivals):
        alive += at > 0
        steps.append((max(0.0, at), share(alive)))
    return steps


def worth(curve: Curve, nodes: int, share: Callable[[int], float], horizon_s: float) -> Worth:
    """A run that ended before the horizon keeps its last value: a stream that ended owes nothing."""
    measured = list(zip(curve.elapsed, curve.share, strict=True))
    bound = area(bound_steps(curve, nodes, share), horizon_s)
    return Worth(area(measured, horizon_s), bound, horizon_s)


def order_broken(areas: Mapping[str, float]) -> list[str]:
    """What of the expected order best-case >= incremental > operator-centric, blocking a seed did not show."""
    found = []
    if areas.get("best-case", float("inf")) < areas.get("incremental", 0.0):
        found.append("incremental lost less than best-case")
    for other in ("operator-centric", "blocking"):
        if areas.get("incremental", float("inf")) <= areas.get(other, 0.0):
            found.append(f"incremental was no better than {other}")
    return found

"""How each partition stands.

By itself as `controller.run.standing` says; one at work whose input comes from a partition that is not, however far
upstream, is starved and goes on by itself when that is back.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.run.observation import Observation
from controller.run.standing import PartitionState, partition_state
from controller.view.model import PartitionView
from scheduler import back
from spark_jobs.topology import Partition, Topology

LOST = frozenset({PartitionState.WAITING, PartitionState.RESTORING, PartitionState.POISONED})
"""States of a partition that its queries miss."""


def partition_views(topology: Topology, seen: Observation) -> dict[str, PartitionView]:
    """By id, in topological order."""
    own = {p: partition_state(p, seen) for p in topology.order}
    lost = [p for p, state in own.items() if state in LOST]
    cut_off = topology.downstream_of(lost) if lost else frozenset()
    costs = costs_of(topology, seen)
    queries: dict[str, list[str]] = {p: [] for p in topology.order}
    for query in topology.queries.values():
        for member in query.partitions:
            queries[member].append(query.id)
    found = {}
    for pid, partition in topology.partitions.items():
        state, lag = own[pid], _lag(pid, seen)
        reason = _reason(pid, state, seen)
        if state is PartitionState.CATCHING_UP and pid in cut_off:
            state, reason = PartitionState.STARVED, _starved(topology, pid, lost)
        found[pid] = _view(partition, state, reason, lag, seen, costs[pid], queries[pid])
    return found


def costs_of(topology: Topology, seen: Observation) -> dict[str, int]:
    """Milli-CPU of each partition: as the open incident froze it, else the greater of declared and measured; at least 1."""
    known = seen.incident.costs if seen.incident else {}
    found = {}
    for pid, partition in topology.partitions.items():
        declared = max(1, round(partition.cpu_cores * 1000))
        measured = int(seen.stats[pid].cpu_milli) if pid in seen.stats else 0
        found[pid] = known.get(pid, max(declared, measured))
    return found


def _reason(partition: str, state: PartitionState, seen: Observation) -> str:
    """Of its own state, without regard to what it reads."""
    progress, desired = seen.progress, seen.desired
    if progress is None or desired is None:
        return "the topology has not started"
    failed, node = progress.failed.get(partition), desired.assignment.get(partition)
    match state:
        case PartitionState.POISONED:
            return failed or ""
        case PartitionState.WAITING:
            return f"lost with {node}" if node else "no plan has placed it yet"
        case PartitionState.RESTORING:
            return failed or f"from checkpoint {desired.checkpoint}"
        case PartitionState.CATCHING_UP:
            return f"{_lag(partition, seen)} batches behind"
        case _:
            return ""


def _starved(topology: Topology, partition: str, lost: list[str]) -> str:
    missing = sorted(topology.upstream_of([partition]) & frozenset(lost))
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return f"needs the output of {', '.join(missing[:3])}{more}"


def _lag(partition: str, seen: Observation) -> int | None:
    progress = seen.progress
    if progress is None or partition not in progress.positions:
        return None
    return back.behind(progress, seen.incident, partition)


def _view(
    partition: Partition,
    state: PartitionState,
    reason: str,
    lag: int | None,
    seen: Observation,
    cost: int,
    queries: list[str],
) -> PartitionView:
    positions: Mapping[str, int] = seen.progress.positions if seen.progress else {}
    assignment: Mapping[str, str] = seen.desired.assignment if seen.desired else {}
    node = assignment.get(partition.id)
    return PartitionView(
        id=partition.id,
        operator=partition.place.operator,
        state=state,
        reason=reason,
        position=positions.get(partition.id),
        lag=lag,
        node=node if node in seen.nodes else None,
        cost=cost,
        upstream=tuple(u.partition for u in partition.upstream),
        queries=tuple(queries),
    )

"""How each partition stands.

By itself as `reprise.controller.status.partition_state` says; one at work whose input comes from a partition that is not,
however far upstream, is starved and goes on by itself when that is back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from reprise.algorithms.recovery_time import Aim
from reprise.controller.status.model import AimView, PartitionView
from reprise.controller.status.partition_state import PartitionState, partition_state
from reprise.controller.status.query_state import current_plan
from reprise.controller.status.recovery_time import PartitionRecovery, partition_recoveries
from reprise.controller.status.standbys import is_apart
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import back
from reprise.scheduler.costs import partition_costs
from reprise.scheduler.model import PartitionStats, Policy
from reprise.spark_jobs.topology import Partition, Topology
from reprise.spark_jobs.topology.layout import by_operator, edges
from reprise.spark_jobs.topology.limits import Needs
from reprise.spark_jobs.topology.resource import Mode

LOST = frozenset({PartitionState.WAITING, PartitionState.RESTORING, PartitionState.POISONED})
"""States of a partition that its queries miss."""


def partition_views(topology: Topology, seen: Observation) -> dict[str, PartitionView]:
    """The view of each partition by its id, in topological order."""
    own = {p: partition_state(p, seen) for p in topology.order}
    lost = [p for p, state in own.items() if state in LOST]
    cut_off = topology.downstream_of(lost) if lost else frozenset()
    costs = costs_of(topology, seen)
    needed_by, starved = _needed_by(topology), _Starved(topology, lost)
    recoveries = partition_recoveries(topology.order, seen, topology.passive_every, topology.batch_interval_s)
    found = {}
    for pid, partition in topology.partitions.items():
        state, lag = own[pid], _lag(pid, seen)
        reason = _reason(pid, state, seen)
        if state is PartitionState.CATCHING_UP and pid in cut_off:
            state, reason = PartitionState.STARVED, starved.reason(partition)
        found[pid] = _view(
            topology, partition, state, reason, lag, seen, costs[pid], needed_by[pid], recoveries.get(pid)
        )
    return found


def costs_of(topology: Topology, seen: Observation) -> dict[str, int]:
    """Milli-CPU of each partition, as plans count it."""
    declared = {pid: partition.cpu_milli for pid, partition in topology.partitions.items()}
    policy = Policy(cpu_cap=topology.cpu_cap, node_cpu_milli=topology.node_cpu_milli)
    return partition_costs(declared, policy, seen.nodes, seen.desired, seen.stats, seen.incident)


def _reason(partition: str, state: PartitionState, seen: Observation) -> str:
    """The reason of its own state, without regard to what it reads."""
    progress, desired = seen.progress, seen.desired
    if progress is None or desired is None:
        return "the topology has not started"
    failed, node = progress.failed.get(partition), desired.assignment.get(partition)
    match state:
        case PartitionState.POISONED:
            return str(failed)
        case PartitionState.WAITING:
            plan = current_plan(seen)
            left = f"plan {plan.id} does not place it" if plan else "no plan has placed it yet"
            return f"lost with {node}" if node else left
        case PartitionState.RESTORING:
            taken = progress.restored.get(partition, desired.origin(partition).position)
            return str(failed or f"from checkpoint {taken}")
        case PartitionState.CATCHING_UP:
            return f"{_lag(partition, seen)} batches behind"
        case _:
            return ""


def _needed_by(topology: Topology) -> Counter[str]:
    """How many queries need each partition; a set that queries share is gone through once."""
    found, sharing, sets = Counter[str](), Counter[int](), dict[int, frozenset[str]]()
    for query in topology.queries.values():
        found.update(query.partitions.own)
        shared = query.partitions.shared
        sharing[id(shared)] += 1
        sets[id(shared)] = shared
    for key, queries in sharing.items():
        for partition in sets[key]:
            found[partition] += queries
    return found


class _Starved:
    """Says which lost partitions another one needs, however far upstream; by operators, as partitions of one need the same
    but for those that are reached by `forward` alone."""

    def __init__(self, topology: Topology, lost: list[str]) -> None:
        self._lost = frozenset(lost)
        members = by_operator(topology)
        self._of = {name: [p.id for p in own if p.id in self._lost] for name, own in members.items()}
        inputs: dict[str, list[tuple[str, bool]]] = {}
        for edge in edges(topology) if lost else ():
            inputs.setdefault(edge.target, []).append((edge.origin, edge.grouping.mode is Mode.FORWARD))
        self._needs = Needs(inputs, {name: len(own) for name, own in members.items()})
        self._known: dict[str, tuple[frozenset[str], int, list[str]]] = {}

    def reason(self, partition: Partition) -> str:
        """The first three by name, and how many more there are."""
        operator, index = partition.place.operator, partition.place.index
        if operator not in self._known:
            own, whole = self._needs.of(operator)
            all_of = [p for name in whole for p in self._of[name]]
            self._known[operator] = own, len(all_of), sorted(all_of)[:3]
        own, count, first = self._known[operator]
        alone = [p for p in (f"{name}.{index}" for name in own) if p in self._lost]
        shown, total = sorted([*first, *alone])[:3], count + len(alone)
        return f"needs the output of {', '.join(shown)}" + (f" and {total - 3} more" if total > 3 else "")


def _lag(partition: str, seen: Observation) -> int | None:
    progress = seen.progress
    if progress is None or partition not in progress.positions:
        return None
    return back.behind(progress, seen.incident, partition)


def _view(
    topology: Topology,
    partition: Partition,
    state: PartitionState,
    reason: str,
    lag: int | None,
    seen: Observation,
    cost: int,
    needed_by: int,
    recovery: PartitionRecovery | None,
) -> PartitionView:
    positions: Mapping[str, int] = seen.progress.positions if seen.progress else {}
    assignment: Mapping[str, str] = seen.desired.assignment if seen.desired else {}
    node, measured = assignment.get(partition.id), _measured(partition.id, seen)
    mark = measured.watermark if measured else None
    return PartitionView(
        id=partition.id,
        operator=partition.place.operator,
        state=state,
        reason=reason,
        position=positions.get(partition.id),
        lag=lag,
        node=node if node in seen.nodes else None,
        cost=cost,
        needed_by=needed_by,
        state_bytes=seen.stats[partition.id].state_bytes if partition.id in seen.stats else None,
        standby=seen.desired.standbys.get(partition.id) if seen.desired else None,
        standby_position=seen.progress.standbys.get(partition.id) if seen.progress else None,
        standby_apart=is_apart(topology, seen, partition.id),
        backed=_backed(partition.id, seen),
        load_s=recovery.load_s if recovery else None,
        replay_s=recovery.replay_s if recovery else None,
        replay_rows=recovery.rows if recovery else None,
        assumed=recovery.assumed if recovery else (),
        aim=_aim(recovery.aim) if recovery and recovery.aim else None,
        lag_s=seconds_of(lag, topology),
        input_rows_s=measured.input_rows_s if measured else None,
        checkpoint=seen.progress.covers.of(partition.id) if seen.progress else None,
        error=_error(partition.id, seen),
        watermark=None if mark is None else round(mark / 1e6, 3),
        waits_for=seen.progress.waits.get(partition.id) if seen.progress else None,
        input_ended=measured.input_ended if measured else False,
    )


def seconds_of(lag: int | None, topology: Topology) -> float | None:
    """Seconds of the stream that so many batches are, at the interval of now."""
    return None if lag is None or not topology.batch_interval_s else round(lag * topology.batch_interval_s, 3)


def _measured(partition: str, seen: Observation) -> PartitionStats | None:
    """The record of a load outlives the work: of a partition that is not at work nothing is said."""
    at_work = seen.progress is not None and partition in seen.progress.positions
    return seen.stats.get(partition) if at_work else None


def _error(partition: str, seen: Observation) -> str | None:
    failed = seen.progress.failed.get(partition) if seen.progress else None
    return None if failed is None else str(failed)


def _aim(aim: Aim) -> AimView:
    return AimView(aim.within_s, aim.extent, aim.replay, aim.least_s)


def _backed(partition: str, seen: Observation) -> bool | None:
    if seen.progress is None or partition not in seen.progress.backed | seen.progress.unbacked:
        return None
    return partition in seen.progress.backed

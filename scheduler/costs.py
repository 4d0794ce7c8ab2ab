"""What each partition takes of a node, as plans count it.

The greater of what is declared and what is measured, at least 1 milli-CPU. The paper plans under the
assumption that the cluster was not overloaded before the failure (section 4.4); where measurement says that a
node was, the measured part is scaled down until its partitions fit under its cap. So an arrangement that ran
can run again on as many nodes of the same size. For the same reason the measured part never exceeds what one
node of the topology has under the cap: a hot partition is not lost for ever, it gets a node for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor

from reprise.scheduler.view import View


def normal_costs(view: View) -> dict[str, int]:
    """Milli-CPU of each partition in normal running: by the assignment and the statistics of the snapshot."""
    desired = view.snapshot.desired
    assignment = desired.assignment if desired else {}
    declared = {p.id: max(1, p.cpu_milli) for p in view.snapshot.topology.partitions}
    most = view.policy.cap_of(view.policy.node_cpu_milli)
    measured = {p: max(c, min(most, _measured(view, p))) for p, c in declared.items()}
    costs: dict[str, int] = {}
    for node_id, members in _by_node(declared, assignment).items():
        for group in [members] if node_id else [[p] for p in members]:
            costs |= _under(_cap(view, node_id), group, declared, measured)
    return {p: costs[p] for p in declared}


def free_capacity(view: View, costs: Mapping[str, int], held: Mapping[str, str]) -> dict[str, int]:
    """Milli-CPU left under the cap of each usable node when it runs what `held` gives it; not below 0."""
    used = dict.fromkeys((node.id for node in view.usable), 0)
    for partition, node in held.items():
        if node in used:
            used[node] += costs.get(partition, 1)
    return {node.id: max(0, view.policy.cap_of(node.cpu_milli) - used[node.id]) for node in view.usable}


def _measured(view: View, partition: str) -> int:
    stats = view.snapshot.stats.get(partition)
    return floor(stats.cpu_milli) if stats else 0


def _by_node(partitions: Iterable[str], assignment: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for partition in partitions:
        groups.setdefault(assignment.get(partition, ""), []).append(partition)
    return groups


def _cap(view: View, node_id: str) -> int:
    """Of a node that is gone, or of none: the size that nodes of this topology have."""
    node = view.alive.get(node_id)
    return view.policy.cap_of(node.cpu_milli if node else view.policy.node_cpu_milli)


def _under(
    cap: int, members: list[str], declared: Mapping[str, int], measured: Mapping[str, int]
) -> dict[str, int]:
    floor_sum = sum(declared[p] for p in members)
    excess = sum(measured[p] - declared[p] for p in members)
    room = max(0, cap - floor_sum)
    if excess <= room:
        return {p: measured[p] for p in members}
    return {p: declared[p] + (measured[p] - declared[p]) * room // excess for p in members}

"""What each partition takes of a node, as plans count it; status, page and metrics show what is computed here.

In normal running: the greater of what is declared and what is measured, at least 1 milli-CPU. Su and Zhou plan under the
assumption that the cluster was not overloaded before the failure (section 4.4); where measurement says that a
node was, the measured part is scaled down until its partitions fit under its cap. So an arrangement that ran
can run again on as many nodes of the same size. For the same reason the measured part never exceeds what one
node of the topology has under the cap: a hot partition is not lost for ever, it gets a node for itself.
What partitions took before a plan put them on a node above its cap counts as declared for as long as they are there.
During an incident: what was computed when it was opened, as a failure changes what is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import floor

from reprise.scheduler.incident import Incident
from reprise.scheduler.model import Desired, Node, PartitionStats, Policy
from reprise.scheduler.view import View


def partition_costs(
    declared: Mapping[str, int],
    policy: Policy,
    nodes: Mapping[str, Node],
    desired: Desired | None,
    stats: Mapping[str, PartitionStats],
    incident: Incident | None,
) -> dict[str, int]:
    """Milli-CPU of each partition of `declared`, now.  `nodes`: alive, by id."""
    if incident is not None:
        return frozen_costs(declared, incident)
    return _normal(declared, policy, nodes, desired, stats)


def frozen_costs(declared: Mapping[str, int], incident: Incident) -> dict[str, int]:
    """Costs as they were when the incident was opened; what is declared where it does not know a partition."""
    return {p: incident.costs.get(p, max(1, cost)) for p, cost in declared.items()}


def normal_costs(view: View) -> dict[str, int]:
    """Milli-CPU of each partition in normal running: by the assignment and the statistics of the snapshot."""
    snapshot = view.snapshot
    declared = {p.id: p.cpu_milli for p in snapshot.topology.partitions}
    return _normal(declared, view.policy, view.alive, snapshot.desired, snapshot.stats)


def free_capacity(view: View, costs: Mapping[str, int], held: Mapping[str, str]) -> dict[str, int]:
    """Milli-CPU left under the cap of each node that may be given more, when it runs what `held` gives it; not below 0."""
    return free_on(view.open_nodes, view.policy, costs, held)


def free_on(
    nodes: Iterable[Node], policy: Policy, costs: Mapping[str, int], held: Mapping[str, str]
) -> dict[str, int]:
    """Milli-CPU left under the cap of each of `nodes`, by id, when it runs what `held` gives it; not below 0.  A partition
    of unknown cost counts as 1."""
    room = {node.id: policy.cap_of(node.cpu_milli) for node in nodes}
    for partition, node in held.items():
        if node in room:
            room[node] -= costs.get(partition, 1)
    return {node: max(0, left) for node, left in room.items()}


def over_the_cap(view: View, costs: Mapping[str, int], assignment: Mapping[str, str]) -> Iterator[str]:
    """Usable nodes that `assignment` gives more than their cap, in words, of those to which it adds something."""
    load = {n: 0 for p, n in assignment.items() if view.survivors.get(p) != n and n in view.usable_ids}
    for partition, node in assignment.items():
        if node in load:
            load[node] += costs[partition]
    for node, used in sorted(load.items()):
        cap = view.policy.cap_of(view.alive[node].cpu_milli)
        if used > cap:
            yield f"{node} would run {used} milli-CPU under a cap of {cap}"


def _normal(
    declared: Mapping[str, int],
    policy: Policy,
    nodes: Mapping[str, Node],
    desired: Desired | None,
    stats: Mapping[str, PartitionStats],
) -> dict[str, int]:
    known = desired.demand if desired else {}
    least = {p: max(1, cost, known.get(p, 0)) for p, cost in declared.items()}
    usual = policy.cap_of(policy.node_cpu_milli)
    measured = {
        p: max(c, min(usual, floor(stats[p].cpu_milli) if p in stats else 0)) for p, c in least.items()
    }
    costs: dict[str, int] = {}
    for node_id, members in _by_node(least, desired.assignment if desired else {}).items():
        node = nodes.get(node_id)
        cap = usual if node is None else policy.cap_of(node.cpu_milli)  # of one that is gone: the usual size
        for group in [members] if node_id else [[p] for p in members]:
            costs |= _under(cap, group, least, measured)
    return {p: costs[p] for p in least}


def _by_node(partitions: Iterable[str], assignment: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for partition in partitions:
        groups.setdefault(assignment.get(partition, ""), []).append(partition)
    return groups


def _under(
    cap: int, members: list[str], declared: Mapping[str, int], measured: Mapping[str, int]
) -> dict[str, int]:
    floor_sum = sum(declared[p] for p in members)
    excess = sum(measured[p] - declared[p] for p in members)
    room = max(0, cap - floor_sum)
    if excess <= room:
        return {p: measured[p] for p in members}
    return {p: declared[p] + (measured[p] - declared[p]) * room // excess for p in members}

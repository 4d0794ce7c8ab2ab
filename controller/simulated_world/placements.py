"""What must hold of where standbys are placed, looked at without the code that places them.

A standby in the failure domain of its partition is lost with it.  So none is placed there as long as a node of another
domain has room for it.  Room is what the cap of a node leaves beside what it has after the decision.
"""

from __future__ import annotations

from collections.abc import Iterator

from reprise.scheduler.costs import normal_costs
from reprise.scheduler.model import Desired, Policy, Snapshot
from reprise.scheduler.standby_placement import standby_costs
from reprise.scheduler.steps import Decision, RuleName
from reprise.scheduler.view import View, look


def near_although_there_is_room(snapshot: Snapshot, policy: Policy, decision: Decision) -> Iterator[str]:
    """Standbys that a decision leaves in the failure domain of their partitions, in words, with the node of another one that
    has room; none where the decision is not about standbys."""
    if decision.desired is not None and decision.rule is RuleName.STANDBYS_PLACED:
        yield from near_with_room_elsewhere(look(snapshot, policy), decision.desired)


def near_with_room_elsewhere(view: View, after: Desired) -> Iterator[str]:
    """The same of a desired state."""
    costs, labels = normal_costs(view), view.snapshot.topology.domains
    domains = {name: {n.id: n.labels.get(name) for n in view.alive.values()} for name in set(labels.values())}
    taken = standby_costs(view, costs)
    left = {node.id: view.policy.cap_of(node.cpu_milli) for node in view.open_nodes}
    for load, where in ((costs, after.assignment), (taken, after.standbys)):
        for partition, node in where.items():
            if node in left:
                left[node] -= load[partition]
    for partition, node in after.standbys.items():
        label, own = labels.get(partition), after.assignment.get(partition)
        if label is None or own is None or partition in view.poison:
            continue
        domain = domains[label]
        if domain.get(own) is None or domain.get(own) != domain.get(node):
            continue
        for other, room in left.items():
            if domain[other] not in (None, domain[own]) and room >= costs[partition]:
                yield f"{partition} and its standby are both in {label}={domain[own]}, and {other} has room for {room}"

"""On which nodes standbys are: apart from their partitions, in another failure domain where one is named, and spread.

A failure domain (a zone, a rack, a pool) is what may be lost at once: nodes with the same value of a label.  A partition
whose standby is in its own domain, or nowhere, is lost with that domain, and its queries wait for a plan.  So the worth of
such partitions is to be least, the priority of the most valuable query that needs each.  That is an assignment of standbys
to the room on nodes.  One after the other, the most valuable first, each is given a node of another domain; where there is
no room, others make some by going elsewhere (augmenting paths: Kuhn, "The Hungarian method for the assignment problem").  Of
standbys that all cost the same this leaves the least worth that there can be; else it is a heuristic.

Another domain is preferred and not required: a standby in its partition's domain still helps when one node is lost.
Standbys that are where they should be stay, as one that moves begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import ceil

from reprise.scheduler.costs import free_on, normal_costs
from reprise.scheduler.model import Desired, Node, of_standby
from reprise.scheduler.view import View


def placement(view: View, desired: Desired) -> dict[str, str]:
    """Partition -> node of its standby, of those for which there is room."""
    topology, at = view.snapshot.topology, desired.assignment
    wanted = [p for p in by_worth(view) if p in topology.standbys and p in at]
    stays = {p: n for p, n in desired.standbys.items() if p in wanted and n in view.open_ids and n != at[p]}
    places = _places(view, at)
    for partition, node in stays.items():
        places.put(partition, node)
    apart = [p for p in wanted if p in topology.domains and p not in view.poison]
    for partition in apart:
        if not places.is_apart(partition, places.found.get(partition)):
            places.seek(partition, set(), fixed=stays.keys())
    for partition in wanted:
        if partition not in places.found and partition not in view.poison:
            places.take(partition, places.with_room(partition, places.room))
    return places.found


def is_apart(view: View, partition: str, node: str | None, other: str | None) -> bool | None:
    """Whether two nodes are in different domains, of the label that counts for a partition; None: nobody can say."""
    label, alive = view.snapshot.topology.domains.get(partition), view.alive
    if label is None or node is None or other is None:
        return None
    return differ(label, alive.get(node), alive.get(other))


def differ(label: str, node: Node | None, other: Node | None) -> bool | None:
    """Whether two nodes have different values of a label; None: one is gone, or not known to have it."""
    mine = node.labels.get(label) if node else None
    theirs = other.labels.get(label) if other else None
    return None if mine is None or theirs is None else mine != theirs


@dataclass(slots=True)
class _Places:
    """Standbys on nodes while they are placed."""

    view: View
    at: Mapping[str, str]
    """Partition -> its own node."""
    needs: Mapping[str, int]
    """Milli-CPU that must be free where a standby goes."""
    takes: Mapping[str, int]
    """Milli-CPU that it takes there."""
    room: dict[str, int]
    """Milli-CPU left on each open node."""
    found: dict[str, str] = field(default_factory=dict)

    def put(self, partition: str, node: str) -> None:
        """A standby is there."""
        if (before := self.found.pop(partition, None)) is not None:
            self.room[before] += self.takes[partition]
        self.found[partition] = node
        self.room[node] -= self.takes[partition]

    def is_apart(self, partition: str, node: str | None) -> bool:
        return is_apart(self.view, partition, self.at[partition], node) is True

    def with_room(self, partition: str, nodes: Iterable[str]) -> list[str]:
        """Nodes other than the partition's own with room for its standby."""
        return [n for n in nodes if n != self.at[partition] and self.room[n] >= self.needs[partition]]

    def take(self, partition: str, nodes: list[str]) -> None:
        """Put a standby where fewest others of its queries are, and then most is free; the first by name of equal ones."""
        if nodes:
            self.put(partition, min(nodes, key=lambda n: self._rank(partition, n)))

    def seek(self, partition: str, seen: set[str], fixed: Set[str]) -> bool:
        """Put a standby in another domain, if need be by putting others elsewhere, but not those that are `fixed`.  `seen`:
        nodes that were tried."""
        nodes = [n for n in self.room if n not in seen and self.is_apart(partition, n)]
        if free := self.with_room(partition, nodes):
            self.take(partition, free)
            return True
        for node in sorted(nodes, key=lambda n: self._rank(partition, n)):
            seen.add(node)
            for other in [p for p, n in self.found.items() if n == node and p not in fixed]:
                left = self.room[node] + self.takes[other]
                if left >= self.needs[partition] and self.seek(other, seen, fixed):
                    self.put(partition, node)
                    return True
        return False

    def _rank(self, partition: str, node: str) -> tuple[int, int]:
        shared = sum(n == node and self._together(p, partition) for p, n in self.found.items())
        passive = self.view.snapshot.topology.passive
        # as if all passive standbys there were promoted
        booked = sum(self.needs[p] for p, n in self.found.items() if n == node and p in passive)
        return shared, booked - self.room[node]

    def _together(self, one: str, other: str) -> bool:
        return any(one in q.partitions and other in q.partitions for q in self.view.snapshot.topology.queries)


def _places(view: View, at: Mapping[str, str]) -> _Places:
    costs = normal_costs(view)
    room = free_on(view.open_nodes, view.policy, costs, at)
    return _Places(view, at, costs, standby_costs(view, costs), room)


def standby_costs(view: View, costs: Mapping[str, int]) -> dict[str, int]:
    """Milli-CPU of the standby of each partition, from those of the partitions: of a passive one what was measured, where
    that is less."""
    passive, stats = view.snapshot.topology.passive, view.snapshot.stats
    measured = {p: stats[of_standby(p)].cpu_milli for p in passive if of_standby(p) in stats}
    return {p: min(cost, max(1, ceil(measured.get(p, cost)))) for p, cost in costs.items()}


def by_worth(view: View) -> list[str]:
    """Partitions, those first that queries of the greatest priority need; the others in topological order."""
    topology = view.snapshot.topology
    worth = dict.fromkeys((p.id for p in topology.partitions), 0)
    for query in topology.queries:
        for partition in query.partitions:
            worth[partition] = max(worth[partition], query.priority)
    return sorted(worth, key=lambda p: -worth[p])

"""Room for standbys in other failure domains, while they are placed one after the other.

Where there is none for one, others make some by going elsewhere (augmenting paths: Kuhn, "The Hungarian method for the
assignment problem").  Of standbys that all cost the same those find room then for which there can be any beside those that
are there; else it is a heuristic.

Invariant: nobody that is in another domain than its partition leaves it for one that is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from reprise.scheduler.model import Node, TopologyView
from reprise.scheduler.view import View

LOOKS = 1_000_000
"""Nodes that are looked at while one placement is made: about a fifth of a second.  Then nobody makes room for others."""


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


def with_standbys_apart(
    label: str, at: Mapping[str, str], standbys: Mapping[str, str], nodes: Mapping[str, Node]
) -> frozenset[str]:
    """Partitions whose standbys are known to be in another domain than they are themselves, by where each is `at`."""
    return frozenset(p for p, n in standbys.items() if differ(label, nodes.get(at.get(p, "")), nodes.get(n)))


def queries_of(topology: TopologyView) -> dict[str, int]:
    """The queries that need each partition that is to have a standby, as bits."""
    found = dict.fromkeys(topology.standbys, 0)
    for number, query in enumerate(topology.queries):
        for partition in topology.standbys & query.partitions:
            found[partition] |= 1 << number
    return found


@dataclass(slots=True)
class Places:
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
    fixed: Set[str]
    """Partitions whose standbys make no room for others."""
    queries: Mapping[str, int]
    """The queries that need each partition that is to have a standby, as bits."""
    looks: list[int] = field(default_factory=lambda: [LOOKS])
    """How many nodes may be looked at; one number for all copies."""
    nodes_apart: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Label and value -> open nodes with another value; one mapping for all copies."""
    found: dict[str, str] = field(default_factory=dict)
    _on: dict[str, dict[str, None]] = field(default_factory=dict)
    """Node -> the partitions whose standbys are there."""
    _any: dict[str, int] = field(default_factory=dict)
    """Node -> the queries that need any of these, as bits."""
    _full: dict[str, int] = field(default_factory=dict)
    """Node -> milli-CPU that a standby needs of which it is known that nobody there makes room for it."""

    def copy(self) -> Places:
        """The same places, in which others may be put elsewhere."""
        on = {n: dict(there) for n, there in self._on.items()}
        room, found = dict(self.room), dict(self.found)
        return replace(self, room=room, found=found, _on=on, _any=dict(self._any), _full=dict(self._full))

    def put(self, partition: str, node: str) -> None:
        """A standby is there."""
        if (before := self.found.pop(partition, None)) is not None:
            self.room[before] += self.takes[partition]
            del self._on[before][partition]
            self._any[before] = reduce(or_, (self.queries[p] for p in self._on[before]), 0)
            self._full.clear()
        self.found[partition] = node
        self.room[node] -= self.takes[partition]
        self._on.setdefault(node, {})[partition] = None
        self._any[node] = self._any.get(node, 0) | self.queries[partition]

    def is_apart(self, partition: str) -> bool:
        """Whether its standby is known to be in another domain."""
        return self._is_apart(partition, self.found.get(partition))

    def _is_apart(self, partition: str, node: str | None) -> bool:
        return is_apart(self.view, partition, self.at[partition], node) is True

    def with_room(self, partition: str, nodes: Iterable[str]) -> list[str]:
        """Nodes other than the partition's own with room for its standby."""
        return [n for n in nodes if n != self.at[partition] and self.room[n] >= self.needs[partition]]

    def take(self, partition: str, nodes: list[str]) -> None:
        """Put a standby where fewest others of its queries are, and then most is free; the first by name of equal ones."""
        if nodes:
            self.put(partition, min(nodes, key=lambda n: self._rank(partition, n)))

    def could_hold(self, partitions: Iterable[str]) -> bool:
        """Whether there may be room for these standbys: not where all that is free is less than they take."""
        least = min(self.needs[p] for p in partitions)
        left = sum(room for room in self.room.values() if room >= least)
        return left >= sum(self.takes[p] for p in partitions if p not in self.found)

    def seek(self, partition: str) -> bool:
        """Put a standby in another domain, if need be by putting others elsewhere."""
        need = self.needs[partition]
        seen = {node: least for node, least in self._full.items() if least <= need}
        if self._seek(partition, seen):
            return True
        self._full |= seen
        return False

    def _seek(self, partition: str, seen: dict[str, int]) -> bool:
        """`seen`: nodes that were tried, with what was needed there."""
        elsewhere = self._elsewhere(partition)
        self.looks[0] -= len(elsewhere)
        nodes = [n for n in elsewhere if n not in seen]
        if free := self.with_room(partition, nodes):
            self.take(partition, free)
            return True
        need = self.needs[partition]
        for node in sorted(nodes, key=lambda n: self._rank(partition, n)):
            seen[node] = need
            for other in [p for p in self._on.get(node, ()) if p not in self.fixed]:
                if self.looks[0] < 0:
                    return False
                left = self.room[node] + self.takes[other]
                if left >= need and self._seek(other, seen):
                    self.put(partition, node)
                    return True
        return False

    def _elsewhere(self, partition: str) -> list[str]:
        """Nodes that are known to be in another domain than a partition's own node."""
        label, own = self.view.snapshot.topology.domains[partition], self.view.alive.get(self.at[partition])
        value = own.labels.get(label) if own else None
        if value is None:
            return []
        if (label, value) not in self.nodes_apart:
            apart = [n for n in self.room if self._is_apart(partition, n)]
            self.nodes_apart[label, value] = apart
        return self.nodes_apart[label, value]

    def _rank(self, partition: str, node: str) -> tuple[int, int]:
        there, mine = self._on.get(node, {}), self.queries[partition]
        passive = self.view.snapshot.topology.passive
        shared = sum(bool(self.queries[p] & mine) for p in there) if self._any.get(node, 0) & mine else 0
        # as if all passive standbys there were promoted
        booked = sum(self.needs[p] for p in there if p in passive) if passive else 0
        return shared, booked - self.room[node]

"""In which order the partitions of a node move: those that keep up first, and those that catch up share what is left.

A partition catches up where its next batch has been due for `LATE_S`, as after a restoration.  Its weight is the priority of
the most valuable query that needs it.  The partition of the greatest weight moves first, so that one query after the other
is back; in one of `FAIR` turns the partition moves first that has had the least time for its weight, so that no partition
waits for ever.  One that keeps up waits for `SHARE_S` and one batch at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from reprise.spark_jobs.topology import Topology

LATE_S = 1.0
SHARE_S = 0.005
"""For those that catch up, until those that keep up are looked at again."""
FAIR = 4
"""One in so many turns goes by the time that each has had."""


def weights_of(topology: Topology) -> dict[str, int]:
    """Partition -> the greatest priority of the queries that need it."""
    found = dict.fromkeys(topology.order, 1)
    shared: dict[int, tuple[frozenset[str], int]] = {}
    for query in topology.queries.values():
        common = query.partitions.shared
        shared[id(common)] = common, max(query.priority, shared.get(id(common), (common, 1))[1])
        for partition in query.partitions.own:
            found[partition] = max(found[partition], query.priority)
    for common, priority in shared.values():
        for partition in common:
            found[partition] = max(found[partition], priority)
    return found


@dataclass(slots=True)
class Lanes:
    """Those of one node."""

    weights: Mapping[str, int] = field(default_factory=dict)
    _spent: dict[str, float] = field(default_factory=dict)
    """Partitions that catch up -> seconds that each has had by now for its weight; one that joins begins as the one that
    has had least."""
    _idle: set[str] = field(default_factory=set)
    """Of these, those that could not move since another one did."""
    _turn: int = 0

    def divide(self, partitions: Iterable[str], late: Callable[[str], bool]) -> list[str]:
        """Returns those of `partitions` that keep up, in their order; the rest is in `catching_up` from now on."""
        prompt, behind = list[str](), list[str]()
        for partition in partitions:
            (behind if late(partition) else prompt).append(partition)
        least = min((self._spent[p] for p in behind if p in self._spent), default=0.0)
        self._spent = {p: self._spent.get(p, least) for p in behind}
        self._idle &= self._spent.keys()
        return prompt

    def catching_up(self) -> Iterator[str]:
        """Those that catch up, in the order in which they move."""
        self._turn = (self._turn + 1) % FAIR
        fair = sorted(self._spent, key=lambda p: (p in self._idle, self._spent[p]))
        if self._turn:
            fair.sort(key=lambda p: (p in self._idle, -self.weights.get(p, 1)))
        return iter(fair)

    def took(self, partition: str, seconds: float, moved: bool) -> None:
        """It has had its turn."""
        self._spent[partition] += seconds / self.weights.get(partition, 1)
        if moved:
            self._idle.clear()
        else:
            self._idle.add(partition)

    def more(self) -> bool:
        """Whether some have not had their turn since one moved; after a no all have theirs again."""
        if len(self._idle) < len(self._spent):
            return True
        self._idle.clear()
        return False

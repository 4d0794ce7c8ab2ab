"""In which order the partitions of a node move: those that keep up first, and those that catch up share what is left.

A partition catches up where its next batch has been due for `LATE_S`, as after a restoration.  Its weight is the priority of
the most valuable query that needs it.  The partition of the greatest weight moves first, so that one query after the other
is back.  One in `FAIR` parts of the time goes to the partition that has had the least for its weight, so that no partition
waits for ever.  A partition that keeps up waits for `SHARE_S` and one batch at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from reprise.spark_jobs.topology import Topology

LATE_S = 1.0
SHARE_S = 0.005
"""For those that catch up, until those that keep up are looked at again."""
FAIR = 4
"""One in so many seconds goes by the time that each has had."""


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
    _fair: bool = False
    """How the turn that runs was given."""
    _first_s: float = 0.0
    _fair_s: float = 0.0
    """Time of all turns by weight, and of all others."""

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
        self._fair = self._fair_s * (FAIR - 1) < self._first_s
        found = sorted(self._spent, key=lambda p: (p in self._idle, self._spent[p]))
        if not self._fair:
            found.sort(key=lambda p: (p in self._idle, -self.weights.get(p, 1)))
        return iter(found)

    def took(self, partition: str, seconds: float, moved: bool) -> None:
        """It has had its turn."""
        self._spent[partition] += seconds / self.weights.get(partition, 1)
        self._fair_s += seconds * self._fair
        self._first_s += seconds * (not self._fair)
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

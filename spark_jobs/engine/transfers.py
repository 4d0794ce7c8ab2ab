"""Who may fetch a stored state now, and whether snapshots wait for that: one order for all nodes of a topology.

Problem: each node fetches its own states by their value, and knows nothing of the others.  With a store that all share, the
most valuable query waits for states of little value that other nodes fetch, and for snapshots that are stored meanwhile.
The driver knows all of it.  So it says with each command which states are not to be fetched yet, and that snapshots wait.

What is small, what snapshots wait for, and how long a state may take follows from what the last transfers have measured
(`reprise.spark_jobs.engine.capacity`).

The order is that of `reprise.algorithms.restore_order`: queries by value for the bytes that they lack.  The first states of
it are granted, as many as a store serves at once without giving each less (Kwon, Balazinska and Greenberg, "Fault-tolerant
Stream Processing using a Distributed, Replicated File System", Table 8), and as many more as are small.

A node may read what it was granted one after the other, as its memory allows.  So whether a state hangs follows from all
that the node has to read, counted from when it had its last state: one that waits there for its turn does not hang.

Invariants: what is said is the whole truth each time, so a host that has missed a command has missed nothing; nobody waits
for a state of a node that had none for as long as all of its states may take (`Capacity.patience`), nor snapshots for any,
nor anybody for one that was granted `MOST_PATIENCE_S` ago; and what a driver has said ends with it: hosts forget it after
`reprise.spark_jobs.node.command.GRANT_S`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprise.spark_jobs.engine.capacity import MOST_PATIENCE_S, Capacity
from reprise.spark_jobs.node.command import Install, size_of

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine

AT_ONCE = 16
"""States that a store serves at the same time."""
OF_A_NODE = 4
"""Of those, for one node."""
SMALL = 64 << 20
"""Bytes of states for which there is no room, and that are fetched all the same, as they are there before the next command:
until it is measured how many those are."""
SMALL_S = 0.5
"""Seconds of the store for them, from then on."""
HOLD = 8 << 20
"""Bytes that have to be fetched for snapshots to wait, as less takes no longer than a snapshot: until it is measured."""
HOLD_S = 1 / 16
"""Seconds of the store for them, from then on."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition whose state is to be fetched: how many bytes, what it is worth (the greater, the earlier), where to."""

    node: str
    size: int
    value: float


@dataclass(frozen=True, slots=True)
class Granted:
    """What hosts are told."""

    waits: frozenset[str] = frozenset()
    """Partitions whose states are not fetched yet."""
    hold: bool = False
    """Snapshots are stored later."""


@dataclass(slots=True)
class _Grant:
    """A state that may be fetched: where to, and since when."""

    node: str
    since: float
    hangs: bool = False
    """It takes nobody's turn until it is there."""


@dataclass(slots=True)
class Transfers:
    """What one driver has granted."""

    _granted: dict[tuple[str, str], _Grant] = field(default_factory=dict)
    """By partition and installation."""
    _had: dict[str, float] = field(default_factory=dict)
    """Node -> when it had a state last, of those that have others to read."""
    capacity: Capacity = field(default_factory=Capacity)

    def look(self, engine: Engine) -> None:
        """See which of those that were granted are there, and how long they took."""
        now = engine.clock()
        for partition, installation in self._granted:
            is_there = (
                partition not in engine.installing and engine.installation.get(partition) == installation
            )
            if is_there and (done := engine.usage.get(partition)) is not None:
                self.capacity.measured(done.load_bytes, done.load_s, now)
                self.came((partition, installation), now)

    def came(self, granted: tuple[str, str], now: float) -> None:
        """A state is there: its node goes on with the next one."""
        self._had[self._granted[granted].node] = now

    def decide(self, wanted: Mapping[tuple[str, str], Wanted], now: float) -> Granted:
        """What hosts are told, where this is `wanted` now, by partition and installation; `now`: monotonic seconds."""
        self._forget(wanted)
        under_way = Counter[str]()
        for key, given in self._granted.items():
            if not given.hangs:
                under_way[given.node] += wanted[key].size
        small, hold = self.capacity.bytes_in(SMALL_S, SMALL), self.capacity.bytes_in(HOLD_S, HOLD)
        count, size, beside, of_node = 0, 0, 0, Counter[str]()
        waits = set[str]()
        for key, one in sorted(wanted.items(), key=lambda item: (-item[1].value, item[0])):
            grant = self._granted.get(key)
            if grant is not None and self._hangs(grant, now, under_way[one.node]):
                grant.hangs = True
                continue
            room = count < AT_ONCE and of_node[one.node] < OF_A_NODE
            size += one.size
            if grant is None and not room:
                if beside + one.size > small:
                    waits.add(key[0])
                    continue
                beside += one.size  # what is small goes along
            self._granted.setdefault(key, _Grant(one.node, now))
            count += 1
            of_node[one.node] += 1
        return Granted(frozenset(waits), size >= hold)

    def _forget(self, wanted: Mapping[tuple[str, str], Wanted]) -> None:
        """What is there, or not to be fetched any more."""
        self._granted = {key: grant for key, grant in self._granted.items() if key in wanted}
        for key, grant in self._granted.items():
            grant.node = wanted[key].node
        nodes = {grant.node for grant in self._granted.values()}
        self._had = {node: at for node, at in self._had.items() if node in nodes}

    def _hangs(self, grant: _Grant, now: float, size: int) -> bool:
        """Whether one that was granted does, where its node has to read so many bytes together."""
        last = max(grant.since, self._had.get(grant.node, grant.since))
        too_long = now - grant.since > MOST_PATIENCE_S or now - last > self.capacity.patience(size)
        return grant.hangs or too_long


def wanted_of(
    installing: Collection[str],
    installs: Mapping[str, Install],
    installation: Mapping[str, str],
    node_of: Mapping[str, str],
) -> dict[tuple[str, str], Wanted]:
    """Partitions that are being installed and read a state."""
    return {
        (p, installation[p]): Wanted(node_of[p], size_of(installs[p].file), installs[p].value)
        for p in installing
        if p in installs and installs[p].file is not None and p in installation and p in node_of
    }

"""When each partition stores itself, where partitions do so by their own clocks (CheckMate, section III-B).

The time between two snapshots of one partition is its interval, more or less by a share of it that follows from its name and
how often it was asked: two drivers would ask at the same times, and not all partitions store at once.  One snapshot of
a partition is under way at a time; a request stands until it is known to be stored, so no job that fails loses one.

Some partitions share a clock, and store themselves after the same batch, which nobody has been released to yet: those
between which no line could lie else.  Without stored channels that is a cycle, as each of its partitions has to be no
further than the one that it sends to; and with code that may answer differently when it is asked again, everything that
reads such a partition, or stands in a cycle with it.  With communication-induced checkpoints no clock is shared: what
partitions send each other makes them store themselves where that is needed, and says nothing of when they do besides.

Source: G. Siachamis et al., "CheckMate: Evaluating Checkpointing Protocols for Streaming Dataflows", section III-B; clocks
that are shared are not in it.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from reprise.spark_jobs.topology import StreamTopology, Topology


@dataclass(slots=True)
class Clocks:
    """The clocks of one driver's life.  `changing`: operators of which a replay may differ."""

    resource: StreamTopology
    topology: Topology
    changing: frozenset[str] = frozenset()
    requests: dict[str, int] = field(default_factory=dict)
    """Partition -> it stores itself after the first batch that it applies from this one on."""
    asked: int = 0
    """How many snapshots were ever asked for."""
    _groups: list[tuple[str, ...]] = field(init=False)
    _intervals_s: list[float | None] = field(init=False)
    """Of each clock; None: the topology counts batches."""
    _numbers: dict[int, int] = field(default_factory=dict)
    """Clock -> how often it has asked."""
    _due_s: dict[int, float] = field(default_factory=dict)
    _due_at: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        induced = self.resource.checkpoint.induced  # what is sent keeps lines together there
        shared = {} if induced else shared_clocks(self.resource, self.changing)
        by_clock: dict[str, list[str]] = {}
        for partition in self.topology.order:
            operator = self.topology.partitions[partition].place.operator
            by_clock.setdefault(shared.get(operator, partition), []).append(partition)
        self._groups = [tuple(members) for members in by_clock.values()]
        self.follow(self.resource)

    def follow(self, resource: StreamTopology) -> None:
        """The intervals are those of `resource` from now on; each partition's next one begins now."""
        self.resource = resource
        own = {o.name: o.checkpoint_interval_s for o in resource.operators}
        self._intervals_s = [self._interval_s(members, own) for members in self._groups]
        self._due_s.clear()
        self._due_at.clear()

    def ask(self, positions: Mapping[str, int], horizon: int, now: float) -> None:
        """Ask those whose time has come.  `positions`: of partitions at work; `now`: monotonic seconds."""
        for clock, members in enumerate(self._groups):
            if any(p in self.requests or p not in positions for p in members):
                continue
            least = min(positions[p] for p in members)
            # of several, none may have passed it
            following = horizon + 1 if len(members) > 1 else least + 1
            interval_s = self._intervals_s[clock]
            if interval_s is None:
                every = self.resource.checkpoint.every_batches or 1
                if clock not in self._due_at:
                    self._due_at[clock] = least + max(1, round(every * self._share(members, 0, first=True)))
                following = max(following, self._due_at[clock])
                self._due_at[clock] = following + max(1, round(every * self._share(members, clock)))
            else:
                if clock not in self._due_s:
                    self._due_s[clock] = now + interval_s * self._share(members, 0, first=True)
                if now < self._due_s[clock]:
                    continue
                self._due_s[clock] = now + interval_s * self._share(members, clock)
            self._numbers[clock] = self._numbers.get(clock, 0) + 1
            self.asked += len(members)
            self.requests.update(dict.fromkeys(members, following))

    def stored(self, partition: str, position: int) -> None:
        """A snapshot at `position` is stored."""
        if self.requests.get(partition, position + 1) <= position:
            del self.requests[partition]

    def installed(self, partition: str, position: int) -> None:
        """It begins anew at `position`: what it was asked for up to there it does not come to any more."""
        self.stored(partition, position)

    def forget(self) -> None:
        """Nobody is asked for anything: the stream goes back."""
        self.requests.clear()
        self._due_at.clear()

    def _interval_s(self, members: Collection[str], own: Mapping[str, float | None]) -> float | None:
        """The least interval of the operators that share a clock; `own`: of each operator, None where it has none."""
        operators = {self.topology.partitions[p].place.operator for p in members}
        found = [interval for o in operators if (interval := own.get(o)) is not None]
        return min(found, default=self.resource.checkpoint.interval_s)

    def _share(self, members: tuple[str, ...], clock: int, first: bool = False) -> float:
        """What the next interval is, as a share of the one that is set; the first one is anything up to it."""
        drawn = zlib.crc32(f"{members[0]} {self._numbers.get(clock, 0)} {first}".encode()) / 2**32
        return drawn if first else 1 + self.resource.checkpoint.jitter * (2 * drawn - 1)


def shared_clocks(resource: StreamTopology, changing: frozenset[str]) -> dict[str, str]:
    """Operator -> name of the clock that all partitions of it share with those of others; who is not named shares none."""
    read = {o.name: [i.source for i in o.inputs] for o in resource.operators}
    clock: dict[str, str] = {}

    def together(one: str, other: str) -> None:
        mine, theirs = clock.setdefault(one, one), clock.setdefault(other, other)
        for name in [name for name, known in clock.items() if known == theirs]:
            clock[name] = mine

    above = {name: _above(read, name) for name in read}
    memory = resource.checkpoint.log == "memory"
    for name, inputs in read.items():
        for source in inputs:
            cycle = source in above and name in above[source]
            if (cycle and (memory or source in changing)) or (memory and source in changing):
                together(name, source)
    return clock


def _above(read: Mapping[str, list[str]], name: str) -> frozenset[str]:
    """Everything that an operator reads, directly or not, also over feedback edges."""
    found: set[str] = set()
    waiting = list(read[name])
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += read.get(one, [])
    return frozenset(found)

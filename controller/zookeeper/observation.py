"""One look at a running topology, as a value: what the records in ZooKeeper said at one moment.

`observer` makes it for people, and the coordinator for its decisions, which rest on `snapshot_of` it; where one process does
both, a look reads each record once.

Invariant: pure.  It never mixes "nothing there" with "not known": while ZooKeeper is away `connected` is False and the last
known records stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reprise.controller.utc import utc
from reprise.controller.zookeeper.records import CheckpointRecord
from reprise.controller.zookeeper.savepoint_records import SavepointsRecord
from reprise.scheduler.incident import Incident, PlanRecord
from reprise.scheduler.model import (
    Desired,
    Node,
    PartitionStats,
    Poison,
    Progress,
    SkipWish,
    Snapshot,
    TopologyView,
)


@dataclass(frozen=True, slots=True)
class Observation:
    """One look."""

    time: float
    connected: bool = False
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """Alive by their heartbeat, by `node#incarnation`."""
    progress: Progress | None = None
    report: int = 0
    """Number of the transaction that wrote `progress`: it grows with each report, whatever clocks say."""
    problems: tuple[str, ...] = ()
    waits: str = ""
    """What a driver waits for that has not begun; then nothing runs, whatever the one before has reported last."""
    desired: Desired | None = None
    incident: Incident | None = None
    """The open one."""
    closed: Mapping[str, Incident] = field(default_factory=dict)
    plans: Mapping[str, PlanRecord] = field(default_factory=dict)
    stats: Mapping[str, PartitionStats] = field(default_factory=dict)
    """The newest measured load of each partition."""
    checkpoints: frozenset[int] = frozenset()
    """Complete global checkpoints on record."""
    poison: Poison | None = None
    paused: bool | None = None
    """What `commands/paused` asks for; None where nobody has asked."""
    checkpoint: CheckpointRecord | None = None
    """The newest complete one."""
    wishes: Mapping[str, SkipWish] = field(default_factory=dict)
    """What people want to skip, by where the wish stands (`Snapshot.wishes`), whether it was taken or not."""
    savepoints: SavepointsRecord | None = None
    """Which there are, and what came of wishes; None: the driver has not said."""
    led: bool = False
    """Whether a coordinator holds the lead."""
    undecided: str = ""
    """Why it cannot decide, or cannot write down what it has decided; empty when it can."""
    settle_s: float | None = None
    """How long the coordinator that leads waits for the rest of a burst; None: nobody says."""
    driver_grace_s: float | None = None
    """How long it waits for the nodes of a new driver; None: nobody says."""
    unreadable: tuple[str, ...] = ()
    """Records that could not be parsed, with the reason."""
    still: Mapping[str, float] = field(default_factory=dict)
    """Partitions with a released batch before them, and since when they were seen not to move."""
    silent_since: float | None = None
    """When the newest report came, where the driver has sent no other for longer than it may."""
    watched_since: float | None = None
    """Since when somebody looks again and again; None: this is a look alone, which cannot say what moves."""

    @property
    def silence(self) -> str:
        """That the driver does not report, in words; empty where it does or ZooKeeper does not answer."""
        if self.silent_since is None or not self.connected:
            return ""
        return f"the driver has not reported since {utc(self.silent_since):%H:%M:%S} UTC"

    @property
    def newest_plan(self) -> PlanRecord | None:
        return max(self.plans.values(), key=lambda plan: plan.turn, default=None)

    def plans_of(self, incident: Incident) -> list[PlanRecord]:
        """The plans in the order in which they were made; those whose record is there."""
        return [self.plans[name] for name in incident.plans if name in self.plans]

    @property
    def incidents(self) -> list[Incident]:
        """All, oldest first.  The open one is the newest whatever its number: earlier versions began to count anew where
        records were lost."""
        opened = [self.incident] if self.incident else []
        closed = (one for one in self.closed.values() if all(one.id != other.id for other in opened))
        return [*sorted(closed, key=lambda incident: incident.turn), *opened]


def snapshot_of(topology: TopologyView, seen: Observation, paused: bool = False) -> Snapshot:
    """What the scheduler decides on.  `paused`: what holds where nobody asked for anything else.

    A driver whose code is about to be replaced drains while `topology` is that of its successor already: what it says of
    its replays counts.
    """
    if topology.deterministic and seen.progress is not None and not seen.progress.deterministic:
        topology = replace(topology, deterministic=False)
    return Snapshot(
        now=seen.time,
        topology=topology,
        session=seen.connected,
        nodes=tuple(sorted(seen.nodes.values(), key=lambda node: node.id)),
        progress=seen.progress,
        stats=seen.stats,
        checkpoints=seen.checkpoints,
        desired=seen.desired,
        incident=seen.incident,
        poison=seen.poison,
        wishes=seen.wishes,
        paused=paused if seen.paused is None else seen.paused,
    )

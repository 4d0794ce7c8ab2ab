"""What a snapshot means: which nodes can be used, what is failed, what is at work.

Every rule asks these questions, so they are answered once and in one way. The driver's report is believed
about what was desired when it was written (`acked`): a report that is older than the newest desired state may
speak of an assignment that is not wanted any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from reprise.algorithms.failure import Failure
from reprise.algorithms.positions import Positions
from reprise.scheduler.model import (
    Desired,
    Leaving,
    Node,
    Policy,
    Progress,
    QueryView,
    Snapshot,
)


@dataclass(frozen=True, slots=True)
class View:
    """Derived facts; mappings and tuples of partitions are in topological order."""

    snapshot: Snapshot
    policy: Policy
    alive: Mapping[str, Node]
    usable: tuple[Node, ...]
    """Alive, and known to the driver as able to take partitions; by name."""
    driver_changed: bool
    acked: bool
    """The driver has applied the newest desired state."""
    poison: Mapping[str, str]
    reported: Mapping[str, Failure]
    """Partitions that the driver reports as failed and has not let go of; without the poisoned."""
    failed: Mapping[str, str]
    """Partitions that are failed, with the reason; without the poisoned."""
    survivors: Mapping[str, str]
    """The part of the assignment that is neither failed nor poisoned."""
    at_work: frozenset[str]
    newest: Positions
    """Of the newest complete checkpoint that is not known to be damaged; if there is none, 0 where the stream can begin
    again, else the newest."""

    @property
    def newest_checkpoint(self) -> int:
        """The batch by which that checkpoint is found."""
        return self.newest.everybody

    @property
    def by_driver(self) -> bool:
        """Whether the driver finds from which snapshot each partition is restored, and says so when it has."""
        return self.policy.by_driver

    @property
    def output_waits(self) -> Set[str]:
        """Partitions whose output waits until their standbys have it: all of which a replay may differ, or none.  The driver
        says which, as it may run other code than the topology names, until it has drained."""
        progress = self.snapshot.progress
        return frozenset() if progress is None else progress.output_waits

    @property
    def goes_on_at_standbys(self) -> bool:
        """Whether what is lost may go on where its standby is: replays give the same, or output waits for the standbys."""
        return self.snapshot.topology.deterministic or bool(self.output_waits)

    def may_be_promoted(self, partition: str) -> bool:
        """Whether the standby of a partition may go on in its place.  Where a replay may differ only a passive one may:
        outputs wait for checkpoints then, and an active one drops what its partition has not shown yet."""
        topology = self.snapshot.topology
        # those whose output waits have passive ones, also where the topology asks for none any more
        return topology.deterministic or (
            bool(self.output_waits) and (partition in topology.passive or partition in self.output_waits)
        )

    @property
    def may_have_standbys(self) -> Set[str]:
        """Partitions of which a standby may be placed: where a replay may differ, passive ones alone (`may_be_promoted`)."""
        topology = self.snapshot.topology
        if not self.goes_on_at_standbys:
            return frozenset()
        return topology.standbys if topology.deterministic else topology.standbys & topology.passive

    @property
    def replays_alike(self) -> bool:
        """Whether what failed can come back alone, and what is made again is what was there: operators are deterministic, or
        the others, whose output waits for their standbys, have not failed."""
        if self.snapshot.topology.deterministic:
            return True
        waits = self.output_waits
        return bool(waits) and waits.isdisjoint(self.failed.keys() | self.poison.keys())

    @property
    def now(self) -> float:
        return self.snapshot.now

    @property
    def usable_ids(self) -> frozenset[str]:
        return frozenset(node.id for node in self.usable)

    @property
    def leaving(self) -> dict[str, Leaving]:
        """Living nodes that are to be emptied, by id."""
        return {node.id: node.leaving for node in self.alive.values() if node.leaving is not None}

    @property
    def open_nodes(self) -> tuple[Node, ...]:
        """Those that may be given partitions: usable, and not to be emptied."""
        return tuple(node for node in self.usable if node.leaving is None)

    @property
    def open_ids(self) -> frozenset[str]:
        return frozenset(node.id for node in self.open_nodes)

    @property
    def failed_queries(self) -> tuple[QueryView, ...]:
        """Queries that need a failed partition."""
        return tuple(q for q in self.snapshot.topology.queries if not q.partitions.isdisjoint(self.failed))

    @property
    def movable(self) -> tuple[str, ...]:
        """Failed partitions that a plan without rollback may place. A partition that failed on a usable node is
        first taken from it, and is free once the driver has seen that: only then can it tell a new try, perhaps
        on the same node, from the old."""
        assignment = self.snapshot.desired.assignment if self.snapshot.desired else {}
        usable = self.usable_ids
        return tuple(
            p
            for p in self.failed
            if (assignment[p] not in usable if p in assignment else self.acked or p not in self.reported)
        )

    def poisoned(self, query: QueryView) -> str | None:
        """Why a query cannot come back while this driver lives; None if it can."""
        for partition, reason in self.poison.items():
            if partition in query.partitions:
                return f"{reason} (partition {partition})"
        return None


def look(snapshot: Snapshot, policy: Policy) -> View:
    """The derived facts of a snapshot."""
    desired, progress = snapshot.desired, snapshot.progress
    alive = {node.id: node for node in snapshot.nodes}
    ready = progress.nodes if progress else frozenset()
    changed = desired is not None and progress is not None and desired.driver != progress.driver
    acked = taken_over(desired, progress)
    poison = _poison(snapshot, changed, acked)
    trusted = progress.failed if progress and not changed else {}
    reported = {p: failure for p, failure in trusted.items() if p not in poison}
    failed = _failed(snapshot, alive, poison, reported if acked else {}, changed)
    assignment = desired.assignment if desired else {}
    known = {p.id for p in snapshot.topology.partitions} - set(failed) - set(poison)
    survivors = {p: n for p, n in assignment.items() if p in known}
    positions = progress.positions if progress and acked else {}
    return View(
        snapshot=snapshot,
        policy=policy,
        alive=alive,
        usable=tuple(node for node in sorted(snapshot.nodes, key=_order) if node.id in ready),
        driver_changed=changed,
        acked=acked,
        poison=poison,
        reported=reported,
        failed=failed,
        survivors=survivors,
        at_work=frozenset(survivors.keys() & positions.keys()),
        newest=_newest(snapshot, policy),
    )


def taken_over(desired: Desired | None, progress: Progress | None) -> bool:
    """Whether the driver that the desired state was decided for has applied it."""
    return (
        desired is not None
        and progress is not None
        and desired.driver == progress.driver
        and progress.seq >= desired.seq
    )


def _poison(snapshot: Snapshot, changed: bool, acked: bool) -> dict[str, str]:
    """On record and newly reported. A new driver may run repaired code, so it starts without any.  What begins anew is tried
    again: the driver goes on to say why it was set aside until it has a place."""
    progress = snapshot.progress
    if progress is None or changed:
        return {}
    stored = snapshot.poison
    known = dict(stored.partitions) if stored and stored.driver == progress.driver else {}
    desired = snapshot.desired
    again = desired.anew.keys() - (desired.assignment.keys() if acked else ()) if desired else ()
    known |= {p: str(failure) for p, failure in progress.poisoned.items() if p not in again}
    return {p.id: known[p.id] for p in snapshot.topology.partitions if p.id in known}


def _failed(
    snapshot: Snapshot,
    alive: Mapping[str, Node],
    poison: Mapping[str, str],
    reported: Mapping[str, Failure],
    changed: bool,
) -> dict[str, str]:
    if snapshot.desired is None:
        return {}
    found: dict[str, str] = {}
    for partition in (p.id for p in snapshot.topology.partitions if p.id not in poison):
        node = snapshot.desired.assignment.get(partition)
        if changed and snapshot.progress is not None:
            if node is None or node not in alive or snapshot.progress.adopted.get(partition) != node:
                found[partition] = "the driver started anew"
        elif node is None:
            found[partition] = "not assigned"
        elif node not in alive:
            found[partition] = f"node {node} is gone"
        elif partition in reported:
            found[partition] = f"{reported[partition]} (on {node})"
    return found


def _newest(snapshot: Snapshot, policy: Policy) -> Positions:
    """Only the names are known here of checkpoints other than the driver's newest one: they count as rounds.  Where
    partitions store themselves by their own clocks the driver alone finds lines, so its report counts: by its name, the
    position of who is stored least far, as a record of all positions would tell the driver nothing."""
    if policy.by_driver and snapshot.progress is not None:
        return Positions(snapshot.progress.checkpoint)
    found, bad, trimmed = {k: Positions(k) for k in (0, *snapshot.checkpoints)}, set[int](), 0
    if snapshot.progress:
        found[snapshot.progress.checkpoint] = snapshot.progress.covers
        bad |= snapshot.progress.bad_checkpoints
        trimmed = snapshot.progress.trimmed
    if snapshot.incident:
        bad |= snapshot.incident.bad_checkpoints
    usable = [k for k, covers in found.items() if covers.oldest >= trimmed and k not in bad]
    return found[max(usable, default=max(found))]


def _order(node: Node) -> tuple[str, int, str, int]:
    """Sort n2 before n10: "the first nodes" is what people take it for."""
    stem = node.name.rstrip("0123456789")
    digits = node.name[len(stem) :]
    return (stem, int(digits or 0), digits, node.incarnation)

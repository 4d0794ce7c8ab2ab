"""Standbys as the driver sees them: which there are, what hosts are told of them, and how one is promoted.

The desired state says on which node each is to be (`reprise.scheduler.standbys` decides that).  A standby begins with the
newest checkpoint, as a restored partition does, and is sent what follows.  A passive one begins with nothing, and is sent by
its partition how that stands.  Where the desired state moves a partition to the node of its standby, the standby becomes the
partition, with the next job, and nothing is read from a store.

Invariants: a standby that could not be sent what it needs, or whose partition went back, is dropped and begun anew, so one
that is at work has always stepped the batches that its partition has; what upstreams keep for it is at most `MOST_BEHIND`
batches more than what they keep for a restoration, and for a passive one nothing; nothing about a standby ever fails a
partition; and one whose replay may differ, and which may have run, comes back out of its standby or with everything.
docs/decisions/0038-active-standbys.md, docs/decisions/0041-passive-standbys.md, docs/decisions/0076.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.errors import CheckpointError
from reprise.spark_jobs.node.command import Command, Install, Report, Shadow, Usage
from reprise.spark_jobs.topology import StreamTopology, Topology, is_deterministic
from reprise.spark_jobs.topology.availability import passive_standbys, waiting_for_standbys, with_standbys

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine
    from reprise.spark_jobs.engine.engine_spec import EngineSpec

T = TypeVar("T")
log = logging.getLogger("reprise.engine")

MOST_BEHIND = 1024
"""Batches that a standby may be behind the newest checkpoint; one that is further behind begins anew, from there."""


MOST_JOBS, MOST_S = 5, 15.0
"""Jobs that end well, and seconds, for which output waits for a standby that does not take what it is sent.  Then the
standby is dropped, and all output leaves."""

LONGEST_PAUSE_S = 60.0
"""Between two standbys of a partition that come to nothing.  One that has been at work for longer was of use."""


@dataclass(slots=True)
class Falls:
    """How often in a row the standby of a partition came to nothing, and when another one may begin: after the first time at
    once, then a second later, and each further time after twice as long."""

    count: int = 0
    until: float = 0.0

    def again(self, now: float) -> None:
        """It came to nothing once more."""
        self.until = now + (min(2.0 ** (self.count - 1), LONGEST_PAUSE_S) if self.count else 0.0)
        self.count += 1


class Waiting(NamedTuple):
    """Jobs in a row that have ended well and in which output waited for a standby that should have been sent it; since when;
    and how far the standby, and its partition, were after the last job."""

    jobs: int = 0
    since: float = 0.0
    standby: int = -1
    partition: int = -1


NOT_YET = Waiting()
"""No job has ended since it began."""


@dataclass(slots=True)
class Standby:
    """One standby: `position` is the last batch that it has applied, or of its checkpoint while it is not at work."""

    node: str
    installation: str
    install: Install
    position: int
    at_work: bool = False
    late: bool = False
    """Its host said that it must try again: what was sent meanwhile was not kept."""
    again: bool = True
    """It is sent everything behind its position with the next job."""
    every: int = 0
    """Batches between what a passive one is sent; 0: it is active."""
    usage: Usage | None = None
    """What a passive one has done."""
    since: float | None = None
    """When it was heard to be at work first."""
    waits: Waiting = NOT_YET
    """How long output of its partition has waited for it."""


@dataclass(slots=True)
class Standbys:
    """The standbys of one driver's life."""

    resource: StreamTopology
    topology: Topology
    problems: list[str]
    """Where trouble is said."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that only grow."""
    able: frozenset[str] = frozenset()
    """Partitions that may have one."""
    every: Mapping[str, int] = field(default_factory=dict)
    """Those of them whose standbys are passive, with the batches between what they are sent."""
    output_waits: frozenset[str] = frozenset()
    """Those of them whose output waits for the standby, as a replay may differ."""
    there: dict[str, Standby] = field(default_factory=dict)
    _promoting: dict[str, Install] = field(default_factory=dict)
    """Partitions that are being installed out of their standby."""
    _shown: dict[str, int] = field(default_factory=dict)
    """Partition that is lost -> the last batch that it is known to have shown, or staged."""
    _refused: dict[str, int] = field(default_factory=dict)
    """Partition whose standby came to nothing -> the checkpoint that was the newest then."""
    _falls: dict[str, Falls] = field(default_factory=dict)
    """Partitions whose standbys came to nothing."""
    _starved: dict[str, int] = field(default_factory=dict)
    """Partition with a passive standby -> the position behind which somebody has not kept what it would need."""
    _ran: set[str] = field(default_factory=set)
    """Those of `output_waits` that hosts were told to install since everything went back last: others may have what they
    gave."""
    _asked: dict[str, int] = field(default_factory=dict)
    """Partition with a passive standby -> the position about which everybody was asked that last."""

    def __post_init__(self) -> None:
        self.able = with_standbys(self.resource, self.topology)
        self.every = passive_standbys(self.resource, self.topology)
        # each class is made and asked once, where the answer counts
        alike = {o.name: is_deterministic(o) for o in self.resource.operators} if self.able else {}
        self.output_waits = waiting_for_standbys(self.resource, self.topology, lambda o: alike[o.name])
        if self.able - self.every.keys() and not all(alike.values()):
            # outputs wait for checkpoints, and an active one drops what its partition has not shown yet; such resources are
            # refused, but this one may have been taken before, and a class may say so of itself
            self.able &= self.every.keys()

    # -- what is decided -----------------------------------------------------------------------------------------------

    def promotable(
        self, desired: EngineSpec, before: EngineSpec, back: Collection[str], newest: int
    ) -> set[str]:
        """Partitions that the desired state moves to where their standby is, no older than the newest checkpoint; `back`:
        those go back."""
        return {
            p
            for p, standby in self.there.items()
            if self._is_ready(p, standby, newest)
            and p not in back
            and desired.assignment.get(p) == standby.node
            and before.assignment.get(p) != standby.node
        }

    def goes_on_at(self, engine: Engine, partition: str) -> int:
        """The last batch that the standby of a partition has applied and that is shown, or staged with what the standby has:
        it goes on behind that where it is promoted now."""
        standby = self.there[partition]
        if standby.every:  # up to there all is shown, or staged, and the copy has that
            return standby.position
        shown = self._shown.get(partition, standby.position)
        return min(standby.position, engine.positions.get(partition, shown))

    def promote(self, engine: Engine, partition: str) -> int:
        """Let a standby be its partition with the next job; where it goes on, as `goes_on_at` says."""
        position = self.goes_on_at(engine, partition)
        standby = self.there.pop(partition)
        self._shown.pop(partition, None)
        self._promoting[partition] = Install(position, promotes=standby.installation)
        # it may have passed what is announced, and did not store itself there; but nobody has passed the last batch, where a
        # stream ends or is drained
        engine.punctuations.give_up(engine.horizon - 1)
        log.warning(
            "event=standby-promoted partition=%s node=%s position=%d", partition, standby.node, position
        )
        return position

    def install(self, partition: str) -> Install | None:
        """How a partition is installed out of its standby; None: it is not."""
        return self._promoting.get(partition)

    # -- what is seen --------------------------------------------------------------------------------------------------

    def loses(self, partition: str, position: int | None) -> None:
        """A partition is not at work any more, which had shown, or staged, everything up to `position`; None: it was being
        installed, and has no standby then."""
        self._promoting.pop(partition, None)
        if partition in self.able and position is not None:
            self._shown[partition] = position

    def leaves(self, partition: str) -> None:
        """A partition goes back, or is restored: its standby begins anew when it is at work again."""
        self._promoting.pop(partition, None)
        self._shown.pop(partition, None)
        self.there.pop(partition, None)

    def all_go_back(self) -> None:
        """Every partition goes back: nobody has anything that was given since."""
        self._ran.clear()

    def ordered(self, partition: str) -> None:
        """Hosts are told to install a partition.  Whether it has run, and others have what it gave, is not known before the
        first report, and a job may fail before that."""
        if partition in self.output_waits:
            self._ran.add(partition)

    def would_differ(self, partition: str) -> bool:
        """Whether a partition must not be restored by itself: others may have what it gave, and it would give something
        else."""
        return partition in self._ran

    def works(self, partition: str) -> None:
        """A partition was installed."""
        self._promoting.pop(partition, None)
        self._shown.pop(partition, None)

    def again(self) -> None:
        """What was under way may be lost."""
        for standby in self.there.values():
            standby.again = True

    def heard(self, command: Command, report: Report, newest: int) -> tuple[list[str], Report]:
        """Take in what a node says of the standbys on it; the rest of what was ordered there, and of its report."""
        here = {p for p in command.standbys if command.silent(p)}
        self._asked |= {p: s.position for p, s in command.standbys.items() if s.every and s.lags}
        for partition in report.unfed:
            if partition in self.every:
                # it is sent more, and then that may not matter: they are asked again
                self._starved[partition] = command.standbys[partition].position
            elif partition in self.there:
                self._falls_out(partition, "what it needs is not kept any more", newest)
        if not here:
            return list(command.hosted), report
        for partition in here & self.there.keys():
            standby = self.there[partition]
            if report.installed.get(partition) != standby.installation:
                self._falls_out(partition, "its host is another one", None)
            elif partition in report.failed:
                self.problems.append(
                    f"{partition}: its standby on {standby.node}: {report.failed[partition]}"
                )
                self._falls_out(partition, str(report.failed[partition]), newest)
            elif partition in report.positions:
                standby.again, standby.late, standby.at_work = standby.late, False, True
                standby.since = self.clock() if standby.since is None else standby.since
                standby.position = report.positions[partition]
                standby.usage = report.usage.get(partition)
            else:
                standby.late = True
                standby.at_work = standby.at_work and not standby.every
                self._asked.pop(partition, None)
        mine = [p for p in command.hosted if p not in here]
        return mine, replace(
            report,
            positions=_without(report.positions, here),
            failed=_without(report.failed, here),
            usage=_without(report.usage, here),
            counters=_without(report.counters, here),
        )

    # -- what is done --------------------------------------------------------------------------------------------------

    def step(self, engine: Engine, living: Collection[str]) -> None:
        """Before a job: let go of those that cannot be, or are not wanted; begin those that are."""
        wanted, newest = engine.desired.standbys, engine.punctuations.newest
        for partition, standby in list(self.there.items()):
            if standby.node not in living:
                self._drop(partition, f"its node {standby.node} is gone")
            elif wanted.get(partition) != standby.node:
                self._drop(partition, "it is not wanted there any more")
            elif not standby.every and newest - standby.position > MOST_BEHIND:
                behind = newest - standby.position
                self._falls_out(partition, f"it was {behind} batches behind a checkpoint", None)
            elif standby.waits.jobs >= MOST_JOBS and self.clock() - standby.waits.since >= MOST_S:
                reason = f"it has taken nothing for {MOST_S:.0f} s, and output of its partition waits for it"
                self.problems.append(f"{partition}: its standby on {standby.node} is dropped: {reason}")
                self._falls_out(partition, reason, None)
        at_work = engine.at_work if wanted else {}
        for partition, node in wanted.items():
            if partition in self.there or partition not in at_work or node not in living:
                continue
            if engine.desired.assignment.get(partition) == node or partition not in self.able:
                continue
            if partition not in self.every and engine.staged.get(engine.desired.assignment[partition], 1):
                continue  # of output that was staged by other code: it would take it for shown
            pause = self._falls.get(partition)
            if self._refused.get(partition) != newest and (pause is None or self.clock() >= pause.until):
                self._begin(engine, partition, node, newest)

    def job_done(self, positions: Mapping[str, int], window: int) -> None:
        """A job has ended well: count it where output waits for a standby that should have been sent it.  One that failed
        says nothing of standbys.  `positions`: of the partitions that are not lost; `window`: batches that a partition may
        be ahead of its readers."""
        now = self.clock()
        for partition, standby in self.there.items():
            if partition not in self.output_waits or partition not in positions:
                continue
            position, before = positions[partition], standby.waits
            behind = position - standby.position
            # it is sent something at the latest when it has come no further in a whole job
            due = behind >= min(standby.every, window) or (behind > 0 and position == before.partition)
            if before.standby == standby.position and (due or not standby.at_work):
                standby.waits = before._replace(jobs=before.jobs + 1, partition=position)
            else:
                standby.waits = Waiting(0, now, standby.position, position)

    def _begin(self, engine: Engine, partition: str, node: str, newest: int) -> None:
        if every := self.every.get(partition):
            install = Install(0, shadow=True)
            self._starved.pop(partition, None)
            self._asked.pop(partition, None)
            self.there[partition] = Standby(node, engine.next_installation(), install, 0, every=every)
            log.info("event=standby-begins partition=%s node=%s every=%d", partition, node, every)
            return
        try:
            found = engine.restore_point.find(Positions(newest), False)
        except (
            CheckpointError
        ) as error:  # the store is away, or this one is damaged: a newer one is waited for
            self._refused[partition] = newest
            self.problems.append(f"{partition}: no standby can begin from checkpoint {newest}: {error}")
            return
        self._refused.pop(partition, None)
        install = replace(found.get(partition, Install(newest)), shadow=True)
        installation = engine.next_installation()
        self.there[partition] = Standby(node, installation, install, newest)
        log.info("event=standby-begins partition=%s node=%s position=%d", partition, node, newest)

    def _falls_out(self, partition: str, reason: str, refused: int | None) -> None:
        """It came to nothing.  `refused`: another one begins from a checkpoint behind this one."""
        since, now = self.there[partition].since, self.clock()
        if since is not None and now - since > LONGEST_PAUSE_S:
            self._falls.pop(partition, None)
        self._falls.setdefault(partition, Falls()).again(now)
        if refused is not None:
            self._refused[partition] = refused
        self._drop(partition, reason)

    def _drop(self, partition: str, reason: str) -> None:
        del self.there[partition]
        log.warning("event=standby-dropped partition=%s reason=%r", partition, reason)

    # -- what is told --------------------------------------------------------------------------------------------------

    @property
    def usage(self) -> dict[str, Usage]:
        """What passive standbys have done; read by other threads, too."""
        return {p: s.usage for p, s in dict(self.there).items() if s.usage is not None and s.every}

    @property
    def nodes(self) -> Set[str]:
        """Where there are any."""
        return {standby.node for standby in self.there.values()}

    def hosted(self, node: str) -> tuple[dict[str, str], dict[str, Install]]:
        """The standbys that a node is to host, with their installations, and how those begin that are not at work."""
        mine = {p: standby for p, standby in self.there.items() if standby.node == node}
        begin = {p: standby.install for p, standby in mine.items() if not standby.at_work}
        return {p: standby.installation for p, standby in mine.items()}, begin

    def told(self, slot_of: Mapping[str, int], positions: Mapping[str, int]) -> dict[str, Shadow]:
        """What hosts must know of all standbys."""
        found = {}
        for p, standby in self.there.items():
            shown = positions.get(p, self._shown.get(p, 0))
            slot, position = slot_of[standby.node], standby.position
            if standby.every:
                empty = not standby.at_work
                found[p] = Shadow(slot, position, empty, shown, standby.every, standby.installation)
            else:
                found[p] = Shadow(slot, position, standby.again, shown)
        return found

    def covered(self, covered: Positions) -> Positions:
        """What senders may forget, of what may be forgotten of partitions: a standby may not be as far as the checkpoint."""
        low = {p: s.position for p, s in self.there.items() if not s.every and s.position < covered.of(p)}
        return Positions(covered.everybody, {**covered.others, **low}) if low else covered

    def ready(self, newest: int) -> dict[str, int]:
        """Those that can be promoted, with their positions: none is worth it that a checkpoint is ahead of."""
        return {p: s.position for p, s in self.there.items() if self._is_ready(p, s, newest)}

    def _is_ready(self, partition: str, standby: Standby, newest: int) -> bool:
        if not standby.at_work or standby.position < newest:
            return False
        # a copy cannot say what others have kept: that is known of where it was when they were asked
        return not standby.every or self._asked.get(partition, -1) > self._starved.get(partition, -1)

    def idle(self, horizon: int) -> bool:
        """Whether all at work have applied what there is; those that begin need no more than a job now and then."""
        active = [s for s in self.there.values() if s.at_work and not s.every]
        return all(not s.again and s.position >= horizon for s in active)


def _without(found: Mapping[str, T], partitions: Set[str]) -> dict[str, T]:
    return {p: value for p, value in found.items() if p not in partitions}

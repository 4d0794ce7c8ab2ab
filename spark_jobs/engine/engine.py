"""The engine: brings about what the coordinator desires, one chain of supersteps at a time.

It knows no Kubernetes, no ZooKeeper and no planner: it is given the desired state and the living nodes, and tells progress.
Its laws: what is desired and not at work is installed from the position of its origin; what is at work and desired where it
is keeps its state while the generation of its origin stays; another `generation` is one for all but those with an origin of
their own.  A job that fails changes nothing by itself: the hosts of the living nodes kept their state and
their unconfirmed output, so the next job sends again what may have been lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from reprise.algorithms.failure import Failure, FailureKind
from reprise.spark_jobs.engine.arrival import ArrivalOrder
from reprise.spark_jobs.engine.commands import commands_of
from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.engine.drain import Drain
from reprise.spark_jobs.engine.engine_spec import EngineSpec, Sites
from reprise.spark_jobs.engine.figures import Figures, JobTimes
from reprise.spark_jobs.engine.jobs import Connection, Jobs
from reprise.spark_jobs.engine.local_lines import LocalLines
from reprise.spark_jobs.engine.origins import (
    begins_at,
    complete_checkpoints,
    condemn,
    find_origins,
    reads_from,
)
from reprise.spark_jobs.engine.progress import Progress, progress_of, slowest_able
from reprise.spark_jobs.engine.punctuation import Punctuations
from reprise.spark_jobs.engine.ranges import ToldRanges
from reprise.spark_jobs.engine.repeated import Repeated
from reprise.spark_jobs.engine.restore_point import RestorePoint
from reprise.spark_jobs.engine.skipping import Skipping
from reprise.spark_jobs.engine.standbys import Standbys
from reprise.spark_jobs.engine.transfers import Granted, Transfers, wanted_of
from reprise.spark_jobs.engine.trouble import SLOW_S, passing, say_slow
from reprise.spark_jobs.engine.upstream_backup import UpstreamBackup
from reprise.spark_jobs.errors import DataPlaneError, HostBusyError, JobError
from reprise.spark_jobs.node.command import Command, Due, Held, Install, Report, Usage, size_of
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.release import Release
from reprise.spark_jobs.topology import StreamTopology, Topology

log = logging.getLogger("reprise.engine")

WINDOW = 256
"""Batches that a partition may be sent ahead of its confirmed position; bounds inboxes and what is in flight."""

LEAD_S = 2.0
"""Batches are released so long before they are due, so that none waits for a job or a store."""
REPORT_S = 0.5
"""Between two jobs that only ask how things stand."""


@dataclass(slots=True)
class Engine:
    """One driver's life; `epoch` is greater than that of every driver before it."""

    resource: StreamTopology
    topology: Topology
    sites: Sites
    epoch: int
    connect: Callable[[Sequence[str]], Jobs]
    ledger: Ledger
    release: Release
    store: CheckpointStore
    punctuations: Punctuations
    patience_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    """Seconds that only grow."""
    later: Mapping[str, int] = field(default_factory=dict)
    """Operators that came after the stream's beginning, each with the batch behind which its output begins."""
    desired: EngineSpec = field(default_factory=EngineSpec)
    positions: dict[str, int] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    not_kept: set[str] = field(default_factory=set)
    """Partitions whose upstreams dropped for want of room what they need: only a rollback of all feeds them."""
    usage: dict[str, Usage] = field(default_factory=dict)
    counters: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """What each partition at work counts, as its host said last."""
    state_bytes: dict[str, int] = field(default_factory=dict)
    """Size of the newest stored state of each partition; 0 where it has none."""
    releases: Callable[[], None] = lambda: None
    """Called before batches are released; they are not while it raises."""
    outputs: list[tuple[str, int, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    buffers: dict[str, Held] = field(default_factory=dict)  # by node
    horizon: int = 0
    """The last batch that is released; no source begins it before it is due."""
    _furthest: int = 0
    """The greatest position."""
    told: int = 0
    """The last batch that was released and due when hosts have told of their positions."""
    jobs: int = 0
    failures: int = 0
    busy_s: float = 0.0
    figures: Figures = field(default_factory=Figures)
    transfers: Transfers = field(default_factory=Transfers)
    staged: dict[str, int] = field(default_factory=dict)
    """Node -> batches of output that wait for a checkpoint before they are published."""
    installing: set[str] = field(default_factory=set)
    """Partitions whose host has not said yet that they are at work; their position is their checkpoint's so far."""
    _late: set[str] = field(default_factory=set)
    """Of those, the ones whose host said that it must try again: what was sent to them meanwhile was not kept."""
    _again: set[str] = field(default_factory=set)
    """Those that are at work now after all, to which the next job sends everything again."""
    _repeated: Repeated = field(default_factory=Repeated)
    installation: dict[str, str] = field(default_factory=dict)
    _installs: int = 0
    """How many installations there were."""
    resend: set[str] = field(default_factory=set)
    connection: Connection = field(init=False)
    confirmed: int = 0
    ranges: ToldRanges = field(init=False)
    _dispatch: Dispatch = field(init=False)
    _went_back_alone: bool = False
    """The last rollback installed nothing: what must hold before something goes on from its checkpoint is not asked yet."""
    offered: int = 0
    """Hosts have been told that output up to this batch may be shown, and have answered since."""
    restore_point: RestorePoint = field(init=False)
    lines: LocalLines = field(init=False)
    skipping: Skipping = field(init=False)
    standbys: Standbys = field(init=False)
    upstream: UpstreamBackup = field(init=False)
    arrival: ArrivalOrder = field(init=False)
    _living: Collection[str] = ()
    drain: Drain = field(default_factory=Drain)
    progress: Progress = field(default_factory=Progress)
    """How things stood after the last change; the only thing here that other threads may read together."""

    def __post_init__(self) -> None:
        self.restore_point = RestorePoint(
            self.resource, self.store, self.ledger, self.punctuations, self.problems, self.clock,
            later=self.later,
        )  # fmt: skip
        self.lines = LocalLines(self.resource, self.topology, self.restore_point, self.clock)
        self.skipping = Skipping(self.resource, self.topology, self.store.skip_records, self.problems)
        self.standbys = Standbys(self.resource, self.topology, self.problems, self.clock)
        self.upstream = UpstreamBackup(self.resource, self.topology, self.problems)
        self.arrival = ArrivalOrder(self.resource.arrival)
        self.ranges = ToldRanges(self.ledger, 2 * WINDOW)
        self._dispatch = Dispatch(self.topology)
        self.connection = Connection(self.problems, self.clock)

    @property
    def bad_checkpoints(self) -> set[int]:
        """Complete checkpoints that cannot be used."""
        return self.restore_point.bad

    def begin(self, newest: int) -> None:
        """Go on after the newest complete checkpoint; once, before anything else.  StoreError: it has not begun."""
        self.ledger.require(newest)
        self.skipping.begin()
        self.punctuations.newest = newest
        if self.lines.active:
            self.lines.begin(newest)
            newest = self.punctuations.newest
        self.drain.shown_by = self.ledger.written
        self.problems += self.release.begin(newest, WINDOW)
        self._refresh_progress()

    # -- what is wanted ------------------------------------------------------------------------------------------------

    def want(self, desired: EngineSpec) -> None:
        """Take over a new desired state; nothing has changed when it raises.

        CheckpointError: its checkpoint cannot be used.  DamagedError: nor ever will be, and `bad_checkpoints` says so.
        StoreError: the store is away; to be called again, and the store is asked again after a while.
        """
        try:
            self._take_over(desired)
        finally:
            self._refresh_progress()

    def _take_over(self, desired: EngineSpec) -> None:
        before, positions = self.desired, desired.restored_from
        rollback = desired.generation != before.generation
        changed = self.topology.partitions if rollback or desired.lines != before.lines else ()
        back = {p for p in changed if desired.origin(p).generation != before.origin(p).generation}
        stays = {p for p, node in before.assignment.items() if p in self.positions and p not in back}
        promoted = self.standbys.promotable(desired, before, back, self.punctuations.newest)
        placed = {p for p, n in desired.assignment.items() if before.assignment.get(p) != n}
        # what has failed stays as it is until it has another node, whatever else is wanted
        installs = placed | {p for p in desired.assignment if p in back or not self._knows(p)}
        whole = back.issuperset(self.topology.partitions)
        stay_lost = {p for p in installs - promoted if not whole and self.standbys.would_differ(p)}
        installs, back = installs - promoted - stay_lost, back - stay_lost
        going_back = rollback or self._went_back_alone
        if not (before if installs else desired).retain:
            self.lines.restored.clear()  # of what failed before
        working = stays - installs - promoted - stay_lost - self.installing
        self.skipping.decide(self, desired.anew, installs, installs if going_back else back, working)
        if installs:
            more = find_origins(self, desired, installs, back, going_back)
            back.update(more)  # nothing raises from here on
            self.skipping.installs_now(installs)
        at = {p: self.standbys.goes_on_at(self, p) for p in promoted}
        fed = {} if going_back else self.upstream.decided(self, desired, installs, back, at)
        self._went_back_alone = going_back and not installs
        self.figures.reached(self.begun)
        for partition in back:
            self._forget(partition)
        if whole:
            self.standbys.all_go_back()
        self.upstream.leave(back - fed.keys())
        if rollback:
            self.drain.back_from(self.horizon)
            self.punctuations.forget()
            newest = self.punctuations.newest if self.lines.active else positions.newest
            self.horizon = max([newest, *self.positions.values()])
        if going_back and installs:
            self.punctuations.back_to(self.punctuations.newest if self.lines.active else desired.checkpoint)
        self.upstream.begins(fed, installs | promoted)
        self.desired = desired
        for partition in desired.assignment:
            if partition in promoted and partition not in back:
                self._begin_at(partition, self.standbys.promote(self, partition))
            elif partition not in stay_lost and (partition in installs or partition in back):
                self._install(partition)
        for partition in stay_lost - self.failed.keys():  # until everything goes back
            self._lose(partition, Failure(FailureKind.STATE_LOST), before.assignment.get(partition, ""))
        if self.lines.active:
            self.horizon = max([self.horizon, self.lines.furthest, *self.positions.values()])
        for partition in [p for p in self.positions if p not in desired.assignment]:
            self._lose(partition, Failure(FailureKind.NOT_ASSIGNED), before.assignment.get(partition, ""))
            self.failed.pop(partition, None)
        self.skipping.installed(self)
        log.info(
            "event=desired seq=%d generation=%d checkpoint=%d lines=%d assigned=%d retain=%s",
            desired.seq, desired.generation, desired.checkpoint, len(desired.lines), len(desired.assignment), desired.retain,
        )  # fmt: skip

    def _knows(self, partition: str) -> bool:
        """Whether a partition was ordered, and is at work since, or has failed."""
        return partition in self.positions or partition in self.failed

    def _forget(self, partition: str) -> None:
        """It goes back to another snapshot: nothing of what it has done since counts."""
        for known in (self.positions, self.failed, self.counters):
            known.pop(partition, None)
        self.ranges.forget(self.installation.pop(partition, ""))
        self.punctuations.lost(partition)
        self.skipping.leaves(partition)
        self.standbys.leaves(partition)
        for group in (self.installing, self._late, self._again, self.resend, self.not_kept):
            group.discard(partition)

    def granted(self) -> Granted:
        """Whose states are fetched now."""
        installs = {} if not self.installing else self.restore_point.installs
        reading = [p for p in self.installing if self.upstream.install(p) is None]
        wanted = wanted_of(reading, installs, self.installation, self.desired.assignment)
        self.transfers.look(self)
        return self.transfers.decide(wanted, self.clock())

    def next_installation(self) -> str:
        """An id that outranks all before it."""
        self._installs += 1
        return f"{self.epoch}.{self.desired.generation}.{self._installs}"

    def _install(self, partition: str) -> None:
        self.standbys.leaves(partition)
        self.state_bytes[partition] = size = size_of(
            self.restore_point.installs.get(partition, Install(0)).file
        )
        size = 0 if self.upstream.install(partition) is not None else size  # it is not read
        position = begins_at(self, partition)
        self._begin_at(partition, position)
        self.figures.installs(partition, position, size, self.clock())

    def _begin_at(self, partition: str, position: int) -> None:
        self.punctuations.lost(partition)
        self.installation[partition] = self.next_installation()
        self.positions[partition] = position
        self.installing.add(partition)
        self.standbys.ordered(partition)
        self._late.discard(partition)
        self.failed.pop(partition, None)
        self.resend.add(partition)
        self.counters.pop(partition, None)

    def _lose(self, partition: str, failure: Failure, node: str | None = None) -> None:
        """`node`: where it was; None: where it is wanted."""
        self.figures.loses(partition, failure.kind, self.clock())
        node = self.desired.assignment.get(partition, "") if node is None else node
        position = None if partition in self.installing else self.positions.get(partition)
        # what is staged and not shown yet is lost with it
        shown = None if self.staged.get(node) else position
        self.skipping.loses(partition, failure, shown)
        self.upstream.loses(partition, failure, shown)
        self.standbys.loses(partition, position)  # its copy has what is staged
        self.punctuations.lost(partition)
        # one that was announced before the loss, and is not due yet, would count as one after the recovery
        last = self.drain.asked or self.horizon == self.final
        self.punctuations.give_up(self.horizon - last, behind=self.begun)
        self.positions.pop(partition, None)
        self.counters.pop(partition, None)
        self.installing.discard(partition)
        self.ranges.forget(self.installation.pop(partition, ""))
        self.failed[partition] = failure

    # -- one step ------------------------------------------------------------------------------------------------------

    def tick(self, living: Mapping[str, str], cancelled: threading.Event) -> bool:
        """Run one job on the nodes of `living` ("node#incarnation" -> host); False when there was nothing to run."""
        try:
            return self._tick(living, cancelled)
        finally:
            self._refresh_progress()

    def _tick(self, living: Mapping[str, str], cancelled: threading.Event) -> bool:
        self._living = living.keys()
        for partition in [p for p in self.positions if self.desired.assignment.get(p) not in living]:
            self._lose(partition, Failure(FailureKind.NODE_LOST))
        if not self.positions:
            return False
        self.standbys.step(self, living)
        needed = {self.desired.assignment[p] for p in self.positions} | self.standbys.nodes
        entered = self.clock()
        self._open_batches()
        if self.resource.checkpoint.uncoordinated and not self.desired.paused:
            self.lines.clocks.ask(self.at_work, self.horizon, self.clock())
        self._refresh_progress(heard=False)  # a job may take long
        self.jobs += 1
        slots: Sequence[str] = ()
        try:
            self.upstream.look(self, living)
            if self.connection.to(needed, living, self.connect):
                self._send_again()  # what was under way by another exchange
            slots = self.connection.nodes
            commands = self._commands(slots)
            orders = self._dispatch.orders(slots, commands)
            self.figures.acknowledgement_bytes = self._dispatch.acknowledgement_bytes
            offered = self.punctuations.newest
            began = self.clock()
            reports = self.connection.run(commands[0].order, orders, cancelled, self.patience_s)
        except DataPlaneError as error:
            self._after_failure(error, slots, cancelled.is_set())
            return True
        ended = self.clock()
        took = ended - began
        self.busy_s += took
        slowest = max(reports, key=lambda r: r.busy_s)
        if took > SLOW_S:
            say_slow(self.jobs, took, slots, slowest)
        self.buffers = {}
        # a host that begins anew has lost what it had staged: that stays known until it has said more
        self.staged = {n: k for n, k in self.staged.items() if n in slots}
        self._dispatch.taken()
        for node, command, report in zip(slots, commands, reports, strict=True):
            self._take(node, *self.standbys.heard(command, report, self.punctuations.newest))
            self.upstream.heard(node, report, self.installation, self.punctuations.newest)
        self.standbys.job_done(self.positions, WINDOW)
        self.confirmed = self.jobs  # not before all is taken: what is not confirmed is said again
        self.resend, self._again, self.offered = self._again, set(), offered
        self.failures = 0
        self._repeated.succeeded()
        with passing(self.problems, "checkpoint waits"):
            complete_checkpoints(self)
        with passing(self.problems, "the stream's clock waits"):  # tried again with the next job
            self.release.start(self.release.now())
        now, compute = self.clock(), 0.0 if self.connection.link else min(slowest.busy_s, took)
        self.figures.applied(self.at_work, self.usage, now)
        self.figures.times.look(self)
        self.figures.jobs.append(JobTimes(began - entered, compute, took - compute, now - ended))
        return True

    def _after_failure(self, error: DataPlaneError, slots: Sequence[str], cancelled: bool) -> None:
        self.failures += 1
        self.figures.failed_jobs += 1
        slot = error.slot if isinstance(error, JobError) else None
        self.connection.end(slot)
        self._dispatch.forget()
        self._send_again()
        log.warning("event=job-failed job=%d failures=%d reason=%r", self.jobs, self.failures, str(error))
        if cancelled:  # a node is being lost; the next job goes without it
            return
        where = "" if slot is None else f"node {slots[slot].rpartition('#')[0] or slots[slot]}: "
        if isinstance(error, HostBusyError):  # it stays so for as long as user code does not return
            self.problems.append(f"{where}{error}")
        if self._repeated.failed(f"{where}{error}"):
            self.problems.append(f"jobs fail again and again: {where}{error}")

    def _send_again(self) -> None:
        self.resend.update(self.positions)
        self.standbys.again()

    def _open_batches(self) -> None:
        """Move the horizon: as far as the clock says, and not far ahead of the slowest."""
        if self.desired.paused:
            return
        due = self._due()
        everyone = self.desired.punctuate and len(self.positions) == len(self.topology.partitions)
        if self.drain.asked:
            due = self.drain.release(due, self.horizon, everyone, self.punctuations)
        reach: int | None = None
        # no batch without its ranges on record; tried again with the next job
        with passing(self.problems, "sources wait"):
            if due > self.horizon:
                self.releases()
            reach = self.ledger.reach(due)
        if reach is None:
            return
        self.problems += self.ledger.problems
        self.ledger.problems.clear()
        if self.ledger.ended_at is not None and due > self.ledger.ended_at:
            reach = self.ledger.ended_at + 1
        now, after = self.clock(), self.desired.checkpoint_after
        alone = self.resource.checkpoint.uncoordinated
        rounds = everyone and (not alone or after is not None)
        self.punctuations.announce(self.horizon, reach, self.final, rounds, now, self.begun, after)
        self.figures.announced(self.punctuations.open, lambda batch: now + max(0.0, self._due_in(batch)))
        self.horizon = max(self.horizon, reach)
        if alone and self.final is not None and self.punctuations.newest < self.final <= self.horizon:
            self.punctuations.demand(self.final)  # some were there already before everything went back

    @property
    def drained(self) -> int | None:
        """The checkpoint at which the stream has stopped: everything that may have been shown is before it, and hosts of all
        partitions have said that they have shown everything up to it."""
        newest = self.punctuations.newest
        if not self.drain.asked or not self.drain.reached(self.horizon, newest):
            return None
        shown = self.offered >= newest and len(self.at_work) == len(self.topology.partitions)
        return newest if shown and not any(self.staged.values()) else None

    def _due(self) -> int:
        """The last batch to release now.  In normal running it is at most a window ahead of the slowest.  In an incident
        those that have all their input go on with the clock; what came due while nothing ran is caught up by windows.  It is
        released `LEAD_S` before it is due, unless sources do not know so early what there is."""
        now, slowest = self.release.now(), slowest_able(self.positions, self.topology)
        if said := self.release.was_set():
            self.problems.append(said)
        pace = self.release.pace(now, slowest, WINDOW)
        due = self.release.due(now if self.ledger.live else now + LEAD_S, slowest)
        return min(due, pace if self.desired.retain else slowest + WINDOW)

    @property
    def due(self) -> int:
        """The last batch that should be released by now.  Reads whole values, so that whoever publishes may ask while a job
        or a store hangs: what comes due meanwhile is not shown to anybody."""
        held = self.desired.paused or self.drain.holds(self.horizon, self.punctuations.newest)
        return self.begun if held else self.release.owed(self.begun, self.final)

    @property
    def begun(self) -> int:
        """The last batch that is released and due.  From any thread."""
        return max(self.release.begun(self.horizon), min(self.horizon, self._furthest))

    @property
    def rests_s(self) -> float:
        """Seconds for which hosts that keep up have enough to do."""
        return max(0.0, min(REPORT_S, self._due_in(self.horizon) / 2))

    @property
    def next_release_s(self) -> float:
        """Seconds until hosts must be told of another batch."""
        if not self.connection.link:  # only a job moves them
            return self._due_in(self.begun + 1)
        return self._due_in(self.horizon + 1) - (0.0 if self.ledger.live else LEAD_S)

    def _due_in(self, batch: int) -> float:
        return self.release.at(batch) - self.release.now()

    def due_for_hosts(self) -> Due | None:
        """When the batches up to the horizon are due; None: at once, or the clock stands still."""
        if self.release.interval_s <= 0 or self.release.started is None:
            return None
        anchor = self.release.anchors[-1]
        return Due(anchor.batch, anchor.time - self.release.now(), anchor.interval)

    @property
    def final(self) -> int | None:
        """The batch that ends the stream, once the sources have ended."""
        return None if self.ledger.ended_at is None else self.ledger.ended_at + 1

    def _commands(self, slots: Sequence[str]) -> list[Command]:
        self.arrival.tells(self.desired, self.positions)
        return commands_of(self, slots, WINDOW)

    def reading(self, partition: str) -> tuple[str, int, int]:
        """Installation of a source partition, behind which batch it is asked, and up to which one it may read."""
        after = max(0, reads_from(self, partition) - self.topology.partitions[partition].late)
        return self.installation[partition], after, self.horizon

    def _take(self, node: str, ordered: Collection[str], report: Report) -> None:
        """Believe a report on the partitions that were ordered, as far as it speaks of what is installed now: not of an
        installation before a rollback."""
        for ack in report.acks:
            if self.installation.get(ack.partition) == ack.installation:
                self.punctuations.acknowledge(ack)
                self.lines.acknowledge(ack)
                self.state_bytes[ack.partition] = size_of(ack.file)
        for partition in ordered:
            if report.installed.get(partition) != self.installation[partition]:
                self._lose(partition, Failure(FailureKind.STATE_LOST))
            elif partition in report.failed:
                position = self.positions[partition]  # of the checkpoint, if that is what failed
                self._lose(partition, report.failed[partition])
                if report.failed[partition].kind is FailureKind.CHECKPOINT:
                    condemn(self, partition, position, report.failed[partition].file)
            elif partition in report.positions:
                self.positions[partition] = report.positions[partition]
                self.counters[partition] = report.counters.get(partition, {})
                self.installing.discard(partition)
                self.skipping.works(partition)
                self.upstream.works(partition)
                self.standbys.works(partition)
                if partition in self._late:
                    self._late.discard(partition)
                    self._again.add(partition)
                if partition in self.ledger.ranges:
                    self.ranges.taken(*self.reading(partition))
            else:  # its host tries again
                self._late.add(partition)
        self.usage.update(report.usage)
        self.outputs += report.outputs
        self.problems += report.problems
        self.not_kept.update(p for p in report.not_kept if p in self.positions)
        self.buffers[node] = report.held
        self.figures.counts(report)
        self.lines.heard(ordered, report)
        self.skipping.heard(ordered, report)
        self.staged[node] = report.staged

    # -- what is true --------------------------------------------------------------------------------------------------

    def usable(self, living: Collection[str]) -> frozenset[str]:
        """Those of these nodes that can be given partitions: which are reached, or have some.  From any thread."""
        if not self.positions:
            return frozenset(living)
        return self.connection.reaches(living) | set(living).intersection(self.desired.assignment.values())

    def _refresh_progress(self, heard: bool = True) -> None:
        """Freeze how things stand; called wherever they are consistent.  `heard`: positions are as of now."""
        self._furthest = max(self.positions.values(), default=0)
        self.told = self.begun if heard else min(self.told, self.horizon)
        self.progress = progress_of(self, tuple(sorted(self.usable(self._living))))

    @property
    def at_work(self) -> dict[str, int]:
        """Positions of the partitions whose host has them: what is only ordered to be installed does not count."""
        return {p: k for p, k in self.positions.items() if p not in self.installing}

    @property
    def stuck(self) -> str:
        """Why nothing moves although the nodes are there: jobs that fail the same way again and again; else empty."""
        return self._repeated.stuck

    @property
    def idle(self) -> bool:
        """Nothing can move before the next batch is due: everyone at work has all that is, nothing is being stored."""
        return not self.punctuations.open and not any(self.staged.values()) and self._is_calm(self.begun)

    @property
    def steady(self) -> bool:
        """Hosts go on by themselves, and keep up: no job is needed but to hear of it."""
        interval_s, free = self.release.interval_s, not self.ledger.live and not self.standbys.output_waits
        late = min(REPORT_S / interval_s, WINDOW / 4) if interval_s > 0 else 0
        return self.connection.link > 0 and free and self._is_calm(self.begun - max(1, int(late)))

    def _is_calm(self, upto: int) -> bool:
        """Whether nothing is asked of hosts that they have not done, and everyone who can has come to a batch."""
        return (
            not self.failures
            and not self.resend
            and not self.installing
            and not (self.drain.asked and self.drained is None)
            and slowest_able(self.positions, self.topology) >= upto
            and self.standbys.idle(upto)
        )

    @property
    def done(self) -> bool:
        """The stream has ended and every partition that is not poisoned has applied its last batch and stored it."""
        final = self.final
        poisoned = {p for p, failure in self.failed.items() if failure.is_poison}
        wanted = set(self.topology.partitions) - self.topology.downstream_of(poisoned)
        return (
            final is not None
            and not self.installing
            and all(self.positions.get(p, -1) >= final for p in wanted)
            and (bool(poisoned) or self.punctuations.newest >= final)
            and not any(self.staged.values())
        )

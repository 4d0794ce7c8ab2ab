"""The partition host: all partitions of one node, their state and their buffers, for as long as the node lives.

Why not in Spark's Python worker itself, as first designed: Spark destroys that worker whenever its task is cancelled or a
shuffle fetch fails, and after a node loss that happens to every survivor at once; their state would go with the dead.  So
the host is a process of its own below the executor, and Spark's tasks are thin (`reprise.spark_jobs.node.shim`): they
carry a stage's messages in and out.  Measured in docs/decisions/0001-partition-host.md.

Each request is one stage of a job.  It is atomic (a task that dies half-way leaves a host that finished it) and idempotent
(the same stage again gets the same reply), which makes Spark's re-runs harmless.  It names its driver's epoch and its job: a
request of another job than the one that has begun here is refused, or a task of a job that was cancelled, and that waited
for its turn, would take the host back to older orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from polars.exceptions import PanicException

from reprise.algorithms.failure import Failure, FailureKind
from reprise.spark_jobs.errors import (
    CheckpointError,
    DataPlaneError,
    FencedError,
    NotYetError,
    SinkError,
    SourceError,
    StepError,
    StoreError,
)
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.busy import Activity, Note
from reprise.spark_jobs.node.channels import Row
from reprise.spark_jobs.node.command import Ack, Command, Order, Report, size_of
from reprise.spark_jobs.node.counters import counters_of, usage_of
from reprise.spark_jobs.node.installing import Attempt, Preparing, what_failed
from reprise.spark_jobs.node.kept import kept_since, lacking, relieve, wanted
from reprise.spark_jobs.node.lanes import LATE_S, SHARE_S, Lanes, weights_of
from reprise.spark_jobs.node.local_state import asked, frozen, rows_of
from reprise.spark_jobs.node.orders import Orders, late
from reprise.spark_jobs.node.pacing import Pacing
from reprise.spark_jobs.node.passive import PassiveStandby, unready
from reprise.spark_jobs.node.restoring import Prepared, Restorer
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime, SourceRuntime
from reprise.spark_jobs.node.sending import Sender
from reprise.spark_jobs.node.settling import ENDS, kind_of, settle
from reprise.spark_jobs.node.skipping import skip, stepped
from reprise.spark_jobs.node.snapshots import SnapshotWriter
from reprise.spark_jobs.node.standbys import adopt, follow, relieve_full, slowest, unfed
from reprise.spark_jobs.node.state_memory import StateMemory
from reprise.spark_jobs.node.survey import Survey, why_not
from reprise.spark_jobs.node.upstream_backup import dropped, oldest, with_causes
from reprise.spark_jobs.node.waits import Place
from reprise.spark_jobs.node.wire import Message, pack, unpack
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.local_copies import LocalCopies
from reprise.spark_jobs.topology import StreamTopology, Topology, expand, from_json

ROUND = 8
"""Batches that one partition may apply before the others of its node have their turn."""

JOIN_S = 0.1
"""How much of a stage may go into installing partitions whose states have come, and then those at work have their turn.  A
state that user code takes longer for is installed all the same, alone."""

Bundles = list[tuple[int, bytes]]
"""(target slot, bundle)."""


@dataclass(slots=True)
class _ItsOwn:
    """What `Host._its_own` returns.  A class, as one is entered for each partition each time that the host looks whether
    that can go on."""

    _host: Host
    _partition: str
    _batch: int

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        return error is not None and self._host._raised(self._partition, self._batch, error)


class Host:
    """Partitions of one node.  `name` identifies this process: a new host has a new name and no state."""

    def __init__(
        self, name: str, folder: Path, clock: Callable[[], float] | None = None, platform: Platform = PLATFORM
    ) -> None:
        self.name, self.folder, self._platform = name, folder, platform
        self.clock, self.busy = clock or platform.elapsed, Note()
        self.runtimes: dict[str, Runtime] = {}
        self.installed: dict[str, str] = {}
        self.failed: dict[str, Failure] = {}
        self.orders, self._pacing, self._lanes = Orders(), Pacing(), Lanes()
        self.command: Command | None = None
        self._keeps = False
        """Whether output stays here until a checkpoint covers it, for those that may be lost and begin again."""
        self.begun = False
        """Whether the current command was taken in completely."""
        self._attempts: dict[str, Attempt] = {}
        """Partitions that are still being installed: what they need is on its way, or could not be had and is asked for
        again from time to time."""
        self._missed: set[str] = set()
        """Of those, and of those that have been installed in this job, the ones to which something was sent before."""
        self._replies: dict[int, tuple[Bundles, Report | None]] = {}
        self._reported = 0
        self._acks: list[Ack] = []
        self._outputs: list[tuple[str, int, float]] = []
        self._problems: list[str] = []
        self._reported_problems = 0
        """How many of them the last report names; others have come since, as partitions move between jobs."""
        self.sender = Sender(self.runtimes, self._its_own, self._say, self.busy, self.clock)
        self._not_kept: set[str] = set()
        self._stored: dict[str, int] = {}
        """Partition -> position at which it was frozen last."""
        self._copies = LocalCopies(folder / "states", platform.write)
        """States that were stored from here."""
        self._busy_s, self._text = 0.0, ""
        self._survey, self.grace_s = Survey(), 0.0  # seconds for which partitions may outlive their driver

    # -- requests ------------------------------------------------------------------------------------------------------

    def begin(self, command: Command) -> None:
        """Take in a job's orders.  Those of an earlier epoch (a driver that was replaced) or job are refused."""
        before = self.command
        if before is not None and command.order < before.order:
            raise late("command", command.order, before)
        if before is not None and command.order == before.order and self.begun:
            return
        self.begun = False
        if refused := why_not(before, command, self._text):
            self._load(command)
        if before is not None and command.epoch != before.epoch:  # a driver counts what was done for it alone
            self._copies.read_here = self._copies.read_there = 0
            self.sender.header_bytes = self.sender.message_bytes = self.sender.standby_bytes = 0
            self._budget.spilled = 0
            self._writer.count_anew()
        self.command = command
        self._pacing.told(command.due, command.epoch, self._platform.elapsed())
        self._survey.heard(before, command, refused)
        if command.survey:  # all stays as it is
            self.begun = True
            return
        self._keeps = command.retain or command.keeps
        self._restorer.allow(command.waits)
        self._replies.clear()
        for named in (self._not_kept, self._missed):
            named.clear()
        if command.confirmed >= self._reported:  # else the last report was lost with its job: say it again
            self._acks, self._outputs, self._problems = [], [], self._problems[self._reported_problems :]
        self._reported_problems = 0
        self._host_exactly(command)
        self._refresh(command)
        self.busy.clear()
        self.begun = True

    def stage(
        self, order: Order, number: int, bundles: Iterable[bytes], last: bool
    ) -> tuple[Bundles, Report | None]:
        """Run one stage of the current job, which `order` names: deliver, apply what can be applied, and return what goes
        out or the report.  LateRequestError for a stage of another job."""
        command = self._current()
        if order != command.order or not self.begun:
            raise late(f"stage {number}", order, command)
        if command.survey:
            return [], self._survey.answer(self.report()) if last else None
        if number not in self._replies:
            began = self._platform.elapsed()
            self._join(command)
            for bundle in bundles:
                for message in unpack(bundle):
                    self.deliver(message)
            if not last:
                self.sender.deltas.look(self.runtimes, command)
            if not command.link:  # else the partitions move all the time
                self.run(command.budget_s)
            if last:
                self._settle(command)
                if command.link:  # partitions step on before anything is sent
                    self.sender.deltas.look(self.runtimes, command)
            self._busy_s += self._platform.elapsed() - began
            out = [] if last else [(s, pack(m)) for s, m in self.sender.outgoing(command).items()]
            self.busy.clear()
            self._replies[number] = (out, self.report() if last else None)
        return self._replies[number]

    def report(self) -> Report:
        """Positions, failures, acknowledged checkpoints and figures as they are now."""
        command = self._current()
        acks, problems = self._writer.collect()
        self._acks += acks
        self._problems += problems + self._restorer.slow() + self._memory.trouble()
        counters = counters_of(self.runtimes, self._problems)
        reach = oldest(self.runtimes, command, self._problems)
        self._reported, self._reported_problems = command.job, len(self._problems)
        busy_s, self._busy_s = self._busy_s, 0.0
        waiting = self._missed | self._attempts.keys() | unready(self.runtimes)
        return Report(
            slot=command.slot,
            host=self.name,
            positions={p: r.settled for p, r in self.runtimes.items() if p not in waiting},
            installed=dict(self.installed),
            failed=dict(self.failed),
            acks=tuple(self._acks),
            usage={p: usage_of(r) for p, r in self.runtimes.items()},
            outputs=tuple(self._outputs),
            problems=tuple(self._problems),
            memory=self._budget.memory,
            disk=self._budget.disk,
            spilled=self._budget.spilled,
            state_memory=self._memory.memory,
            state_disk=self._memory.disk,
            busy_s=busy_s,
            staged=sum(len(r.staged or ()) for r in self.runtimes.values() if isinstance(r, OperatorRuntime)),
            not_kept=tuple(sorted(self._not_kept)),
            counters=counters,
            kept_since=kept_since(self.runtimes.values()),
            since=lacking(self.runtimes.values(), command.covered) if self._alone else {},
            states_here=self._copies.read_here,
            states_there=self._copies.read_there,
            header_bytes=self.sender.header_bytes,
            message_bytes=self.sender.message_bytes,
            standby_bytes=self.sender.standby_bytes,
            files_stored=self._writer.cost.files,
            pause_s=round(self._writer.cost.pause_s, 6),
            store_s=round(self._writer.cost.store_s, 6),
            stepped=stepped(self.runtimes.values(), command.sealed),
            unfed=tuple(sorted(unfed(self.runtimes.values(), command))),
            dropped=dropped(self.runtimes.values(), command),
            oldest=reach,
        )

    def worked(self, seconds: float) -> None:
        """A piece of work between two requests is over."""
        self._busy_s += seconds
        self.busy.clear()

    def close(self, wait: bool = True) -> None:
        """Drop everything.  `wait`: for checkpoints that are being written; else what is queued is not written any more."""
        for runtime in self.runtimes.values():
            self._close(runtime)
        self.runtimes.clear()
        if self.command is not None:
            self._restorer.close()
            self._writer.close(wait)

    # -- hosting -------------------------------------------------------------------------------------------------------

    def _current(self) -> Command:
        if self.command is None:
            raise DataPlaneError("no job has begun on this host")
        return self.command

    def _load(self, command: Command) -> None:
        self.close(wait=False)  # what an earlier driver has asked for completes no checkpoint
        self.installed.clear()
        self.failed.clear()
        self._attempts.clear()
        self._stored.clear()
        self._reported, self._acks, self._outputs, self._problems = 0, [], [], []
        self._reported_problems = 0
        self._text, self._survey = "", Survey()
        self._resource: StreamTopology = from_json(command.topology)
        self._topology: Topology = expand(self._resource)
        self._lanes = Lanes(weights_of(self._topology))
        self._copies.allow(self._resource.checkpoint.local_copies_bytes)
        store = CheckpointStore(command.checkpoints, self._resource.checkpoint.standby, self._copies)
        self._memory = StateMemory(self.folder / "states", self._resource.checkpoint, self._platform.elapsed)
        self._writer = SnapshotWriter(store, self.name, self._platform, self._memory.store)
        self._restorer = Restorer(platform=self._platform)
        policy, self._alone = self._resource.recovery, self._resource.checkpoint.uncoordinated
        self.folder.mkdir(parents=True, exist_ok=True)
        self._budget = Budget(
            policy.buffer_memory_bytes, policy.buffer_disk_bytes, self.folder, write=self._platform.write
        )
        self._text, self.grace_s = command.topology, policy.driver_grace_s

    def _host_exactly(self, command: Command) -> None:
        self._attempts |= {p: Attempt(i) for p, i in adopt(self.installed, self.runtimes, command).items()}
        for partition in [p for p in self.installed if command.hosted.get(p) != self.installed[p]]:
            self._drop(partition)
        self._acks = [a for a in self._acks if a.installation == self.installed.get(a.partition)]
        for partition, installation in command.hosted.items():
            install = command.installs.get(partition)
            if self.installed.get(partition) == installation or install is None or install.promotes:
                continue  # a standby that is not here cannot be promoted
            self.installed[partition] = installation
            self.failed.pop(partition, None)
            self._attempts[partition] = Attempt(install)
        self._join(command)

    def _join(self, command: Command) -> None:
        """Install the partitions for which everything is there, as far as there is time."""
        until = self._platform.elapsed() + JOIN_S
        for partition, attempt in sorted(self._attempts.items(), key=lambda one: one[1].rank):
            if attempt.due <= self.clock():
                self._try(partition, attempt, command)
            if self._platform.elapsed() > until:
                return

    def _try(self, partition: str, attempt: Attempt, command: Command) -> None:
        """Install a partition; for as long as what it needs is not there it stays `being installed`, which is no failure."""
        spec, install = self._topology.partitions[partition], attempt.install
        installation = self.installed[partition]
        spilled = self._memory.store
        standby = self.runtimes.get(partition)
        copied = standby.copy.names if isinstance(standby, PassiveStandby) else frozenset()
        prepare = Preparing(
            spec,
            installation,
            install,
            self._resource,
            command,
            self._copies,
            self._platform,
            spilled,
            copied,
        )
        prepared: Prepared | None = Prepared()
        try:
            if prepare.waits:
                prepared = self._restorer.ask(
                    partition, installation, size_of(install.file), prepare, install.value, install.shadow
                )
            if prepared is None:
                return
            self.busy.begin(Activity.INSTALL, partition, install.position)
            runtime = prepare.installed(prepared, self._topology, self._budget, standby)
        except (StoreError, SinkError, SourceError, NotYetError) as error:
            self._attempts[partition] = attempt.later(self.clock())
            self._problems.append(
                f"{partition}: cannot be installed from checkpoint {install.position} yet: {error}"
            )
        except CheckpointError as error:
            self._fail(partition, FailureKind.CHECKPOINT, str(error), error.file)
        except FencedError as error:
            self._end(partition, error)
        except (Exception, PanicException) as error:  # user code in initial() or restore()
            self._fail(partition, *what_failed(partition, install, error))
        else:
            del self._attempts[partition]
            self.runtimes[partition], runtime.cpu_clock = runtime, self._platform.cpu
            self._memory.applied(partition, self.runtimes)
            skip(runtime, command)
            for target in runtime.buffers.keys() & command.positions.keys():
                if not runtime.rewind(target, command.positions[target]) and not install.shadow:
                    self._not_kept.add(target)
            if self.begun:  # in the middle of a job
                self._bring_in_line(runtime, command)

    def _drop(self, partition: str) -> None:
        self.installed.pop(partition, None)
        self.failed.pop(partition, None)
        self._forget(partition)

    def _forget(self, partition: str) -> None:
        self._attempts.pop(partition, None)
        self._stored.pop(partition, None)
        self._restorer.forget(partition)
        if (runtime := self.runtimes.pop(partition, None)) is not None:
            self._close(runtime)

    def _close(self, runtime: Runtime) -> None:
        try:
            runtime.close()
        except Exception as error:  # of a connection that is not used again
            self._problems.append(f"{runtime.partition.id}: closing: {type(error).__name__}: {error}")

    def _end(self, partition: str, error: DataPlaneError) -> None:
        """Trouble that does not pass: code raised, a later installation writes, or output is lost that was kept here; only
        poison is not restored elsewhere."""
        self._fail(partition, kind_of(error), str(error))

    def _its_own(self, partition: str, batch: int) -> _ItsOwn:
        """Whatever one partition raises ends that partition: a job that failed by it would be sent again for ever, and
        nobody on any node would move.  Only memory may be there again the next time."""
        return _ItsOwn(self, partition, batch)

    def _raised(self, partition: str, batch: int, error: BaseException) -> bool:
        """End the partition that has raised; whether what it raised is over with that."""
        if isinstance(error, ENDS):
            self._end(partition, error)
        # rows that cannot be routed or encoded, a state not to be frozen
        elif isinstance(error, Exception | PanicException) and not isinstance(error, MemoryError):
            place = self._topology.partitions[partition].place
            self._end(partition, StepError(place.operator, partition, batch, error))
        else:
            return False
        return True

    def _say(self, problem: str) -> None:
        """Report it, once until the driver has heard of it."""
        if problem not in self._problems:
            self._problems.append(problem)

    def _fail(self, partition: str, kind: FailureKind, reason: str, file: str = "") -> None:
        self.failed[partition] = Failure(kind, reason, file)
        self._forget(partition)

    def _refresh(self, command: Command) -> None:
        """Bring sources, cursors and buffers in line with what the driver knows."""
        self._writer.keep(command.punctuations, self.installed)
        self._writer.hold(command.hold)
        self._copies.forget(command.covered.oldest)
        for runtime in list(self.runtimes.values()):
            skip(runtime, command)
            self._bring_in_line(runtime, command)
        positions = with_causes(slowest(command.positions, command.standbys), command.causes)
        make_room = partial(relieve, self.runtimes.values(), positions, absent=True)
        retain = command.retain or self._alone
        self._budget.make_room = None if retain else make_room
        if self._budget.crowded and not retain:
            make_room()

    def _bring_in_line(self, runtime: Runtime, command: Command) -> None:
        partition, silent = runtime.partition.id, command.silent(runtime.partition.id)
        if isinstance(runtime, SourceRuntime):
            readers = [command.positions[t] for t in runtime.buffers.keys() & command.positions.keys()]
            # who lags behind the fastest is sent the rest when it comes there
            reach = max(readers, default=command.horizon) + command.window
            runtime.horizon, runtime.final = min(command.horizon, reach), command.final
            runtime.ranges.update(command.ranges.get(partition, {}))
            runtime.forget(command.covered.least((partition, *runtime.buffers)))
        for target in runtime.buffers:
            position = command.positions.get(target)
            if position is not None and target in command.resend and not runtime.rewind(target, position):
                self._not_kept.update([] if silent else [target])
            keeps = self._keeps and not isinstance(runtime, SourceRuntime)
            if (drop := command.covered.of(target) if keeps else position) is not None:
                runtime.trim(target, drop)
        runtime.told(command)
        follow(runtime, command)
        if isinstance(runtime, OperatorRuntime):
            self._publish(runtime, command.covered.of(partition) if self._alone else command.published)

    def _publish(self, runtime: OperatorRuntime, upto: int) -> None:
        partition = runtime.partition.id
        self.busy.begin(Activity.OUTPUT, partition, upto)
        said = f"{partition}: output waits"  # what was not taken is offered again with the next command
        waits = runtime.waits.passing(Place.PUBLISH, self._say, said)
        with self._its_own(partition, upto), suppress(BufferError), waits:
            runtime.publish(upto)

    # -- stepping ------------------------------------------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """Take in a message for a partition that is here; others are sent it again when they are."""
        runtime = self.runtimes.get(message.target)
        if isinstance(runtime, OperatorRuntime):
            # a partition that reads itself gets that by hand: this was sent to its standby before the standby was promoted
            if message.source != message.target or self._current().silent(message.target):
                runtime.deliver(message)
        elif message.target in self._attempts:
            self._missed.add(message.target)
        elif isinstance(runtime, PassiveStandby):
            self._problems += runtime.take(message)

    def run(self, budget_s: float) -> bool:
        """Rounds over the partitions that keep up, in topological order, and `SHARE_S` for those that catch up where none of
        these can move, until nothing moves or the time is up; says whether any moved."""
        command = self._current()
        ordered = [p for p in self._topology.order if p in self.runtimes]
        now = self._platform.elapsed()
        deadline, any_moved, moved = now + budget_s, False, True
        prompt = self._lanes.divide(ordered, lambda p: self._due_in(self.runtimes[p], now) < -LATE_S)
        while moved and self._platform.elapsed() < deadline:
            rounds = [self._moves(partition, command) for partition in prompt]
            moved = any(rounds) or self._catch_up(command)
            any_moved = any_moved or moved
        return any_moved

    def _catch_up(self, command: Command) -> bool:
        began = now = self._platform.elapsed()
        for partition in self._lanes.catching_up():
            moved = self._moves(partition, command, began + SHARE_S)
            before, now = now, self._platform.elapsed()
            self._lanes.took(partition, now - before, moved)
            if now - began >= SHARE_S:
                break
        return self._lanes.more()

    def _moves(self, partition: str, command: Command, until: float = math.inf) -> bool:
        """Apply some batches and hand them over; says whether there was anything to do."""
        moved = False
        for _ in range(ROUND):
            if partition not in self.runtimes or not self._advance(partition, command):
                break
            moved = True
            if until < math.inf and self._platform.elapsed() >= until:
                break
        return self.sender.hand_over(partition, command) or moved

    def _advance(self, partition: str, command: Command) -> bool:
        runtime = self.runtimes[partition]
        if runtime.owed and not self._freeze(partition):
            return False
        # others may know a later one already, and a checkpoint that is asked for behind this one
        if runtime.position >= command.horizon or self._is_early(runtime):
            return False
        if runtime.induced is not None and not self._has_stored_first(partition, runtime):
            return False
        moved = False
        self.busy.begin(Activity.STEP, partition, runtime.position + 1)
        with self._its_own(partition, runtime.position + 1):
            said = f"{partition}: batch {runtime.position + 1} waits"
            try:  # a batch that waits stays unfinished and is tried again
                with runtime.waits.passing(Place.STEP, self._say, said):
                    moved = runtime.advance(wanted(runtime, command, self._keeps))
            except BufferError:
                if self._keeps:
                    relieve_full(self.runtimes.values(), command, self._budget)
            if moved and isinstance(runtime, SourceRuntime):
                self._problems += [f"{partition}: {notice}" for notice in runtime.source.notices()]
        if not moved or partition not in self.runtimes:
            return False
        self._memory.applied(partition, self.runtimes)
        if asked(runtime, command, self._stored.get(partition, -1)) and not command.silent(partition):
            runtime.owed = True
            self._freeze(partition)
        return True

    def _is_early(self, runtime: Runtime) -> bool:
        """Whether a partition reads a source, and its next batch is not due yet."""
        return isinstance(runtime, SourceRuntime) and self._due_in(runtime, self._platform.elapsed()) > 0

    def _due_in(self, runtime: Runtime, now: float) -> float:
        return self._pacing.due_in(runtime.position + 1, now)

    def due_in(self) -> float:
        """Seconds until a source here can begin another batch that was released."""
        released, now = 0 if self.command is None else self.command.horizon, self._platform.elapsed()
        later = [
            self._due_in(runtime, now)
            for runtime in self.runtimes.values()
            if isinstance(runtime, SourceRuntime) and runtime.position < released
        ]
        return min((seconds for seconds in later if seconds > 0), default=math.inf)

    def _has_stored_first(self, partition: str, runtime: Runtime) -> bool:
        """Whether a partition has stored itself, or need not, before it applies messages of the next batch."""
        with self._its_own(partition, runtime.position + 1):
            runtime.owed = runtime.forced
        return partition in self.runtimes and (not runtime.owed or self._freeze(partition))

    def _freeze(self, partition: str) -> bool:
        """Store the state that is owed, unless the sink still has to show what led to it."""
        runtime = self.runtimes[partition]
        position = runtime.position
        if runtime.settled < position:
            return False
        if self._alone and self._writer.is_full(partition):
            self._say(f"{partition}: state of batch {position} waits for earlier ones")
            return False
        self.busy.begin(Activity.FREEZE, partition, position)
        with self._its_own(partition, position):
            rows, loops, began = list[Row](), dict[str, bytes](), self._platform.elapsed()
            try:
                if self._alone:
                    rows = rows_of(runtime, self._current(), self._resource.checkpoint.log)
                else:
                    loops = runtime.loops()
            except OSError as error:  # a disk that does not answer is asked again with the next command
                self._say(f"{partition}: state of batch {position} waits: {error}")
                return False
            installation = self.installed[partition]
            if self._alone:
                local = frozen(runtime, rows, self._current())
                pause_s = self._platform.elapsed() - began
                self._writer.submit_local(partition, installation, position, local, pause_s)
            else:
                encode = runtime.freeze(loops)
                pause_s = self._platform.elapsed() - began
                self._writer.submit(partition, installation, position, encode, pause_s)
            self._stored[partition] = position
            runtime.owed = False
            self.sender.deltas.look(self.runtimes, self._current())
        return partition in self.runtimes

    def _settle(self, command: Command) -> None:
        """Give sinks that show batches later the time to do so, all in one: what they show is what the job reports."""
        deadline = self._platform.elapsed() + command.budget_s
        for partition, runtime in list(self.runtimes.items()):
            if not isinstance(runtime, OperatorRuntime) or runtime.sink is None:
                continue
            self.busy.begin(Activity.OUTPUT, partition, runtime.position)
            try:
                if trouble := settle(runtime, runtime.sink, max(0.0, deadline - self._platform.elapsed())):
                    self._say(trouble)
            except ENDS as error:
                self._end(partition, error)
            self._outputs += [(partition, batch, at) for batch, at in runtime.sink.shown()]
            if runtime.owed and partition in self.runtimes:
                self._freeze(partition)

"""Installing a partition, from what was got beside the host's thread; where store or sink is away that is tried again on
the living host, later and later.

Trouble of a store says nothing of the partition's code or of the checkpoint, so it must neither set the partition aside
(`poison`) nor give the checkpoint up.  The partition is still being installed then: the host reports its installation and
no position.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.contract import Source, Tables
from reprise.spark_jobs.errors import SinkError
from reprise.spark_jobs.node.arrival import ArrivalRuntime
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.channels import CHANNELS
from reprise.spark_jobs.node.command import Command, Install, Loaded
from reprise.spark_jobs.node.induced import begin
from reprise.spark_jobs.node.logged import LoggedRuntime, logged, read_log
from reprise.spark_jobs.node.partition_log import EventualCheckpoint
from reprise.spark_jobs.node.passive import PassiveStandby
from reprise.spark_jobs.node.restoring import Prepared
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime, SourceRuntime
from reprise.spark_jobs.node.settling import leave_out
from reprise.spark_jobs.node.standbys import KeptOutput, promoted
from reprise.spark_jobs.node.state_tables import INPUTS, MARKERS, SENT, STAGED, first_staged
from reprise.spark_jobs.node.upstream_backup import begin_again
from reprise.spark_jobs.platform import Platform
from reprise.spark_jobs.sinks import Opening, Owner, Sink
from reprise.spark_jobs.sinks.url import file_sink
from reprise.spark_jobs.spill import SpillFullError, SpillStore
from reprise.spark_jobs.state.checkpoints import CheckpointStore, said_by_store
from reprise.spark_jobs.state.local_copies import LocalCopies
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.topology import (
    OperatorSpec,
    Partition,
    StreamTopology,
    Topology,
    is_deterministic,
    make_operator,
    make_sink,
    make_source,
)

log = logging.getLogger("reprise.node")

FIRST_PAUSE_S = 0.5
"""Between the first two attempts; each further pause is twice as long."""
LONGEST_PAUSE_S = 15.0
"""A store that refuses is not asked with each command; and one that is back is noticed within this time."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is to be installed, and when (monotonic seconds) it is tried next."""

    install: Install
    due: float = float("-inf")
    pause_s: float = FIRST_PAUSE_S

    @property
    def rank(self) -> tuple[bool, float]:
        """The less, the earlier it has its turn: standbys last."""
        return self.install.shadow, -self.install.value

    def later(self, now: float) -> Attempt:
        """After an attempt that failed."""
        return Attempt(self.install, now + self.pause_s, min(2 * self.pause_s, LONGEST_PAUSE_S))


def what_failed(partition: str, install: Install, error: BaseException) -> tuple[FailureKind, str]:
    """The kind of failure, and in words, where installing a partition has raised.  User code would raise again with the same
    state.  What a standby has may be to blame itself: then the partition is not set aside, and comes from its checkpoint."""
    said = f"partition {partition}: {type(error).__name__}: {error}"
    if install.promotes is None:
        return FailureKind.POISON, said
    return FailureKind.OTHER, f"its standby could not take its place: {said}"


@dataclass(frozen=True, slots=True)
class Preparing:
    """One installation of a partition.  Who calls it makes what that begins with, and may wait for a store or for brokers: a
    host has it called beside its own thread (`reprise.spark_jobs.node.restoring`), and makes the runtime of it by itself."""

    partition: Partition
    installation: str
    install: Install
    resource: StreamTopology
    command: Command
    copies: LocalCopies
    platform: Platform
    spilled: SpillStore | None = None
    """Where states are put that may be larger than memory."""
    copied: frozenset[str] = frozenset()
    """Names of the tables of the copy that is to be promoted: the sink opens behind what was shown before the oldest output
    that waits there."""

    @property
    def waits(self) -> bool:
        """Whether there is anything to read or to open."""
        return self.partition.is_source or self.install.file is not None or self._shows is not None

    @property
    def _shows(self) -> OperatorSpec | None:
        """The operator, where its output is shown."""
        if self.partition.is_source or self.install.shadow:
            return None
        operator = self.resource.operator(self.partition.place.operator)
        return None if operator.output is None else operator

    def __call__(self) -> Prepared:
        """StoreError, SinkError, SourceError, NotYetError: not now; another CheckpointError: this checkpoint is bad."""
        began = self.platform.elapsed()
        store = CheckpointStore(self.command.checkpoints, self.resource.checkpoint.standby, self.copies)
        log, tables = None, None
        if self.install.sent is not None:
            log = read_log(store, self.install)
        else:
            tables = state_tables(store, self.install, self.spilled)
        seconds = self.platform.elapsed() - began
        return replace(self._opened(log, tables), seconds=seconds, fetched=store.fetched)

    def _opened(self, log: EventualCheckpoint | None, tables: Tables | None) -> Prepared:
        if log is not None:
            return Prepared(sink=None if self._shows is None else self._sink(self._shows), log=log)
        if self.partition.is_source:
            source = make_source(self.resource.source(self.partition.place.operator))
            source.runs_on(self.platform)
            return Prepared(tables, source)
        return Prepared(
            tables, sink=None if self._shows is None else self._sink(self._shows, tables or self.copied)
        )

    def installed(
        self, prepared: Prepared, topology: Topology, budget: Budget, standby: Runtime | None = None
    ) -> Runtime:
        """The runtime of the partition at the position of its snapshot.  Calls `initial` and `restore` of user code, while
        nothing else of the node runs, as nothing says that they may be called beside `step`.  Raises what they raise; what
        was opened is closed then.  `standby`: what is here already, if that is to be promoted."""
        began = self.platform.elapsed()
        try:
            if self.install.promotes is not None:
                if isinstance(standby, PassiveStandby):
                    return self._out_of(standby, prepared, topology, budget)
                assert isinstance(standby, OperatorRuntime)
                promoted(standby, prepared.sink, self.install.position)
                return standby
            if self.install.shadow and self.resource.operator(self.partition.place.operator).passive:
                return PassiveStandby(self.partition, self.installation, budget)
            if prepared.source is None:
                runtime: Runtime = self._operator(prepared, topology, budget)
            else:
                runtime = self._reader(prepared, prepared.source, budget)
            if self.resource.checkpoint.induced:
                begin(runtime, topology, prepared.tables)
            if self.install.file is not None:
                seconds = prepared.seconds + self.platform.elapsed() - began
                slots = 0 if prepared.log is None else prepared.log.found.extent
                runtime.loaded = Loaded(prepared.fetched, seconds, slots)
            return runtime
        except BaseException:
            prepared.close()
            raise

    def _reader(self, prepared: Prepared, source: Source, budget: Budget) -> SourceRuntime:
        reader = SourceRuntime(self.partition, source, self.install.position, budget)
        if prepared.tables is not None:
            reader.restore(prepared.tables)
        if self.install.since is not None:
            reader.forgotten = self.install.since
        return reader

    def _out_of(
        self, standby: PassiveStandby, prepared: Prepared, topology: Topology, budget: Budget
    ) -> OperatorRuntime:
        """The partition at the position of its passive standby, with the output that is kept there."""
        found = Prepared(standby.copy.tables(), sink=prepared.sink)
        runtime = self._operator(found, topology, budget)
        runtime.buffers = standby.buffers
        runtime.owed = runtime.position in self.command.punctuations  # nobody else tells it so
        return runtime

    def _operator(self, prepared: Prepared, topology: Topology, budget: Budget) -> OperatorRuntime:
        partition, position = self.partition, self.install.position
        operator = make_operator(self.resource.operator(partition.place.operator))
        tables, sink = self._counted(prepared.tables), prepared.sink
        if self.install.shadow and self.resource.operator(partition.place.operator).output is not None:
            sink = KeptOutput(position)
        kind = ArrivalRuntime if self.resource.arrival else OperatorRuntime
        runtime = logged(
            partition, operator, self.resource, self.install, budget, sink, self.platform.elapsed
        ) or kind(partition, operator, None, position, budget, sink)
        runtime.paged = self.resource.checkpoint.paged
        was_staged = any(name.startswith(STAGED) for name in tables or {})
        if sink is not None:
            differs = not replayable(partition.id, self.resource, topology)
            if differs or was_staged:
                runtime.staged = {}
                # other code, now replayable, goes on from output that was not shown yet
                runtime.stages_to = None if differs else position
        if prepared.log is not None:
            assert isinstance(runtime, LoggedRuntime)
            runtime.begin(prepared.log)
            return runtime
        if tables is not None:
            with nullcontext() if self.spilled is None else self.spilled.at_hand():
                runtime.restore(tables)
            return runtime
        runtime.state = operator.initial(partition.place)
        runtime.watermark = self.install.watermark
        if self.install.replays_to is not None:
            begin_again(runtime, self.install.replays_to)
        elif position:
            for target in runtime.feedback:
                runtime.buffers[target].put(position, None, b"")
        return runtime

    def _counted(self, tables: Tables | None) -> Tables | None:
        """Without the numbers of messages, and the output that is stored by them, where they begin anew: everybody was even
        at this batch then, so nobody asks for anything before it."""
        if tables is None or self.install.numbered or SENT not in tables:
            return tables
        return {
            name: table for name, table in tables.items() if name not in (SENT, MARKERS, INPUTS, CHANNELS)
        }

    def _sink(self, operator: OperatorSpec, names: Iterable[str] = ()) -> Sink:
        """Opened.  `names`: of the tables of the state that the partition begins with."""
        assert operator.output is not None
        place, install = self.partition.place, self.install
        position = next(k for k in (install.sent, install.replays_to, install.position) if k is not None)
        shown = min(position, first_staged(names, position + 1) - 1)
        if self.install.shown is not None:
            shown = self.install.shown
        sink = make_sink(operator) or file_sink(self.command.sink, place, operator.output.format)
        owner = Owner.of(self.command.stream, self.installation)
        try:
            topology = f"{self.resource.namespace}.{self.resource.name}"
            begins = max(self.command.begins, self.command.later.get(operator.name, 0))
            sink.open(Opening(topology, place, owner, shown, begins, self.platform))
            if (
                self.install.shown is not None
            ):  # nobody makes these, and what was shown of them meanwhile stays
                leave_out(sink, range(shown + 1, position + 1))
        except BaseException as error:
            sink.close()
            if isinstance(error, OSError):
                raise SinkError(str(error)) from error
            raise
        return sink


def state_tables(
    store: CheckpointStore, install: Install, spilled: SpillStore | None = None
) -> Tables | None:
    """The stored state, None where none is needed.  StoreError: not now; another CheckpointError: this checkpoint is bad."""
    if install.file is None:
        return None
    file = StateFile.from_json(install.file)
    with said_by_store(file.path):
        if spilled is None:
            return store.read_state(file)
        try:
            return store.read_state(file, spilled)
        except (
            SpillFullError
        ) as error:  # more memory than was wished for is better than a query that stays away
            log.warning("event=state-read-into-memory file=%s reason=%s", file.path, error)
            return store.read_state(file)


def replayable(output: str, resource: StreamTopology, topology: Topology) -> bool:
    """Whether a replay of this output partition gives the same rows: everything upstream is deterministic, and applied in
    one order."""
    if resource.arrival:
        return False
    needs = {topology.partitions[p].place.operator for p in topology.queries[output].partitions}
    return all(is_deterministic(o) for o in resource.operators if o.name in needs)

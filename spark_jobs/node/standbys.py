"""Standbys on a node: what active ones do differently from the partitions that they stand by for, and what holds of both
kinds: who of them is promoted, and to whom what it needs cannot be sent any more.

An active one is a runtime of its partition like any other: it is sent the same messages and steps the same batches, so its
state is the same after each.  It sends nothing and stores nothing, and what it would show it keeps for as long as the
partition itself is not known to have shown it.  When it is promoted it opens the sink, shows what may be missing, and sends
from then on.  docs/decisions/0038-active-standbys.md.  Passive ones: `reprise.spark_jobs.node.passive`.

Invariants: a partition that `Command.silent` names sends nothing, by hand or by message; and no batch counts as shown that
waits here to be shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from reprise.spark_jobs.errors import NotYetError, SinkError
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.command import Command, Install, Shadow
from reprise.spark_jobs.node.kept import relieve
from reprise.spark_jobs.node.passive import PassiveStandby
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime, SourceRuntime
from reprise.spark_jobs.node.upstream_backup import with_causes
from reprise.spark_jobs.sinks import Sink, said_by_sink

MOST_KEPT = 64 * 2**20
"""Bytes of output that a standby keeps: the partition is lost, and nobody promotes the standby.  It waits then."""


class KeptOutput(Sink):
    """The output of a standby: kept until the partition itself has shown it, with marks of batches that may lack rows."""

    def __init__(self, position: int) -> None:
        self.visible = position
        self.marked: set[int] = set()
        self._kept: dict[int, pa.Table | None] = {}
        self._bytes = 0
        self._waits = False

    def write(self, batch: int, table: pa.Table | None) -> None:
        """Keep a batch.  SinkError: as much as there may be is kept."""
        if self._bytes > MOST_KEPT and batch not in self._kept:
            raise SinkError(f"the standby keeps {self._bytes} bytes of output, and waits to be promoted")
        self._kept[batch] = table
        self._bytes += table.nbytes if table is not None else 0
        if not self._waits:
            self.visible = batch

    def mark(self, batch: int) -> None:
        self.marked.add(batch)

    def forget(self, upto: int) -> None:
        """Batches up to `upto` are shown."""
        self.marked = {batch for batch in self.marked if batch > upto}
        for batch in [b for b in self._kept if b <= upto]:
            table = self._kept.pop(batch)
            self._bytes -= table.nbytes if table is not None else 0

    def hold(self, shown: int) -> None:
        """Count what is kept as not shown from now on: it is to be shown from here.  `shown`: the last batch that was."""
        self.visible, self._waits = shown, True

    def behind(self, batch: int) -> Iterator[tuple[int, pa.Table | None]]:
        """What is kept of later batches, in order."""
        yield from sorted(
            ((b, table) for b, table in self._kept.items() if b > batch), key=lambda one: one[0]
        )

    def shown(self) -> list[tuple[int, float]]:
        return []


class Kept(NamedTuple):
    """A batch that a standby has kept."""

    batch: int
    table: pa.Table | None
    lacking: bool
    """Whether rows of it may be missing, and it is not marked yet."""


class CatchingUp(Sink):
    """The sink of a standby that was promoted, where it could not take at once all that is to be given to it first: a client
    takes no more than its buffer holds, and waits for its brokers before it has marked a batch.  Opened anew it would begin
    with the first of them again, and again."""

    def __init__(self, sink: Sink, kept: Iterable[Kept]) -> None:
        self._sink, self._kept = sink, deque(kept)
        self.marks = sink.marks

    @property
    def visible(self) -> int:
        """What the sink itself shows: batches that wait here come after that."""
        return self._sink.visible

    @visible.setter
    def visible(self, batch: int) -> None:
        self._sink.visible = batch

    @property
    def waits(self) -> int:
        """So many batches it was not given yet."""
        return len(self._kept)

    def catch_up(self) -> None:
        """Give the sink what was kept, in order.  Raises what `mark` and `write` of it raise, for the first that it does not
        take."""
        with said_by_sink():
            while self._kept:
                batch, table, lacking = self._kept[0]
                if lacking:
                    self._sink.mark(batch)
                    self._kept[0] = Kept(batch, table, False)
                self._sink.write(batch, table)
                self._kept.popleft()

    def write(self, batch: int, table: pa.Table | None) -> None:
        self.catch_up()
        self._sink.write(batch, table)

    def mark(self, batch: int) -> None:
        self._sink.mark(batch)

    def settle(self, patience_s: float) -> str | None:
        self._go_on()
        return self._sink.settle(patience_s) or self._go_on()  # what it has shown makes room for what waits

    def _go_on(self) -> str | None:
        """Give it as much as it takes; what is in the way, if that is trouble."""
        try:
            self.catch_up()
        except NotYetError:
            return None
        except SinkError as error:
            return str(error)
        return None

    def shown(self) -> list[tuple[int, float]]:
        return self._sink.shown()

    def close(self) -> None:
        self._sink.close()


def adopt(installed: dict[str, str], runtimes: Mapping[str, Runtime], command: Command) -> dict[str, Install]:
    """Standbys here that a command promotes, which have the partition's installation from now on, and where they go on."""
    found = dict[str, Install]()
    for partition, install in command.installs.items():
        if install.promotes is None or installed.get(partition) != install.promotes:
            continue
        if (runtime := runtimes.get(partition)) is not None:
            if isinstance(runtime, PassiveStandby) and runtime.settled < install.position:
                continue  # it was emptied since the driver heard of it: upstreams send what follows what that knows
            installed[partition] = command.hosted[partition]
            if isinstance(runtime, PassiveStandby):  # it may have come further than the driver knows
                found[partition] = replace(install, position=runtime.settled)
                continue
            if isinstance(kept := getattr(runtime, "sink", None), KeptOutput):
                kept.hold(install.position)
            # nobody else tells it to store itself where it stands
            runtime.owed = runtime.owed or runtime.position in command.punctuations
            found[partition] = install
    return found


def promoted(runtime: OperatorRuntime, sink: Sink | None, shown: int) -> None:
    """Let a standby be its partition.  `sink`: opened, with batches up to `shown` in it.  What it cannot take yet it is
    given before anything else.  Raises what else a sink has for errors; then the standby is no more than it was, and the
    same can be asked again with a sink that is opened anew."""
    if isinstance(kept := runtime.sink, KeptOutput):
        assert sink is not None
        marks = runtime.skipped.marks
        later = CatchingUp(
            sink, (Kept(b, table, b in kept.marked or marks(b)) for b, table in kept.behind(shown))
        )
        with suppress(NotYetError):
            later.catch_up()
        # the partition may have been lost before it could mark what it had shown
        runtime.unmarked = tuple(sorted(runtime.skipped.marked_to(shown)))
        runtime.sink = later if later.waits else sink
    runtime.cpu_s, runtime.input_bytes, runtime.input_rows = (
        0.0,
        0,
        0,
    )  # what is counted is the work of this installation


def follow(runtime: Runtime, command: Command) -> None:
    """Bring a partition in line with what is known of standbys."""
    partition = runtime.partition.id
    if command.silent(partition):
        if isinstance(kept := getattr(runtime, "sink", None), KeptOutput):
            kept.forget(command.standbys[partition].shown)
        return
    let_wait(runtime, command)
    for target, shadow in command.standbys.items():
        buffer = runtime.buffers.get(target)
        if buffer is None or not shadow.lags:
            continue
        if shadow.every or shadow.again or not buffer.standby:
            buffer.standby = runtime.next_of(target, shadow.position)


def let_wait(runtime: Runtime, command: Command) -> None:
    """Let output of an operator whose replay may differ leave only when its passive standby has it, with the state that gave
    it (Hwang et al., section 5.1).  What may have left before there was a standby is in the first delta."""
    if not isinstance(runtime, OperatorRuntime) or runtime.operator.kind.deterministic:
        return
    shadow = command.standbys.get(runtime.partition.id)
    if shadow is None or not shadow.every:
        runtime.leaves_to = None
        return
    if runtime.leaves_to is None:  # of a batch that is not finished some targets may have been sent theirs
        runtime.leaves_to = runtime.position + (runtime.unfinished is not None)
    if shadow.lags:
        runtime.leaves_to = max(runtime.leaves_to, shadow.position)


def unfed(runtimes: Iterable[Runtime], command: Command) -> set[str]:
    """Partitions to whose standbys, as far as the driver knows them, what they need cannot be sent from here any more."""
    found = set[str]()
    for runtime in runtimes:
        if command.silent(runtime.partition.id):
            continue
        for target in runtime.buffers.keys() & command.standbys.keys():
            buffer = runtime.buffers[target]
            here = runtime.forgotten + 1 if isinstance(runtime, SourceRuntime) else buffer.floor
            if command.standbys[target].lags and buffer.standby < here:
                found.add(target)
    return found


def slowest(positions: Mapping[str, int], standbys: Mapping[str, Shadow]) -> Mapping[str, int]:
    """The last batch that each target, and its standby, has applied."""
    if not standbys:
        return positions
    behind = {p: min(positions.get(p, s.position), s.position) for p, s in standbys.items() if s.lags}
    return {**positions, **behind}


def relieve_full(runtimes: Collection[Runtime], command: Command, budget: Budget) -> None:
    """There is no room for a batch: drop what those at work and their standbys have applied, and no backup needs.  Where
    that is nothing, drop what only standbys and backups need, as neither may stop the stream.  The driver is told: standbys
    are unfed, and begin anew; of a partition that would be fed again it is told what is `dropped`."""
    before, absent = budget.memory + budget.disk, not command.retain
    relieve(runtimes, with_causes(slowest(command.positions, command.standbys), command.causes), absent)
    if (command.standbys or command.causes) and budget.memory + budget.disk == before:
        relieve(runtimes, command.positions, bool(command.causes) and absent)

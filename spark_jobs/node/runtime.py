"""One partition at work: its operator, state, position, inbox and output buffers.

The one rule of progress: batch b is applied when every upstream's output for b is here (b - 1 over a
feedback edge), in the order of the upstreams, exactly once.  What was applied is skipped when it comes again.
A batch counts as applied only when its output is in the buffers and, for an output partition, in the sink; until then the
stepped batch waits in `unfinished`, so that a full disk delays a batch and never loses one.  What was done of a batch is
remembered there, so that trying it again repeats nothing: neither the step, nor the sink's write, nor what a target has.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Inbox, Input, Operator, Range, Source, Tables, require_table
from reprise.spark_jobs.errors import EncodeError, LostOutputError, NotYetError, SourceError, StepError
from reprise.spark_jobs.node.buffers import IN_FLIGHT, Budget, EdgeBuffer
from reprise.spark_jobs.node.channels import CHANNELS, put_back
from reprise.spark_jobs.node.command import Command, Loaded
from reprise.spark_jobs.node.induced import INDUCED, Induced
from reprise.spark_jobs.node.skipping import NOTHING, begin_anew
from reprise.spark_jobs.node.state_tables import (
    FEEDBACK,
    MARKS,
    MARKS_ALONE,
    STAGED,
    WATERMARK,
    frozen,
    restored,
    watermark_table,
)
from reprise.spark_jobs.node.waits import Waits
from reprise.spark_jobs.node.wire import Message, decode_table, encode_table
from reprise.spark_jobs.operators.frames import END_OF_TIME, IDLE, later, least
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.sinks import Sink, said_by_sink
from reprise.spark_jobs.state.ledger import has_ended
from reprise.spark_jobs.topology import Partition, route


@dataclass(slots=True)
class Output:
    """What a step gave for one batch, and where it has gone so far."""

    batch: int
    watermark: int | None
    table: pa.Table | None
    handed: bool = False
    """Whether the sink has taken it, or it is staged."""
    emitted: set[str] = field(default_factory=set)
    """Targets whose buffer has it; it may have been sent, applied and dropped there since."""


class Runtime(ABC):
    """What sources and operators have in common."""

    def __init__(self, partition: Partition, position: int, budget: Budget) -> None:
        self.partition, self.position, self.skipped = partition, position, NOTHING
        self.inbox: dict[str, dict[int, Message]] = {u.partition: {} for u in partition.upstream}
        self.unfinished: Output | None = None
        self.owed = False
        """Whether it is to be stored as it is now, and is not yet (its sink, or a disk).  It goes no further until then."""
        self.unmarked: tuple[int, ...] = ()
        """Batches that were given to the sink before it was known that they may lack rows."""
        self.induced: Induced | None = None
        """What communication-induced checkpoints know of it."""
        self.watermark: int | None = None
        self.replays_to, self.loaded, self.waits = 0, Loaded(), Waits()
        """Batches up to here are stepped once more and nothing else: nobody needs what they give."""
        self.leaves_to: int | None = None
        """Output behind this batch waits until the passive standby has it, as a replay may differ; None: it leaves."""
        self.cpu_s, self.cpu_clock, self.input_bytes, self.input_rows = 0.0, time.thread_time, 0, 0
        self.feedback = {t for d in partition.downstream if d.feedback for t in d.targets}
        self.buffers = {
            t: EdgeBuffer(partition.id, t, budget, first, floor=first)
            for d in partition.downstream
            for t in d.targets
            for first in (self.next_of(t, position),)
        }

    def emit(self, output: Output, wanted: Callable[[str], bool]) -> None:
        """Put one batch's output, split by target, into the buffers of the targets that are wanted and have not got it."""

        def lacking(target: str) -> bool:
            return target not in output.emitted and (target in self.feedback or wanted(target))

        header = self.header
        for target, body in self._bodies(output.batch, output.table, lacking):
            self._put(target, output.batch, output.watermark, body, header)
            output.emitted.add(target)
        for target in self.buffers.keys() - output.emitted:  # nobody can be sent this batch from here
            self.buffers[target].lack(output.batch)

    def _bodies(
        self, batch: int, table: pa.Table | None, wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, bytes]]:
        """The encoded rows for each wanted target; those of one table that several get are encoded once."""
        for down in self.partition.downstream:
            targets = [t for t in down.targets if wanted(t)]
            parts: Mapping[int, pa.Table] = {}
            if table is not None and targets:
                try:
                    parts = route(table, down.grouping, down.parallelism, self.partition.place.index)
                except Exception as error:  # no such column, or one that holds what cannot be grouped by
                    raise self._step_error(batch, error) from error
            bodies: dict[int, bytes] = {}
            for target in targets:
                part = parts.get(int(target.rpartition(".")[2]))
                if id(part) not in bodies:
                    bodies[id(part)] = encode_table(part)
                yield target, bodies[id(part)]

    def _step_error(self, batch: int, error: Exception) -> StepError:
        place = self.partition.place
        return StepError(place.operator, place.partition, batch, error)

    @property
    def header(self) -> bytes:
        """What messages that are made now say beside their rows."""
        return b"" if self.induced is None else self.induced.said()

    @property
    def forced(self) -> bool:
        """Whether the state has to be stored before the next batch, which is here, is applied."""
        return False

    def _put(self, target: str, batch: int, watermark: int | None, body: bytes, header: bytes) -> None:
        """Buffer one batch for one target.  A partition that holds nothing older may do so on a full node: else the one
        that lags most could wait for room that others take with what they produced for it.  Over a feedback edge the batch
        before is not older: its reader applies it with this one, of which it may need what is made here.  What waits for the
        standby is not older either: it would wait for itself."""
        try:
            self.buffers[target].put(batch, watermark, body, header=header)
        except BufferError:
            # what waits for the standby makes no room before that has it: nothing that has left may be here, as else its
            # readers make room, and what fills the node may be what a reader that is lost will ask for
            last = batch if self.leaves_to is None else min(batch, self.leaves_to + 1)
            if any(buffer.holds_before(last - (t in self.feedback)) for t, buffer in self.buffers.items()):
                raise
            self.buffers[target].put(batch, watermark, body, force=True, header=header)

    def next_of(self, target: str, position: int) -> int:
        """The first batch that `target` still needs when it is at `position`."""
        return max(1, position) if target in self.feedback else self.skipped.heard(target, position) + 1

    def trim(self, target: str, upto: int) -> None:
        """Drop output for `target` that it cannot ask for again once it has applied (or checkpointed) batch `upto`."""
        self.buffers[target].trim(self.next_of(target, upto) - 1)

    def rewind(self, target: str, position: int) -> bool:
        """Send `target` again what follows batch `position`; False when that is not here any more."""
        return self.buffers[target].rewind(self.next_of(target, position))

    def since(self, target: str) -> int:
        """The least position at which a target could begin again with what is here."""
        floor = self.buffers[target].floor
        return floor if target in self.feedback and floor > 1 else floor - 1

    @property
    def kept_since(self) -> int:
        """The least position at which each of its targets could begin again with what is here."""
        return max(map(self.since, self.buffers), default=0)

    def lacks(self, covered: Positions) -> int:
        """The least position at which each of those targets could begin again that could not begin at what is `covered`."""
        short = (t for t, b in self.buffers.items() if b.floor > self.next_of(t, covered.of(t)))
        return max(map(self.since, short), default=0)

    def pending(self, target: str, applied: int, window: int) -> Iterator[tuple[Message, bytes]]:
        """Messages for `target`, which has applied batch `applied`, for at most `window` batches behind that."""
        upto = applied + window
        return self.buffers[target].pending(
            applied, upto if self.leaves_to is None else min(upto, self.leaves_to)
        )

    def close(self) -> None:
        """Give back the buffers' memory and disk, and connections."""
        for buffer in self.buffers.values():
            buffer.clear()

    @property
    def handed(self) -> int:
        """The last batch that it has given to its sink, or need not give any more."""
        known = max(self.position, self.replays_to)
        return known + 1 if self.unfinished is not None and self.unfinished.handed else known

    @property
    def settled(self) -> int:
        """The last batch that is applied and, for an output partition, visible in its sink."""
        return self.position

    @abstractmethod
    def advance(self, wanted: Callable[[str], bool]) -> bool:
        """Apply the next batch if it can be applied; says whether it was."""

    def told(self, command: Command) -> None:  # noqa: B027 - most apply in one order
        """What a job's orders say of the order in which it applies."""

    def loops(self) -> dict[str, bytes]:
        """The last output over feedback edges by target, encoded: the state of the partition holds it for the next batch.
        OSError where spilled output cannot be read now."""
        return {}

    @abstractmethod
    def freeze(self, loops: Mapping[str, bytes]) -> Callable[[], Parts] | None:
        """The state at `position`, with `loops`, encoded later by what is returned; None when there is nothing to store."""

    @abstractmethod
    def restore(self, tables: Tables) -> None:
        """The inverse of `freeze`, on a runtime made for the checkpoint's position."""


class SourceRuntime(Runtime):
    """A source partition: its batches are ranges that were written ahead; its output can always be read again."""

    def __init__(self, partition: Partition, source: Source, position: int, budget: Budget) -> None:
        super().__init__(partition, position, budget)
        self.source = source
        self.state = source.initial(partition.place)
        self.ranges: dict[int, Range] = {}
        self.marks: dict[int, int | None] = {}
        """Watermarks of the batches since the checkpoint: reading rows again must not find a later state's watermark."""
        self.horizon = 0
        self.final: int | None = None
        self._replayed: tuple[int, dict[str, bytes], int | None] | None = None
        self._began = position
        """The last batch that the state has followed with which it began."""
        self.forgotten = max(0, position - self.partition.late)
        """The last batch that cannot be read again."""

    def _read(self, batch: int) -> tuple[pa.Table | None, int | None]:
        if self.final is not None and batch >= self.final:
            return None, END_OF_TIME
        if has_ended(self.ranges[batch]):
            return None, END_OF_TIME
        place, span = self.partition.place, self.ranges[batch]
        try:
            table = self.source.read(place, batch, span) if span.end > span.start else None
            if batch not in self.marks:
                if batch <= self._began and self.state is not None:  # the state it began with has it
                    return table, None  # only over feedback edges, and nobody asks these for the time
                self.state, self.marks[batch] = self.source.follow(place, self.state, batch, span, table)
            return table, self.marks[batch]
        except (SourceError, NotYetError):
            raise
        except Exception as error:
            raise self._step_error(batch, error) from error

    def forget(self, upto: int) -> None:
        """Nobody goes back behind batch `upto`: ranges up to it, or for feedback edges to the one before, are not asked for
        again."""
        upto -= self.partition.late
        self.forgotten = max(self.forgotten, upto)
        for known in (self.ranges, self.marks):
            for old in [b for b in known if b <= upto]:
                del known[old]

    def rewind(self, target: str, position: int) -> bool:
        super().rewind(target, position)
        return self.next_of(target, position) > self._lacking(target)

    def since(self, target: str) -> int:
        lacking = self._lacking(target)
        return lacking + (target in self.feedback) if lacking else 0

    def _lacking(self, target: str) -> int:
        """The last batch that a target cannot be sent.  Where the watermark of the one with whose state this began was not
        stored its rows alone are known; who reads it by another edge than a feedback edge needs both."""
        if target in self.feedback or self.state is None or self._began in self.marks:
            return self.forgotten
        return max(self.forgotten, self._began)

    @property
    def kept_since(self) -> int:
        return self.forgotten + self.partition.late if self.forgotten else 0

    def lacks(self, covered: Positions) -> int:
        since = self.kept_since
        return since if since > covered.least((self.partition.id, *self.buffers)) else 0

    def _put(self, target: str, batch: int, watermark: int | None, body: bytes, header: bytes) -> None:
        with suppress(BufferError, OSError):  # it can be read again
            self.buffers[target].put(batch, watermark, body, header=header)

    def _readable(self, batch: int) -> bool:
        return batch in self.ranges or (self.final is not None and batch >= self.final)

    def advance(self, wanted: Callable[[str], bool]) -> bool:
        batch = self.position + 1
        if batch > self.horizon or not self._readable(batch):
            return False
        began = self.cpu_clock()
        table, watermark = self._read(batch)
        self.emit(Output(batch, watermark, table), wanted)
        self.position = batch
        if watermark != IDLE:
            self.watermark = watermark
        if table is not None:
            self.input_bytes += table.nbytes
            self.input_rows += table.num_rows
        self.cpu_s += self.cpu_clock() - began
        return True

    def pending(self, target: str, applied: int, window: int) -> Iterator[tuple[Message, bytes]]:
        """Messages that can be sent now, as for any partition; what is not in the buffer any more is read again from
        the source."""
        buffer = self.buffers[target]
        last, again = min(applied + window, self.position), 0
        while buffer.cursor <= last and again < IN_FLIGHT:
            try:
                yield from buffer.pending(applied, applied + window)
            except LostOutputError:  # it is read again
                buffer.forget(buffer.cursor)
            if buffer.cursor > last or buffer.cursor in buffer.entries or not self._readable(buffer.cursor):
                return
            message, body = self._again(target, buffer.cursor)
            again += len(body)
            yield message, body
            buffer.cursor += 1

    def _again(self, target: str, batch: int) -> tuple[Message, bytes]:
        if self._replayed is None or self._replayed[0] != batch:
            table, watermark = self._read(batch)
            self._replayed = (batch, dict(self._bodies(batch, table, lambda _: True)), watermark)
        _, bodies, watermark = self._replayed
        # a source receives nothing: what it says now it could as well have said then
        return Message(self.partition.id, target, batch, watermark, None, self.header), bodies[target]

    def freeze(self, loops: Mapping[str, bytes]) -> Callable[[], Parts] | None:
        return None if self.state is None else self.source.freeze(self.state)

    def restore(self, tables: Tables) -> None:
        own = {name: table for name, table in tables.items() if name not in (MARKS, MARKS_ALONE, INDUCED)}
        for name in tables.keys() & {MARKS, MARKS_ALONE}:
            marks = tables[name]
            self.marks = dict(zip(marks["batch"].to_pylist(), marks["watermark"].to_pylist(), strict=True))
        self.state = None if MARKS_ALONE in tables else self.source.restore(self.partition.place, own)

    def close(self) -> None:
        super().close()
        self.source.close()


class OperatorRuntime(Runtime):
    """A partition of an operator."""

    def __init__(
        self,
        partition: Partition,
        operator: Operator,
        state: Any,
        position: int,
        budget: Budget,
        sink: Sink | None,
    ) -> None:
        super().__init__(partition, position, budget)
        self.operator, self.state, self.sink = operator, state, sink
        self.needs = tuple((u.partition, 1 if u.feedback else 0) for u in partition.upstream)
        self.staged: dict[int, pa.Table | None] | None = None
        """Output not yet shown, where a replay could differ: it becomes visible with the checkpoint that covers it."""
        self.stages_to: int | None = None
        """What is staged up to this batch may differ in a replay, and what is later waits for that alone; None: all may."""
        self._handed = 0
        """The last staged batch that the sink was given; it is kept until the sink shows it."""
        self.paged = False
        """Whether its state is frozen in pages, where its operator offers them."""

    @property
    def settled(self) -> int:
        if self.sink is None or self.staged is not None:
            return self.position
        return min(self.position, self.sink.visible)

    def close(self) -> None:
        super().close()
        if self.sink is not None:
            self.sink.close()

    def trim(self, target: str, upto: int) -> None:
        """The same, but not of a batch whose state may still be stored what that gave over feedback edges: the state holds
        it, also when its readers have applied it by then.  It gets no further meanwhile, so no more than that stays."""
        if target in self.feedback:
            if self.unfinished is not None:
                upto = min(upto, self.position + 1)
            elif self.owed:
                upto = min(upto, self.position)
        super().trim(target, upto)

    def deliver(self, message: Message) -> None:
        """Take in a message; one that was applied before is skipped (Su and Zhou, Algorithm 1, lines 3-4)."""
        delay = next((d for u, d in self.needs if u == message.source), None)
        if delay is None or message.batch + delay <= self.position:
            return
        if self.skipped.refuses(message.source, message.batch):
            return
        self.inbox[message.source].setdefault(message.batch, message)

    def advance(self, wanted: Callable[[str], bool]) -> bool:
        self._mark_late()
        batch = self.position + 1
        if self.unfinished is None and not self._ready(batch):
            return False
        began = self.cpu_clock()
        try:
            if self.unfinished is None:
                self.unfinished = self._step(batch)
            if batch > self.replays_to:
                self._hand_over(self.unfinished)
                self.emit(self.unfinished, wanted)
        finally:
            self.cpu_s += self.cpu_clock() - began
        self.unfinished = None
        self.position = batch
        if batch in self.skipped.anew:
            begin_anew(self)
        return True

    def _ready(self, batch: int) -> bool:
        here, lacks = self.inbox, self.skipped.lacks
        return all(batch <= d or batch - d in here[u] or lacks(u, batch - d) for u, d in self.needs)

    @property
    def forced(self) -> bool:
        batch = self.position + 1
        if self.induced is None or self.unfinished is not None or not self._ready(batch):
            return False
        return self.induced.forced(self.position, [self.inbox[u][batch - d] for u, d in self._heard(batch)])

    def _mark_late(self) -> None:
        """Mark what was given to the sink before it was known that it may lack rows; raises what `Sink.mark` raises."""
        while self.unmarked and self.sink is not None:
            with said_by_sink():
                self.sink.mark(self.unmarked[0])
            self.unmarked = self.unmarked[1:]

    def _hand_over(self, output: Output) -> None:
        """Give a batch to the sink, or stage it, once."""
        if output.handed:
            return
        if self.staged is not None:
            if self.sink is not None and self.skipped.marks(output.batch):
                with said_by_sink():
                    self.sink.mark(output.batch)  # it may be shown when the skip is no longer told
            self.staged[output.batch] = output.table
        else:
            self._write(output.batch, output.table)
        output.handed = True

    def _write(self, batch: int, table: pa.Table | None) -> None:
        """Rows that cannot be encoded never can; all else passes."""
        if self.sink is None:
            return
        try:
            with said_by_sink():
                if self.skipped.marks(batch):
                    self.sink.mark(batch)
                self.sink.write(batch, table)
        except EncodeError as error:
            raise self._step_error(batch, error) from error

    def _step(self, batch: int) -> Output:
        heard = self._heard(batch)
        messages = [self.inbox[u].pop(batch - d) for u, d in heard]
        if self.induced is not None:
            self.induced.received(self.position, messages)
        marks = [m.watermark for m, (_, d) in zip(messages, heard, strict=True) if not d]
        mark = least(marks) if marks else None
        if mark is not None and mark != IDLE:  # it never goes back, as where an input goes on that was idle
            self.watermark = later(self.watermark, mark)
        inputs = tuple(
            Input(m.source.rpartition(".")[0], m.source, m.table) for m in messages if m.table is not None
        )
        self.input_bytes += sum(i.table.nbytes for i in inputs)
        self.input_rows += sum(i.table.num_rows for i in inputs)
        try:
            self.state, table = self._applied(Inbox(batch, self.watermark, inputs))
            require_table(table)
        except Exception as error:
            raise self._step_error(batch, error) from error
        return Output(batch, IDLE if mark == IDLE else self.watermark, table)

    def _applied(self, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        return self.skipped.applied(self.operator, self.state, inbox)

    def _heard(self, batch: int) -> list[tuple[str, int]]:
        return [(u, d) for u, d in self.needs if batch > d and not self.skipped.lacks(u, batch - d)]

    def loops(self) -> dict[str, bytes]:
        entries = {t: self.buffers[t].entries.get(self.position) for t in self.feedback}
        return {
            t: self.buffers[t].body(self.position) for t, e in entries.items() if e is not None and e.size
        }

    def freeze(self, loops: Mapping[str, bytes]) -> Callable[[], Parts] | None:
        """State, watermark and, for a cycle, its loops."""
        state = frozen(self.operator, self.paged, self.state) if self.state is not None else None
        watermark = self.watermark
        staged = dict(self.staged or {})
        if state is None and not loops and watermark is None and not staged:
            return None

        def encode() -> Parts:
            tables = dict(state()) if state is not None else {}
            tables[WATERMARK] = watermark_table(watermark)
            for target, body in loops.items():
                if (rows := decode_table(body)) is not None:
                    tables[FEEDBACK + target] = rows
            for batch, table in staged.items():
                tables[f"{STAGED}{batch}"] = pa.table({}) if table is None else table
            return tables

        return encode

    def publish(self, upto: int) -> None:
        """Show staged output of batches that a complete checkpoint covers, and once it covers all that may differ, the rest:
        from then on nothing is staged.  Raises SinkError."""
        if self.staged is None or self.sink is None:
            return
        in_order = self.stages_to is not None and upto >= self.stages_to
        if in_order:
            upto = self.position
        for batch in sorted(b for b in self.staged if self._handed < b <= upto):
            self._write(batch, self.staged[batch])
            self._handed = batch
        for batch in [b for b in self.staged if b <= min(self._handed, self.sink.visible)]:
            del self.staged[batch]
        if in_order and not self.staged and self.sink.visible >= self.position:
            self.staged = None

    def restore(self, tables: Tables) -> None:
        if self.staged is not None:
            kept = {n: t for n, t in tables.items() if n.startswith(STAGED)}
            self.staged = {int(n.removeprefix(STAGED)): t if t.num_columns else None for n, t in kept.items()}
        self.state = restored(self.operator, self.partition.place, tables)
        self.watermark = tables[WATERMARK]["watermark"][0].as_py()
        if CHANNELS in tables:
            put_back(self.buffers, tables[CHANNELS])
            return
        for target in self.feedback:  # also on a full node: it cannot be made again
            self.buffers[target].put(
                self.position, None, encode_table(tables.get(FEEDBACK + target)), force=True
            )

"""A partition with `batch.order: arrival`: it applies what is here, and does not wait for the batch of a slow input.

The aligned partition (`reprise.spark_jobs.node.runtime`) applies batch b when every input's output for b is here, so one
straggler delays everybody behind it.  Here each input has a frontier of its own, and a message is applied as soon as those
before it of the same input are.  The batch stays the unit of progress: a partition is at batch b when all inputs are
completely applied up to b, and it always sends a message when it comes there.  So positions, horizons, checkpoints and
sinks count batches as ever.

What it sends is numbered without a gap.  A source sends one message a batch, whose number is the batch; an operator may
send several, and the header of each says up to which batch it has applied all its inputs then.  Where that rises, the
message is the marker of that batch.  For a checkpoint behind batch k an input waits at its marker of k until the markers of
all inputs are applied (Siachamis et al., "CheckMate", section III-A, of coordinated checkpoints): what a partition sends up
to its own marker is made of nothing later.  Invariant: when a partition is at a punctuation, its state is of exactly the
batches up to it.  So numbers begin at the batch of the checkpoint, on both ends of each channel, when everything goes
back there, and a checkpoint need not say how far which channel was.

Over a feedback edge what a partition makes in a batch belongs to the next one of its reader.  At a checkpoint behind batch k
that is under way, in one message or more: the sender's state holds its rows, and they come back as the one message k.  Of an
input in a cycle with it a partition takes nothing early, so that what goes round is one batch further each time
(docs/decisions/0061-cycles-in-the-order-of-arrival.md).

With `checkpoint.protocol: uncoordinated` a partition stores itself when its time has come, however uneven its inputs are
then: with the state goes how far each input is, in numbers of messages, and numbers go on from there after a rollback
(docs/decisions/0059-arrival-order-by-own-clocks.md).

During an incident (`Command.ordered`) it applies batch by batch, all inputs of one together, in the order of the inputs.
docs/decisions/0044-arrival-order.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa

from reprise.algorithms.positions import Positions
from reprise.algorithms.recovery_line import Heard
from reprise.spark_jobs.contract import Inbox, Input, Operator, Tables, require_table
from reprise.spark_jobs.errors import LostOutputError, WireError
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.channels import CHANNELS, HEADER
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.runtime import OperatorRuntime, Output
from reprise.spark_jobs.node.state_tables import INPUTS, MARKERS, SENT
from reprise.spark_jobs.node.wire import Message, decode_table, encode_table
from reprise.spark_jobs.operators.frames import IDLE, later, least
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.topology import Partition, Upstream

_COMPLETE = struct.Struct(">q")

Held = Mapping[str, Mapping[int, Message]]
"""Messages that are here and not applied, by upstream and number."""


def complete_of(message: Message) -> int:
    """Up to which batch its sender had applied everything; a source says nothing, as its numbers are batches."""
    if not message.header:
        return message.batch
    try:
        (complete,) = _COMPLETE.unpack(message.header)
    except struct.error as error:
        raise WireError(
            f"message {message.batch} of {message.source}: not the header of an arrival: {error}"
        ) from error
    return int(complete)


@dataclass(slots=True)
class Channel:
    """How far one input is applied."""

    taken: int
    """Number of its last message that is."""
    complete: int
    """The last batch of the partition for which it is, completely; over a feedback edge what its sender made one earlier."""
    watermark: int | None = None
    """Of that message; None also before the first one."""
    markers: dict[int, int] = field(default_factory=dict)
    """Batch -> number of the message with which it was complete, from the last that was when all inputs were."""
    delay: int = 0
    """Batches by which the partition applies later what its sender makes: 1 over a feedback edge."""
    cyclic: bool = False
    """Whether the sender is in a cycle with the partition."""

    @staticmethod
    def at(upstream: Upstream, position: int) -> Channel:
        """One of a partition that begins at a batch at which all inputs are even.  Its sender calls the last message
        `position`; over a feedback edge that one is not applied.  At the beginning there is none before the first batch."""
        delay = int(upstream.feedback)
        taken = max(0, position - delay)
        return Channel(
            taken, max(delay, position), None, {position: taken}, delay=delay, cyclic=upstream.cyclic
        )

    def completes(self, message: Message) -> int:
        """Up to which batch of the partition the channel is complete with a message of it."""
        return complete_of(message) + self.delay

    def marker(self, batch: int) -> int:
        """Number of the last message with which a batch up to this one was complete."""
        return max(number for complete, number in self.markers.items() if complete <= batch)

    def forget(self, batch: int) -> None:
        """All inputs are complete up to here."""
        last = self.marker(batch)
        self.markers = {b: n for b, n in self.markers.items() if n >= last}


class Frontier:
    """How far each input of a partition is applied, and what may be applied next.  All begin at `position`."""

    def __init__(self, inputs: Iterable[Upstream], position: int) -> None:
        self.channels = {u.partition: Channel.at(u, position) for u in inputs}

    @property
    def position(self) -> int:
        """The last batch up to which all inputs are applied."""
        return min(c.complete for c in self.channels.values())

    @property
    def watermark(self) -> int | None:
        """That of all inputs, feedback edges left aside, as `least` has it."""
        return least(c.watermark for c in self.channels.values() if not c.delay)

    def here(self, held: Held, limit: int) -> list[Message]:
        """The next message of each input that has one, but not of those that are complete up to batch `limit`: the marker
        of a checkpoint, or the last batch that is known.  Of an input in a cycle with the partition nothing is taken behind
        the batch that it works on: rows would go round as fast as they can while another input stands still."""
        found, works_on = [], self.position + 1
        for upstream, channel in self.channels.items():
            upto = min(limit, works_on) if channel.cyclic else limit
            if channel.complete < upto and (message := held[upstream].get(channel.taken + 1)) is not None:
                found.append(message)
        return found

    def whole(self, held: Held, batch: int) -> list[Message]:
        """All that is missing of a batch, in the order of the inputs; nothing where an input has not sent it completely."""
        found: list[Message] = []
        for upstream, channel in self.channels.items():
            number, complete = channel.taken, channel.complete
            while complete < batch:
                number += 1
                message = held[upstream].get(number)
                if message is None:
                    return []
                complete = channel.completes(message)
                found.append(message)
        return found

    def take(self, messages: Iterable[Message]) -> int:
        """Note that these are applied; how many of them before the same batch of another input."""
        taken = []
        for message in messages:
            channel = self.channels[message.source]
            channel.taken, complete = message.batch, channel.completes(message)
            if complete > channel.complete:
                channel.complete, channel.markers[complete] = complete, message.batch
            if message.watermark is not None:
                channel.watermark = message.watermark
            taken.append(channel)
        position = self.position
        for channel in self.channels.values():
            channel.forget(position)
        return sum(channel.complete > position for channel in taken)

    def heard(self) -> dict[str, Heard]:
        """How far each input is, for the record of a snapshot."""
        position = self.position
        return {u: Heard(c.marker(position), c.taken) for u, c in self.channels.items()}


class ArrivalRuntime(OperatorRuntime):
    """A partition of an operator that applies messages in the order of their arrival.

    `Message.batch`, `Output.batch` and what buffers count are numbers of messages here; everything else counts batches.
    """

    def __init__(
        self,
        partition: Partition,
        operator: Operator,
        state: Any,
        position: int,
        budget: Budget,
        sink: Sink | None,
    ) -> None:
        self.sent = position
        """Number of the last message that was made."""
        loops = any(down.feedback for down in partition.downstream)
        self.marker = {b: b for b in range(max(0, position - loops), position + 1)}
        """Batch -> number of the message with which it was complete, from the oldest that a target may have applied; with
        feedback edges from the one before `position` at least, behind which their output is stored."""
        self._let_go: dict[str, int] = {}
        super().__init__(partition, operator, state, position, budget, sink)
        self.frontier, self._budget = Frontier(partition.upstream, position), budget
        self.ordered = True
        self.early = 0
        """Messages that were applied before the same batch of another input."""
        self._horizon = position
        self._punctuations: tuple[int, ...] = ()

    def told(self, command: Command) -> None:
        self.ordered, self._horizon = command.ordered, command.horizon
        self._punctuations = command.punctuations

    # -- in ------------------------------------------------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """Take in a message; one that was applied before is skipped."""
        channel = self.frontier.channels.get(message.source)
        if channel is not None and message.batch > channel.taken:
            self.inbox[message.source].setdefault(message.batch, message)

    def advance(self, wanted: Callable[[str], bool]) -> bool:
        """Apply what is here of each input, or in an incident the next batch; says whether anything was."""
        messages = self._next() if self.unfinished is None else []
        if self.unfinished is None and not messages:
            return False
        began = self.cpu_clock()
        try:
            if self.unfinished is None:
                self.unfinished = self._apply(messages)
            if self.unfinished.batch > self.sent:
                self._hand_over(self.unfinished)
                self.emit(self.unfinished, wanted)
        finally:
            self.cpu_s += self.cpu_clock() - began
        self.sent, self.unfinished = self.unfinished.batch, None
        if (complete := self.frontier.position) > self.position:
            self.position = complete
            self.marker[complete] = self.sent
        return True

    def _next(self) -> list[Message]:
        if self.ordered or self._budget.crowded:  # what is sent early is kept until its batch is complete
            return self.frontier.whole(self.inbox, self.position + 1)
        limit = min((k for k in self._punctuations if k > self.position), default=self._horizon)
        return self.frontier.here(self.inbox, min(limit, self._horizon))

    def _apply(self, messages: list[Message]) -> Output:
        """Step once with these messages.  What comes of it is sent if it has rows or completes a batch."""
        batch = self.position + 1
        try:
            self.early += self.frontier.take(messages)
            for message in messages:
                del self.inbox[message.source][message.batch]
            if (mark := self.frontier.watermark) is not None and mark != IDLE:
                self.watermark = later(self.watermark, mark)
            inputs = tuple(_inputs(messages))
            self.input_bytes += sum(i.table.nbytes for i in inputs)
            self.input_rows += sum(i.table.num_rows for i in inputs)
            self.state, table = self._applied(Inbox(batch, self.watermark, inputs))
            require_table(table)
        except Exception as error:
            raise self._step_error(batch, error) from error
        says = self.frontier.position >= batch or (table is not None and table.num_rows > 0)
        watermark = IDLE if mark == IDLE else self.watermark
        return Output(self.sent + 1 if says else self.sent, watermark, table)

    # -- out -----------------------------------------------------------------------------------------------------------

    @property
    def header(self) -> bytes:
        """Up to which batch all inputs are applied, with what is being sent."""
        return _COMPLETE.pack(self.frontier.position)

    def _hand_over(self, output: Output) -> None:
        """Stage rows with those of the batch that is not complete yet."""
        if output.handed or self.staged is None:
            return
        batch = self.position + 1
        parts = [t for t in (self.staged.get(batch), output.table) if t is not None and t.num_rows]
        try:
            self.staged[batch] = pa.concat_tables(parts, promote_options="default") if parts else None
        except MemoryError:  # of this node, and no fault of the rows
            raise
        except pa.ArrowException as error:  # columns of one name and two types
            raise self._step_error(batch, error) from error
        output.handed = True

    def _bodies(
        self, batch: int, table: pa.Table | None, wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, bytes]]:
        return super()._bodies(
            self.position + 1, table, wanted
        )  # the batch is said where rows cannot be routed

    def _put(self, target: str, batch: int, watermark: int | None, body: bytes, header: bytes) -> None:
        """Also on a full node where nothing is held but messages of the batch that is not complete, or over feedback edges
        of the one before: nobody can confirm them before its marker is there."""
        try:
            super()._put(target, batch, watermark, body, header)
        except BufferError:
            if any(b.holds_before(self.next_of(t, self.position)) for t, b in self.buffers.items()):
                raise
            self.buffers[target].put(batch, watermark, body, force=True, header=header)

    def _number(self, position: int) -> int:
        """Number of the message with which a batch is complete; where that is not known any more, one that is not here.
        Of a batch that was not applied yet: as if each that follows had one message."""
        if position > self.position:
            return self.sent + position - self.position
        if (number := self.marker.get(position)) is not None:
            return number
        return min(self.marker.values()) - 1

    def _of_here(self, target: str, position: int) -> int:
        """The last batch of this partition whose output `target` has applied when it is at `position`."""
        return max(0, position - 1) if target in self.feedback else position

    def next_of(self, target: str, position: int) -> int:
        """Number of the first message that `target` still needs, or may, when it is at `position`."""
        return self._number(self._of_here(target, position)) + 1

    def trim(self, target: str, upto: int) -> None:
        """Drop messages for `target` up to the marker of batch `upto`, or over a feedback edge of the batch before."""
        super().trim(target, upto)
        self._let_go[target] = max(self._of_here(target, upto), self._let_go.get(target, 0))
        if len(self._let_go) == len(self.buffers):
            oldest = min(self.position - bool(self.feedback), *self._let_go.values())
            for batch in [b for b in self.marker if b < oldest]:
                del self.marker[batch]

    def pending(self, target: str, applied: int, window: int) -> Iterator[tuple[Message, bytes]]:
        """Messages for `target`, as for any partition: `applied` and `window` are batches.  What may be under way is counted
        behind the marker that it awaits: it confirms nothing before that, however much comes first."""
        last = self._of_here(target, applied + window)
        upto = self.sent if last >= self.position else self._number(last)
        return self.buffers[target].pending(self._number(self._of_here(target, applied + 1)), upto)

    @property
    def kept_since(self) -> int:
        """The least position at which each of its targets could begin again with what is here."""
        batches, numbers = [*self.marker, self.position + 1], list(self.marker.values())
        found = ((t, b.floor, batches[bisect_left(numbers, b.floor - 1)]) for t, b in self.buffers.items())
        first = (batch + (floor > 1) if t in self.feedback else batch for t, floor, batch in found)
        return max(first, default=0)

    def lacks(self, covered: Positions) -> int:
        """Say what is missing as any partition does, in batches."""
        short = any(b.floor > self.next_of(t, covered.of(t)) for t, b in self.buffers.items())
        return self.kept_since if short else 0

    # -- stored --------------------------------------------------------------------------------------------------------

    def loops(self) -> dict[str, bytes]:
        """What was made in the last batch for feedback edges: the rows of all messages behind the marker of the batch
        before, as one message.  LostOutputError: one of them is not here any more."""
        numbers = range(self.marker[self.position - 1] + 1, self.marker[self.position] + 1)
        found: dict[str, bytes] = {}
        for target in sorted(self.feedback):
            buffer = self.buffers[target]
            if missing := [n for n in numbers if n not in buffer.entries]:
                raise LostOutputError(
                    f"output of {self.partition.id} for {target}, message {missing[0]}: it was dropped"
                )
            bodies = [buffer.body(n) for n in numbers if buffer.entries[n].size]
            if bodies:
                found[target] = bodies[0] if len(bodies) == 1 else self._together(bodies)
        return found

    def _together(self, bodies: list[bytes]) -> bytes:
        tables = [table for table in map(decode_table, bodies) if table is not None]
        try:
            return encode_table(pa.concat_tables(tables, promote_options="default"))
        except MemoryError:  # of this node, and no fault of the rows
            raise
        except pa.ArrowException as error:  # columns of one name and two types
            raise self._step_error(self.position, error) from error

    # -- stored by its own clock ---------------------------------------------------------------------------------------

    def numbers(self) -> dict[str, pa.Table]:
        """How far each input is, and its own numbers, as they are now."""
        channels, kinds = self.frontier.channels, (pa.string(), pa.int64(), pa.int64(), pa.int64())
        known = [("", b, n) for b, n in self.marker.items()]
        known += [(u, b, n) for u, c in channels.items() for b, n in c.markers.items()]
        far = [(u, c.taken, c.complete, c.watermark) for u, c in channels.items()]
        return {
            SENT: pa.table({"sent": pa.array([self.sent], pa.int64())}),
            MARKERS: _table(("source", "batch", "number"), kinds, known),
            INPUTS: _table(("source", "taken", "complete", "watermark"), kinds, far),
        }

    def restore(self, tables: Tables) -> None:
        """Go on counting where the snapshot was taken.  One of a partition that applied aligned counts batches, and what its
        messages say beside rows is of another protocol."""
        if SENT in tables:
            self._counts_on(tables)
        elif CHANNELS in tables:
            kept = tables[CHANNELS]
            first = min(kept["batch"].to_pylist(), default=self.position)
            self.marker = {b: b for b in range(min(first - 1, self.position), self.position + 1)}
            tables = {**tables, CHANNELS: kept.select([n for n in kept.column_names if n != HEADER])}
        for target in self.buffers.keys() - self.feedback:
            self.buffers[target].floor = self.buffers[target].cursor = self.sent + 1
        super().restore(tables)

    def _counts_on(self, tables: Tables) -> None:
        self.sent, self.marker = tables[SENT]["sent"][0].as_py(), {}
        channels = self.frontier.channels
        for row in tables[INPUTS].to_pylist():
            channels[row["source"]] = Channel(row["taken"], row["complete"], row["watermark"])
        for row in tables[MARKERS].to_pylist():
            markers = channels[row["source"]].markers if row["source"] else self.marker
            markers[row["batch"]] = row["number"]


def _table(names: Iterable[str], kinds: Iterable[pa.DataType], rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(names, kinds, strict=False)
    return pa.table(
        {name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(columns)}
    )


def _inputs(messages: Iterable[Message]) -> Iterator[Input]:
    """One for each upstream that sent rows."""
    for source, sent in groupby(messages, lambda m: m.source):
        tables = [m.table for m in sent if m.table is not None]
        if tables:
            table = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
            yield Input(source.rpartition(".")[0], source, table)

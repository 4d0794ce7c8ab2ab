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

During an incident (`Command.ordered`) it applies batch by batch, all inputs of one together, in the order of the inputs.
docs/decisions/0044-arrival-order.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.contract import Inbox, Input, Operator, require_table
from reprise.spark_jobs.errors import WireError
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.runtime import OperatorRuntime, Output
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.topology import Partition

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
    """The last batch of it that is, completely."""
    watermark: int | None = None
    """Of that message; None also before the first one."""


class Frontier:
    """How far each input of a partition is applied, and what may be applied next.  All begin at `position`."""

    def __init__(self, inputs: Iterable[str], position: int) -> None:
        self.channels = {u: Channel(position, position) for u in inputs}

    @property
    def position(self) -> int:
        """The last batch up to which all inputs are applied."""
        return min(c.complete for c in self.channels.values())

    @property
    def watermark(self) -> int | None:
        """The least of all inputs; None until each has one."""
        marks = [c.watermark for c in self.channels.values()]
        return None if None in marks else min(m for m in marks if m is not None)

    def here(self, held: Held, limit: int) -> list[Message]:
        """The next message of each input that has one, but not of those that are complete up to batch `limit`: the marker
        of a checkpoint, or the last batch that is known."""
        found = []
        for upstream, channel in self.channels.items():
            if channel.complete < limit and (message := held[upstream].get(channel.taken + 1)) is not None:
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
                complete = complete_of(message)
                found.append(message)
        return found

    def take(self, messages: Iterable[Message]) -> int:
        """Note that these are applied; how many of them before the same batch of another input."""
        taken = []
        for message in messages:
            channel = self.channels[message.source]
            channel.taken, channel.complete = message.batch, complete_of(message)
            if message.watermark is not None:
                channel.watermark = message.watermark
            taken.append(channel)
        position = self.position
        return sum(channel.complete > position for channel in taken)


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
        self.marker = {position: position}
        """Batch -> number of the message with which it was complete, from the oldest at which a target may be."""
        self._let_go: dict[str, int] = {}
        super().__init__(partition, operator, state, position, budget, sink)
        self.frontier, self._budget = Frontier(self.inbox, position), budget
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
            if (watermark := self.frontier.watermark) is not None:
                self.watermark = watermark
            inputs = tuple(_inputs(messages))
            self.input_bytes += sum(i.table.nbytes for i in inputs)
            self.input_rows += sum(i.table.num_rows for i in inputs)
            self.state, table = self._applied(Inbox(batch, self.watermark, inputs))
            require_table(table)
        except Exception as error:
            raise self._step_error(batch, error) from error
        says = self.frontier.position >= batch or (table is not None and table.num_rows > 0)
        return Output(self.sent + 1 if says else self.sent, self.watermark, table)

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
        """Also on a full node where nothing is held but messages of the batch that is not complete: nobody can confirm them
        before its marker is there."""
        try:
            super()._put(target, batch, watermark, body, header)
        except BufferError:
            if any(buffer.holds_before(self.marker[self.position] + 1) for buffer in self.buffers.values()):
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

    def next_of(self, target: str, position: int) -> int:
        """Number of the first message that `target` still needs, or may, when it is at `position`."""
        return self._number(position) + 1

    def trim(self, target: str, upto: int) -> None:
        """Drop messages for `target` up to the marker of batch `upto`."""
        super().trim(target, upto)
        self._let_go[target] = max(upto, self._let_go.get(target, 0))
        if len(self._let_go) == len(self.buffers):
            oldest = min(self.position, *self._let_go.values())
            for batch in [b for b in self.marker if b < oldest]:
                del self.marker[batch]

    def pending(self, target: str, applied: int, window: int) -> Iterator[tuple[Message, bytes]]:
        """Messages for `target`, as for any partition: `applied` and `window` are batches.  What may be under way is counted
        behind the marker that it awaits: it confirms nothing before that, however much comes first."""
        last = applied + window
        upto = self.sent if last >= self.position else self._number(last)
        return self.buffers[target].pending(self._number(applied + 1), upto)

    @property
    def kept_since(self) -> int:
        """The least position at which each of its targets could begin again with what is here."""
        batches, numbers = list(self.marker), list(self.marker.values())
        found = (bisect_left(numbers, buffer.floor - 1) for buffer in self.buffers.values())
        return max((batches[i] if i < len(batches) else self.position + 1 for i in found), default=0)


def _inputs(messages: Iterable[Message]) -> Iterator[Input]:
    """One for each upstream that sent rows."""
    for source, sent in groupby(messages, lambda m: m.source):
        tables = [m.table for m in sent if m.table is not None]
        if tables:
            table = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
            yield Input(source.rpartition(".")[0], source, table)

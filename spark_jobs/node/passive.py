"""Passive standbys on a node: a copy of a partition's state and output, which steps nothing.

The partition sends what has changed every few batches, as a message to the node of its standby (Hwang et al.,
"High-Availability Algorithms for Distributed Stream Processing", section 5.1).  When the standby is promoted, its state is
restored out of memory, and what followed is stepped again.  What a deterministic operator gives leaves at once: what is
stepped again is the same, and its readers skip it.  What an arbitrary one gives waits until the standby is known to have it
(`reprise.spark_jobs.node.standbys.let_wait`).  docs/decisions/0041-passive-standbys.md, docs/decisions/0076.

A sink that shows later what it was given may not have shown the last batch by the end of a stage, and a partition that is
on the node of what it reads steps on at the beginning of each job, so that no stage may ever end with all shown.  Its delta
is made before it steps again.

Invariants: a delta is made of a partition as it is between two batches, and all of whose output up to there is shown, or
staged until a checkpoint covers it and then part of the delta; a standby takes one whole or not at all; and no trouble here
ends the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from polars.exceptions import PanicException

from reprise.spark_jobs.errors import LostOutputError, WireError
from reprise.spark_jobs.node.buffers import Budget, EdgeBuffer
from reprise.spark_jobs.node.busy import Activity, Note
from reprise.spark_jobs.node.command import Command, Order, Shadow
from reprise.spark_jobs.node.deltas import Delta, Entry, Outputs, Seen, StateCopy, describe
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime
from reprise.spark_jobs.node.wire import Message, encode_table
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.topology import Partition


class PassiveStandby(Runtime):
    """The copy of a partition.  Its buffers hold what the partition keeps of its output, and are those of the partition when
    it is promoted."""

    def __init__(self, partition: Partition, installation: str, budget: Budget) -> None:
        super().__init__(partition, 0, budget)
        self._installation, self.copy = installation, StateCopy()

    @property
    def is_empty(self) -> bool:
        """Whether no delta has come yet."""
        return self.copy.position < 0

    @property
    def settled(self) -> int:
        return self.copy.position

    def advance(self, wanted: Callable[[str], bool]) -> bool:
        return False

    def freeze(self, loops: Mapping[str, bytes]) -> Callable[[], Parts] | None:
        return None

    def restore(self, tables: Mapping[str, object]) -> None:
        raise NotImplementedError("a passive standby begins with what its partition sends")

    def take(self, message: Message) -> list[str]:
        """Take in a delta; what is in the way, if something is: then the next one holds what it would have brought."""
        if message.source != self.partition.id:
            return []
        began = self.cpu_clock()
        try:
            delta = Delta.decode(message.table)
            # one for an earlier standby of the partition, or that another one has overtaken
            if delta.installation != self._installation or not self.copy.fits(delta):
                return []
            self._take(delta)
        except (Exception, PanicException) as error:  # or the job would fail, again and again, for everybody
            foreseen = isinstance(error, (WireError, BufferError, OSError))
            said = str(error) if foreseen else f"{type(error).__name__}: {error}"
            return [f"{self.partition.id}: its standby waits for the next delta: {said}"]
        finally:
            self.cpu_s += self.cpu_clock() - began
        self.position = delta.position
        self.input_bytes += sum(map(len, delta.blobs))
        return []

    def _take(self, delta: Delta) -> None:
        found = [(self.buffers[t], outputs) for t, outputs in delta.outputs.items() if t in self.buffers]
        if delta.base is None:
            self.copy = StateCopy()  # whatever fails from here on, what was here is not whole any more
            for buffer, outputs in found:
                buffer.clear()
                buffer.floor = outputs.floor
        try:
            for buffer, outputs in found:
                for batch, watermark, body in outputs.entries:
                    if batch >= buffer.floor:
                        buffer.put(batch, watermark, body)
            self.copy.take(delta)
        except BaseException:
            # else what the partition gives later in place of it would be put beside it, for some targets and not for others
            for buffer, _ in found:
                buffer.forget_behind(self.copy.position)
            raise
        for buffer, outputs in found:
            if delta.base is not None and outputs.floor > delta.base + 1:
                buffer.lack(outputs.floor - 1)  # of what followed the base not all is there


def unready(runtimes: Mapping[str, Runtime]) -> set[str]:
    """Passive standbys to which nothing has come yet: they have no position."""
    return {p for p, r in runtimes.items() if isinstance(r, PassiveStandby) and r.is_empty}


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 20.0
"""Between two deltas of which nothing comes: the pause doubles each time."""


@dataclass(slots=True)
class _Sent:
    """What was sent to one standby: by position, the pages as they were then."""

    installation: str
    by_position: dict[int, Seen] = field(default_factory=dict)
    last: tuple[Order, int | None] = ((0, 0), -1)
    """The job with which something was sent last, and up to where: what was sent before may be lost.  None: it could not be
    made."""
    known: int = -1
    """How far the standby is known to be."""
    tries: int = 0
    """Jobs in which something was sent, or was to be, since it has come there."""
    tried_at: float = 0.0
    """When the last of them was."""
    held_up: bool = False
    """Whether something was to be sent when that was looked at last, and the partition was not at rest."""
    stood: tuple[Order, int] = ((0, 0), -1)
    """The job in which the partition was looked at last, and where it was when that was done first in that job."""
    stands: bool = False
    """Whether it came no further between these moments of two jobs, nor since."""

    def look_at(self, order: Order, position: int) -> None:
        """A partition is there in this job."""
        if order != self.stood[0]:
            self.stands, self.stood = position == self.stood[1], (order, position)
        self.stands = self.stands and position == self.stood[1]

    def waits(self, order: Order, known: int, now: float) -> bool:
        """Whether nothing is sent in this job: what was sent last, or was to be, came to nothing, and the pause after that
        is not over.  The first two have no pause between them, as a delta may be late.  `now`: seconds of a clock that only
        grows."""
        if known != self.known:
            self.known, self.tries = known, 0
        if self.tries < 2 or order == self.last[0] or order[0] != self.last[0][0]:
            return False
        return now < self.tried_at + min(FIRST_PAUSE_S * 2.0 ** (self.tries - 2), LONGEST_PAUSE_S)

    def tried(self, order: Order, position: int | None, now: float) -> None:
        """Something is sent up to a position; None: it could not be made."""
        self.tries += order != self.last[0]
        self.last, self.tried_at = (order, position), now


@dataclass(slots=True)
class DeltaSender:
    """Makes the deltas of the partitions of one node."""

    say: Callable[[str], None]
    busy: Note
    clock: Callable[[], float]
    """Seconds that only grow."""
    _sent: dict[str, _Sent] = field(default_factory=dict)
    _early: dict[str, tuple[str, Message, bytes]] = field(default_factory=dict)
    """What was made of partitions before they stepped on, with the installation of the standby of each."""

    def look(self, runtimes: Mapping[str, Runtime], command: Command) -> None:
        """Make now what was to be made at the end of a stage, and could not be.  To be called before partitions step, and
        where one has stood still until all was shown."""
        held_up = {p: runtimes[p] for p, sent in self._sent.items() if sent.held_up and p in runtimes}
        for _, message, body in self._now(held_up, command) if held_up else ():
            partition = message.source
            self._early[partition] = command.standbys[partition].installation, message, body

    def outgoing(
        self, runtimes: Mapping[str, Runtime], command: Command, full: Collection[int] = ()
    ) -> Iterator[tuple[int, Message, bytes]]:
        """What is to be sent now, with the slot of each.  For slots that are `full` nothing more is made."""
        early, self._early = self._early, {}
        for partition, (installation, message, body) in early.items():
            shadow = command.standbys.get(partition)
            if shadow is not None and shadow.installation == installation and shadow.slot != command.slot:
                yield shadow.slot, message, body
        yield from self._now(runtimes, command, full)

    def _now(
        self, runtimes: Mapping[str, Runtime], command: Command, full: Collection[int] = ()
    ) -> Iterator[tuple[int, Message, bytes]]:
        passive = {p: s for p, s in command.standbys.items() if s.every and s.slot != command.slot}
        for gone in self._sent.keys() - passive.keys():
            del self._sent[gone]
        for partition, shadow in passive.items():
            runtime = runtimes.get(partition)
            if not isinstance(runtime, OperatorRuntime) or shadow.slot in full:
                continue
            sent = self._sent.get(partition)
            if sent is None or sent.installation != shadow.installation:
                sent = self._sent[partition] = _Sent(shadow.installation)
            there = -1 if shadow.again else shadow.position
            sent.look_at(command.order, runtime.position)
            if sent.waits(command.order, there, self.clock()):
                continue
            if sent.last[0] == command.order:
                if shadow.again or sent.last[1] is None:
                    continue  # all of it is on its way, or cannot be made now
                there = max(there, sent.last[1])
            due = _due(runtime, there, shadow.every, command, sent.stands)
            sent.held_up = due and not _is_at_rest(runtime)
            if not due or sent.held_up:
                continue
            self.busy.begin(Activity.FREEZE, partition, runtime.position)
            began = runtime.cpu_clock()
            try:
                body = _made(runtime, shadow, sent)
            except (Exception, PanicException) as error:  # of user code, or a disk: the partition goes on
                self.say(f"{partition}: nothing is sent to its standby: {type(error).__name__}: {error}")
                sent.tried(command.order, None, self.clock())
                continue
            finally:
                runtime.cpu_s += runtime.cpu_clock() - began
            sent.tried(command.order, runtime.position, self.clock())
            yield shadow.slot, Message(partition, partition, runtime.position, None, None), body


def _due(runtime: OperatorRuntime, there: int, every: int, command: Command, stands: bool) -> bool:
    """Whether it is time to send more than what is `there`.  `stands`: the partition came no further in a whole job."""
    position = runtime.position
    if runtime.leaves_to is not None:
        every = min(every, command.window)  # it gets no further ahead of its readers than that
        if stands and position > there:
            return True  # it may stand still for those who wait for what it gave: else the stream could stop here
    if there < 0 or position - there >= every:
        return True
    # a standby that a checkpoint is ahead of is of no use
    return any(there < k <= position for k in (command.published, *command.punctuations))


def _is_at_rest(runtime: OperatorRuntime) -> bool:
    """Whether a partition is between two batches, with all of its output shown, or staged until a checkpoint covers it, and
    in a state from which what it gives next follows."""
    position = runtime.position
    if runtime.unfinished is not None or runtime.settled < position:
        return False
    # else it is fed again: nothing follows from what it is on the way
    return position >= runtime.replays_to


def _made(runtime: OperatorRuntime, shadow: Shadow, sent: _Sent) -> bytes:
    for old in [k for k in sent.by_position if k < shadow.position]:
        del sent.by_position[old]
    seen = None if shadow.again else sent.by_position.get(shadow.position)
    base = None if seen is None else shadow.position
    outputs = {target: _outputs(buffer, base) for target, buffer in runtime.buffers.items()}
    delta = Delta(shadow.installation, base, runtime.position, outputs)
    encode = runtime.freeze({})
    now = describe(delta, encode(), seen) if encode is not None else {}
    body = encode_table(delta.encode())
    sent.by_position[runtime.position] = now
    return body


def _outputs(buffer: EdgeBuffer, base: int | None) -> Outputs:
    """What is kept for a target of the batches behind `base`.  OSError: not now."""
    floor, entries = buffer.floor, list[Entry]()
    for batch in sorted(b for b in buffer.entries if b >= floor and (base is None or b > base)):
        try:
            entries.append(Entry(batch, buffer.entries[batch].watermark, buffer.body(batch)))
        except LostOutputError:  # who asks for it will hear that it is not there
            floor, entries = batch + 1, []
    return Outputs(floor, entries)

"""What the partitions of a node send: to those of the same node by hand, to others as messages for their nodes' slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from reprise.spark_jobs.node.busy import Activity, Note
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.passive import DeltaSender
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime, SourceRuntime
from reprise.spark_jobs.node.waits import Place
from reprise.spark_jobs.node.wire import HeaderKey, Message, decode_table, header_key

FEW = 8
"""Batches.  A target that lacks more catches up, so that others have their turn between these."""
Sent = list[tuple[Message, bytes]]
"""Messages with their encoded rows."""


@dataclass(slots=True)
class Sender:
    """Reads the output buffers of `runtimes`, the partitions of a node."""

    runtimes: Mapping[str, Runtime]
    guard: Callable[[str, int], AbstractContextManager[None]]
    """Ends the partition that raises within, at a batch, and nobody else."""
    say: Callable[[str], None]
    busy: Note
    clock: Callable[[], float]
    """Seconds that only grow."""
    cut: bool = False
    """Whether there may be more to send, or to hand over, than the last call did."""
    _turn: int = 0
    """Who sends first next time, so that nobody waits behind the same ones for ever."""
    header_bytes: int = 0
    """What was ever sent to other nodes beside rows."""
    message_bytes: int = 0
    """Rows that were ever sent to other nodes, encoded; each as often as it was sent."""
    standby_bytes: int = 0
    """What was ever sent to standbys on other nodes, encoded: rows once more to active ones, states and outputs to passive
    ones."""
    confirmed: dict[str, int] = field(default_factory=dict)
    """Targets elsewhere -> the last batch that they have applied, as their nodes have said since the driver last did."""
    deltas: DeltaSender = field(init=False)

    def __post_init__(self) -> None:
        self.deltas = DeltaSender(self.say, self.busy, self.clock)

    def hand_over(self, partition: str, command: Command) -> bool:
        """Messages for partitions of this very node need no shuffle; says whether more are left to be handed over."""
        runtime, self.cut = self.runtimes.get(partition), False
        if runtime is None or command.silent(partition):
            return False
        for target in runtime.buffers:
            if partition not in self.runtimes:
                break
            reader, stands_by = self.runtimes.get(target), command.silent(target)
            here = stands_by or command.routes.get(target) == command.slot
            if isinstance(reader, OperatorRuntime) and here:
                at, window = reader.position, command.window
                if stands_by:
                    found = iter(self._to_standby(runtime, target, at, window))
                else:
                    found = self._pending(runtime, target, at, window, few=True)
                for message, body in found:
                    reader.deliver(
                        Message(
                            message.source,
                            target,
                            message.batch,
                            message.watermark,
                            decode_table(body),
                            message.header,
                        )
                    )
        return self.cut

    def outgoing(
        self,
        command: Command,
        without: Collection[int] = (),
        limit: float = math.inf,
        within_s: float = math.inf,
    ) -> dict[int, Sent]:
        """What can be sent now, by slot; nothing for the slots in `without`, and to each other one no more than reaches
        `limit` bytes of rows.  A message at which that was reached may come once more the next time.

        `within_s`: targets that lack many batches get `FEW` of them, after the others.  The first one does in any case, and
        further ones while no more time has passed.
        """
        by_slot: dict[int, Sent] = {}
        left: dict[int, float] = {}
        headers: set[tuple[int, HeaderKey]] = set()
        self.cut, until, served = False, self.clock() + within_s, False
        for runtime, target, many in self._by_what_they_lack(command):
            slot = command.routes.get(target)
            if slot is None or slot == command.slot or slot in without or left.get(slot, limit) <= 0:
                continue
            if many and served and self.clock() > until:
                self.cut = True
                break
            applied = max(command.positions.get(target, 0), self.confirmed.get(target, 0))
            taken = by_slot.setdefault(slot, [])
            before = len(taken)
            for message, body in self._pending(runtime, target, applied, command.window, within_s < math.inf):
                taken.append((message, body))
                left[slot] = left.get(slot, limit) - len(body)
                self.message_bytes += len(body)
                if message.header and (key := (slot, header_key(message))) not in headers:
                    headers.add(key)
                    left[slot] -= len(message.header)
                    self.header_bytes += len(message.header)
                if left[slot] <= 0:
                    break
            served = served or (many and len(taken) > before)
        for runtime in list(self.runtimes.values()) if command.standbys else ():
            for target, shadow in command.standbys.items():
                active = not shadow.every and shadow.slot not in (command.slot, *without)
                if active and target in runtime.buffers and not command.silent(runtime.partition.id):
                    found = self._to_standby(runtime, target, shadow.position, command.window)
                    self.standby_bytes += sum(len(body) for _, body in found)
                    by_slot.setdefault(shadow.slot, []).extend(found)
        for slot, message, body in self.deltas.outgoing(self.runtimes, command, without):
            self.standby_bytes += len(body)
            by_slot.setdefault(slot, []).append((message, body))
        return {slot: messages for slot, messages in by_slot.items() if messages}

    def _by_what_they_lack(self, command: Command) -> Iterator[tuple[Runtime, str, bool]]:
        """Partitions here with each of their targets, and whether that lacks many batches; those that do come last."""
        found = list(self.runtimes.values())
        self._turn += 1
        first, later = self._turn % max(len(found), 1), []
        for runtime in found[first:] + found[:first]:
            if command.silent(runtime.partition.id):
                continue
            for target, buffer in runtime.buffers.items():
                if runtime.position - buffer.cursor >= FEW:
                    later.append((runtime, target))
                elif runtime.partition.id in self.runtimes:
                    yield runtime, target, False
        first = self._turn % max(len(later), 1)
        for runtime, target in later[first:] + later[:first]:
            if runtime.partition.id in self.runtimes:
                yield runtime, target, True

    def _to_standby(self, runtime: Runtime, target: str, applied: int, window: int) -> Sent:
        """What can be sent now to the standby of a target: from the same buffer, which has a cursor for it, too."""
        buffer = runtime.buffers[target]
        if not buffer.standby or runtime.partition.id not in self.runtimes:
            return []
        buffer.cursor, buffer.standby = buffer.standby, buffer.cursor
        try:
            return list(self._pending(runtime, target, applied, window))
        finally:
            buffer.cursor, buffer.standby = buffer.standby, buffer.cursor

    def _pending(
        self, runtime: Runtime, target: str, applied: int, window: int, few: bool = False
    ) -> Iterator[tuple[Message, bytes]]:
        """What can be sent now; rows that a source must read again may have to wait, or be lost.  `few`: no more than `FEW`
        batches."""
        first = runtime.buffers[target].cursor
        if few:
            window = min(window, max(0, first + FEW - 1 - applied))
        if isinstance(runtime, SourceRuntime):  # what it does not have any more it reads again
            self.busy.begin(Activity.STEP, runtime.partition.id, runtime.buffers[target].cursor)
        with self.guard(runtime.partition.id, runtime.buffers[target].cursor):
            said = f"{runtime.partition.id}: rows for {target} wait"  # for the source, or the disk of spilled output
            with suppress(BufferError), runtime.waits.passing(Place.RESEND, self.say, said):
                yield from runtime.pending(target, applied, window)
        self.cut = self.cut or (few and runtime.buffers[target].cursor - first >= FEW)

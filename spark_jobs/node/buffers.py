"""Output buffers: what a partition keeps of its output, for each target, until nobody can ask for it again.

In an incident (`retain`), entries stay until the next global checkpoint covers them (Su and Zhou, section 4.2), so that a
partition restored later, or lost again, can be fed from its upstreams.  With `recovery.scope: auto` they stay so in normal
running, too, as long as there is memory for it: then a first failure finds them, and nobody who lives goes back.  Else an
entry is dropped as soon as its target is known to have applied it, and a buffer holds what is in flight and no more (M1).
Memory is bounded (R1): past the node's budget, the oldest entries move to files in the node's spill folder.  When that is
full, too, a batch is refused (it waits), and what its target has applied may be dropped: that target cannot be fed
from here any more if it is lost before the next checkpoint, and `rewind` says so.
A spilled file that is gone, or whose bytes are not those that were written, is told (`LostOutputError`): a batch that is not
here is never sent as if it had no rows, nor passed over.  A disk that does not answer is no loss, and is asked again.

The cursor, the next batch to send, never points to a batch that was dropped before it was sent: `pending` would wait for it
for ever.  So whatever drops batches moves the cursor behind them, and a partition that goes back further than one that it
sends to begins behind what that one has applied.

Entries are encoded once, when they are produced: the same bytes go to the wire, to the spill file and to a replay.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reprise.spark_jobs.errors import LostOutputError
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.platform import write_new

IN_FLIGHT = 16 * 2**20
"""Bytes that may be on their way to a target, beyond what it has confirmed: bounds its inbox, which no budget counts."""


CROWDED = 0.75
"""Share of the memory for buffered output from which a node in normal running keeps what is in flight alone."""


@dataclass(slots=True)
class Budget:
    """Bytes of buffered output on one node, in memory and on disk; shared by all buffers of the node."""

    memory_limit: int
    disk_limit: int
    folder: Path
    memory: int = 0
    disk: int = 0
    files: int = 0
    make_room: Callable[[], None] | None = None
    """Drops what is only kept for a failure, before anything moves to disk; it is called once, and set anew when more may be
    dropped."""
    write: Callable[[Path, Iterable[bytes | memoryview]], None] = write_new
    spilled: int = 0
    """All bytes that ever went to disk."""

    @property
    def crowded(self) -> bool:
        """Whether little memory is left, or none was and disk is used."""
        return self.disk > 0 or self.memory > CROWDED * self.memory_limit


@dataclass(slots=True)
class Entry:
    """One batch for one target: `body` is None while the bytes are in `path`; `check`: their CRC-32."""

    watermark: int | None
    body: bytes | None
    size: int
    path: Path | None = None
    check: int = 0
    header: bytes = b""
    """What its message says beside rows: the same bytes for all targets of a batch, in no budget."""


@dataclass(slots=True)
class EdgeBuffer:
    """Output of partition `source` for partition `target`, by batch; `cursor` is the next batch to send."""

    source: str
    target: str
    budget: Budget
    cursor: int = 1
    entries: dict[int, Entry] = field(default_factory=dict)
    inline: set[int] = field(default_factory=set)
    """Batches whose bytes are in memory, so that spilling need not search."""
    floor: int = 1
    """What is before this batch is not here any more, or never was: it can be sent to nobody."""
    standby: int = 0
    """The next batch to send to the target's standby; 0: nobody has asked for one yet."""

    def put(
        self, batch: int, watermark: int | None, body: bytes, force: bool = False, header: bytes = b""
    ) -> None:
        """Append one batch; spills the oldest entries of this buffer while the node is over its budget.

        Raises BufferError, and keeps nothing of the batch, when the node has no room for it, unless `force` is set.
        """
        if batch in self.entries:
            return
        self.entries[batch] = Entry(watermark, body, len(body), header=header)
        if not body:
            return
        self.inline.add(batch)
        self.budget.memory += len(body)
        if self.budget.memory > self.budget.memory_limit:
            try:
                self._spill()
            except (BufferError, OSError):
                if force:
                    return
                self._forget(batch)
                raise

    def _spill(self) -> None:
        if (make_room := self.budget.make_room) is not None:
            self.budget.make_room = None
            make_room()
        for batch in sorted(self.inline):
            entry = self.entries[batch]
            if self.budget.memory <= self.budget.memory_limit or entry.body is None:
                return
            if self.budget.disk + entry.size > self.budget.disk_limit:
                raise BufferError(
                    f"buffers of this node are full: {self.budget.memory} bytes in memory (recovery.bufferMemory), "
                    f"{self.budget.disk} bytes on disk (recovery.bufferDisk)"
                )
            self.budget.files += 1
            path = self.budget.folder / f"{self.budget.files}.spill"
            try:
                self.budget.write(path, [entry.body])
            except OSError:
                path.unlink(missing_ok=True)
                raise
            entry.path, entry.check, entry.body = path, zlib.crc32(entry.body), None
            self.inline.discard(batch)
            self.budget.memory -= entry.size
            self.budget.disk += entry.size
            self.budget.spilled += entry.size

    def pending(self, applied: int, upto: int) -> Iterator[tuple[Message, bytes]]:
        """Entries from the cursor to batch `upto`, in order, while they are there; moves the cursor behind them.

        Stops when `IN_FLIGHT` bytes are under way behind batch `applied`, the last that the target has confirmed.
        """
        flight = sum(
            e.size for b in range(applied + 1, self.cursor) if (e := self.entries.get(b)) is not None
        )
        while self.cursor <= upto and (entry := self.entries.get(self.cursor)) is not None:
            if flight >= IN_FLIGHT:
                return
            flight += entry.size
            body = self.body(self.cursor)
            yield Message(self.source, self.target, self.cursor, entry.watermark, None, entry.header), body
            self.cursor += 1

    def body(self, batch: int) -> bytes:
        """The encoded rows of a batch that is here.  LostOutputError: not any more; OSError: not now."""
        entry = self.entries[batch]
        if entry.path is None:
            return entry.body or b""
        why = ""
        for _ in range(2):
            try:
                found = entry.path.read_bytes()
            except FileNotFoundError:
                why = "is gone"
                continue
            if len(found) == entry.size and zlib.crc32(found) == entry.check:
                return found
            why = "is damaged"
        raise LostOutputError(
            f"output of {self.source} for {self.target}, batch {batch}: the spilled file {entry.path} {why}"
        )

    def forget(self, batch: int) -> None:
        """Give back what a batch took that can be produced again."""
        self._forget(batch)

    def trim(self, upto: int) -> None:
        """Forget batches up to and including `upto`, which are not sent either."""
        self.cursor = max(self.cursor, upto + 1)
        self.lack(upto)
        for batch in [b for b in self.entries if b <= upto]:
            self._forget(batch)

    def lack(self, upto: int) -> None:
        """Batches up to and including `upto` are not here any more, or never were."""
        self.floor = max(self.floor, upto + 1)

    def holds_before(self, batch: int) -> bool:
        """Whether rows of an earlier batch are here."""
        return any(b < batch and entry.size for b, entry in self.entries.items())

    def rewind(self, batch: int) -> bool:
        """Send from `batch` on again; False when it is not here any more."""
        self.cursor = batch
        return batch >= self.floor

    def _forget(self, batch: int) -> None:
        entry = self.entries.pop(batch)
        self.inline.discard(batch)
        if entry.path is not None:
            entry.path.unlink(missing_ok=True)
            self.budget.disk -= entry.size
        else:
            self.budget.memory -= entry.size

    def forget_behind(self, batch: int) -> None:
        """Forget what follows a batch, as if it had not been put here."""
        for later in [b for b in self.entries if b > batch]:
            self._forget(later)

    def clear(self) -> None:
        """Forget everything."""
        if self.entries:
            self.trim(max(self.entries))

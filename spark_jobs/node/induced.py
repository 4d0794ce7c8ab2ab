"""What a partition knows for communication-induced checkpoints, and what its messages say of that.

The protocol is `reprise.algorithms.communication_induced`; here each partition is a process of it.  Its messages of one
batch say the same to all targets; what it says is stored with each of its snapshots and taken in again with that.  Sources
take part: they send, though nobody makes them store themselves.

Nothing depends on it but which snapshots there are.  Where a partition goes back alone, as replays are the same rows, it may
say again what others have heard already of a later snapshot; all that this can do is to force one that nobody needs.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from reprise.algorithms.communication_induced import Header, Process
from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.topology import Topology

if TYPE_CHECKING:
    from reprise.spark_jobs.node.runtime import Runtime

INDUCED = "runtime/induced"
"""The checkpointed table that holds it."""


class Induced:
    """One partition's.  `stored_at`: the position of the snapshot that it was restored from, or took last."""

    def __init__(self, process: Process, targets: Sequence[int], stored_at: int, order: int) -> None:
        """`targets`: its readers among the processes; `order`: tells one list of partitions from another."""
        self._process, self._targets, self._stored_at, self._order = process, list(targets), stored_at, order
        self._forcing = False
        self._asked: tuple[int, list[Header]] | None = None
        """What the messages say that were asked about last, and at which position."""

    def said(self) -> bytes:
        """What a message says that is sent now."""
        return self._process.send(self._targets).encode()

    def forced(self, position: int, messages: Sequence[Message]) -> bool:
        """Whether the state at `position` has to be stored before these are applied; remembered until it is."""
        if self._asked is None or self._asked[0] != position:
            self._asked = position, self._heard(messages)
        self._forcing = position > self._stored_at and self._process.must_checkpoint(self._asked[1])
        return self._forcing

    def received(self, position: int, messages: Sequence[Message]) -> None:
        """These are applied now, at `position`."""
        asked, self._asked = self._asked, None
        same = asked is not None and asked[0] == position
        self._process.receive(asked[1] if asked is not None and same else self._heard(messages))

    def stores(self, position: int) -> bool:
        """The state at `position` is frozen to be stored; says whether messages have forced that."""
        self._process.take_checkpoint()
        self._stored_at, was, self._forcing = position, self._forcing, False
        return was

    def table(self) -> pa.Table:
        """What the snapshot that was just taken holds of it."""
        return pa.table({"order": [self._order], "knowledge": [self._process.knowledge().encode()]})

    def _heard(self, messages: Sequence[Message]) -> list[Header]:
        processes = len(self._process.ckpt)
        return [Header.decode(m.header, processes) for m in messages if m.header]


def begin(runtime: Runtime, topology: Topology, tables: Tables | None) -> None:
    """Have a partition that was just made, or restored from `tables`, take part.  What another list of partitions has left,
    or another protocol, says nothing of these: who goes on from there goes on with all the others."""
    order, partition = _order(topology), runtime.partition.id
    index = {p: i for i, p in enumerate(topology.order)}
    process = Process(index[partition], len(index))
    stored = None if tables is None else tables.get(INDUCED)
    if stored is not None and stored["order"][0].as_py() == order:
        process = Process.restored(
            index[partition], Header.decode(stored["knowledge"][0].as_py(), len(index))
        )
    else:
        for buffer in runtime.buffers.values():
            for entry in buffer.entries.values():
                entry.header = b""
    runtime.induced = Induced(process, [index[t] for t in runtime.buffers], runtime.position, order)


def _order(topology: Topology) -> int:
    return zlib.crc32("\n".join(topology.order).encode())

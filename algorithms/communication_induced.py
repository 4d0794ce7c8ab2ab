"""Communication-induced checkpoints: which snapshots messages force a process to take, so that each has its place in a line.

Processes that store themselves by their own clocks can make a snapshot useless: whatever is chosen with it, some message
is received before one snapshot of the choice and sent after another one (a Z-cycle; Netzer and Xu).  In a cycle that may
happen to one snapshot after the other, the domino effect.  Here each message carries what its sender knows of all processes,
and a receiver that finds a Z-cycle about to be closed takes a snapshot before it takes the message in.

Source: J.-M. Helary, A. Mostefaoui, R. H. B. Netzer, M. Raynal, "Communication-based prevention of useless checkpoints in
distributed computations" (HMNR), as G. Siachamis et al., "CheckMate: Evaluating Checkpointing Protocols for Streaming
Dataflows", section III-C, use it.  Names are HMNR's: `lc` is the logical clock, `ckpt[k]` how many snapshots of process k
are known, `sent_to[k]` whether something was sent to k since the last snapshot here, `taken[k]` whether a causal path from
the last known snapshot of k to here has a snapshot on it, `greater[k]` whether the clock here is greater than that of k was.

It departs in one thing: several messages may come as one, as a batch is applied whole.  Then both conditions are asked of
each message against the state before all of them, and the snapshot is taken before all of them.  Taking messages in
one by one could only raise `lc` and so force no more than that; after a snapshot neither condition holds for any of them.

Invariant: the state right after a snapshot is what a message sent then would carry (`sent_to` is empty), so that is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
Counts = NDArray[np.int64]

_INTEGER = np.dtype("<i8")


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """What a message carries of its sender.  Vectors have one entry for each process, all in one order; nobody writes to
    them."""

    lc: int
    ckpt: Counts
    taken: Bits
    greater: Bits

    def encode(self) -> bytes:
        """`size_of` bytes: `lc` and `ckpt` as little-endian 64-bit integers, then a bit for each entry of the others."""
        numbers = np.concatenate(([self.lc], self.ckpt)).astype(_INTEGER)
        return numbers.tobytes() + np.packbits(self.taken).tobytes() + np.packbits(self.greater).tobytes()

    @staticmethod
    def decode(data: bytes, processes: int) -> Header:
        """The inverse of `encode`.  ValueError: it is of another number of processes."""
        if len(data) != size_of(processes):
            raise ValueError(
                f"{len(data)} bytes where the header of {processes} processes has {size_of(processes)}"
            )
        numbers = np.frombuffer(data, _INTEGER, processes + 1)
        bits = np.frombuffer(data, np.uint8, offset=8 * (processes + 1)).reshape(2, -1)
        taken, greater = np.unpackbits(bits, axis=1, count=processes).astype(np.bool_)
        return Header(int(numbers[0]), numbers[1:], taken, greater)


def size_of(processes: int) -> int:
    """Bytes of the header of a message among so many processes."""
    return 8 * (processes + 1) + 2 * ((processes + 7) // 8)


class Process:
    """The state of process `index` among `processes`."""

    __slots__ = ("ckpt", "greater", "index", "lc", "sent_to", "taken")

    def __init__(self, index: int, processes: int) -> None:
        """A process at its start; the initial state is its first snapshot."""
        self.index = index
        self.lc = 0
        self.ckpt: Counts = np.zeros(processes, np.int64)
        self.sent_to: Bits = np.zeros(processes, np.bool_)
        self.taken: Bits = np.ones(processes, np.bool_)
        self.greater: Bits = np.ones(processes, np.bool_)
        self.take_checkpoint()

    @staticmethod
    def restored(index: int, stored: Header) -> Process:
        """The process at a snapshot with which `stored` was stored."""
        process = Process(index, len(stored.ckpt))
        process.lc, process.ckpt = stored.lc, stored.ckpt.copy()
        process.taken, process.greater = stored.taken.copy(), stored.greater.copy()
        return process

    def take_checkpoint(self) -> None:
        """A snapshot is taken now."""
        self.sent_to[:] = False
        self.taken[:] = True
        self.greater[:] = True
        self.taken[self.index] = self.greater[self.index] = False
        self.lc += 1
        self.ckpt[self.index] += 1

    def send(self, targets: Sequence[int]) -> Header:
        """What a message carries that is sent now to each of these processes."""
        self.sent_to[targets] = True
        return self.knowledge()

    def knowledge(self) -> Header:
        """What is known here now."""
        return Header(self.lc, self.ckpt.copy(), self.taken.copy(), self.greater.copy())

    def must_checkpoint(self, messages: Iterable[Header]) -> bool:
        """Whether a snapshot has to be taken before messages are taken in.

        C1: something was sent since the last snapshot to a process whose clock the sender's is greater than, and it is
        greater than the one here.  C2: the message has come from this very interval, by way of a snapshot of somebody.
        """
        return any(self._first_condition(m) or self._second_condition(m) for m in messages)

    def _first_condition(self, message: Header) -> bool:
        return message.lc > self.lc and bool(np.any(self.sent_to & message.greater))

    def _second_condition(self, message: Header) -> bool:
        i = self.index
        return bool(message.ckpt[i] == self.ckpt[i] and message.taken[i])

    def receive(self, messages: Iterable[Header]) -> None:
        """Messages are taken in."""
        i = self.index
        for message in messages:
            if message.lc > self.lc:
                self.lc = message.lc
                self.greater = message.greater.copy()
                self.greater[i] = False
            elif message.lc == self.lc:
                self.greater &= message.greater
            newer, same = message.ckpt > self.ckpt, message.ckpt == self.ckpt
            newer[i] = same[i] = False
            self.taken = np.where(newer, message.taken, self.taken | (same & message.taken))
            self.ckpt = np.where(newer, message.ckpt, self.ckpt)

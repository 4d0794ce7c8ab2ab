"""Punctuations: the batches after which every partition stores its state, and which of those checkpoints are complete.

A punctuation is announced before its batch is released, so nobody can have passed it (Su and Zhou, section 4.1, with
the batch barrier as the carrier).  The final batch of a bounded stream always is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from reprise.spark_jobs.node.command import Ack
from reprise.spark_jobs.state.snapshot import Snapshot, StateFile
from reprise.spark_jobs.topology.resource import CheckpointPolicy

UNDER_WAY = 2
"""Punctuations that are due and open at once: a further one waits until the older are complete, so slow storage cannot pile
up work."""


@dataclass(slots=True)
class Punctuations:
    """Open punctuations with their acknowledgements; `newest` is the newest complete checkpoint."""

    policy: CheckpointPolicy
    newest: int = 0
    wanted: int = 0
    """A checkpoint at this batch or a later one is wanted at once, beside those of the policy; 0: none is."""
    _acks: dict[int, dict[str, Snapshot]] = field(default_factory=dict)
    _last_s: float | None = None

    @property
    def open(self) -> tuple[int, ...]:
        """Announced and not complete."""
        return tuple(sorted(self._acks))

    def back_to(self, checkpoint: int) -> None:
        """After a rollback nothing is announced any more, and what is newer than `checkpoint` is not relied upon: the
        sources must keep what is read again, and the next checkpoint replaces what is stored there."""
        self._acks.clear()
        self.newest = checkpoint

    def forget(self) -> None:
        """Nothing is announced any more."""
        self._acks.clear()

    def give_up(self, upto: int, behind: int = -1) -> None:
        """Punctuations up to batch `upto`, of those behind `behind`, will not be complete: a partition goes on after them
        and does not pass them, or they were announced before it was lost."""
        for position in [k for k in self._acks if behind < k <= upto]:
            del self._acks[position]

    def lost(self, partition: str) -> None:
        """A partition is not where it was: it has to pass the open punctuations again, so what it stored does not count."""
        for acks in self._acks.values():
            acks.pop(partition, None)

    def demand(self, position: int) -> None:
        """Make a batch that has not been released a punctuation, whatever the policy says."""
        self._acks.setdefault(position, {})

    def announce(
        self,
        horizon: int,
        reach: int,
        final: int | None,
        everyone: bool,
        now: float,
        begun: int,
        after: int | None = None,
    ) -> None:
        """Decide which of the batches horizon < b <= reach are punctuations; `everyone`: all partitions are at work;
        `begun`: the last batch that is due; `after`: one behind this batch is wanted at once, and then none until somebody
        wants something else."""
        if reach <= horizon:
            return
        if final is not None and horizon < final <= reach:
            self._acks.setdefault(final, {})
        if not everyone or sum(k <= begun for k in self._acks) >= UNDER_WAY:
            return
        if max((self.newest, *self._acks)) < self.wanted <= horizon + 1:
            self._acks.setdefault(horizon + 1, {})
        if after is not None:
            if max((self.newest, *self._acks)) <= after:
                self._acks.setdefault(horizon + 1, {})
            return
        every = self.policy.every_batches
        if every is not None:
            first = (horizon // every + 1) * every
            for position in range(first, reach + 1, every):
                if position == first or position > begun:
                    self._acks.setdefault(position, {})
            return
        if self._last_s is None:
            self._last_s = now
        if now - self._last_s >= (self.policy.interval_s or 0.0):
            self._acks.setdefault(horizon + 1, {})
            self._last_s = now

    def acknowledge(self, ack: Ack) -> None:
        """A partition has stored its state."""
        if ack.position in self._acks:
            file = None if ack.file is None else StateFile.from_json(ack.file)
            self._acks[ack.position][ack.partition] = Snapshot.round(ack.partition, ack.position, file)

    def acknowledged(self, partitions: Collection[str]) -> Iterator[tuple[int, dict[str, Snapshot]]]:
        """Open checkpoints that every partition has acknowledged, oldest first, with the snapshots that have a file."""
        for position in self.open:
            acks = self._acks.get(position, {})
            if all(p in acks for p in partitions):
                yield position, {p: s for p, s in acks.items() if s.file is not None}

    def complete(self, position: int) -> None:
        """The record of this checkpoint is stored; older open ones are dropped."""
        self.newest = position
        for older in [k for k in self._acks if k <= position]:
            del self._acks[older]

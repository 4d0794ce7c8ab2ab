"""Which footprints of slots a partition writes to its log, and what a recovery finds in it.

While the stream runs, `Footprints` knows after which batch each open slot was stored last.  A slot is stored when it opens
(`open`), and again (`check`), the one that was stored longest ago first, while there is more to read back than is
allowed: more than Q footprints and closings behind the oldest footprint, or more than U rows to be replayed.

A recovery at batch t_c reads the log backwards (`roll_back`): the first record of a slot that is met is its newest.  When as
many open slots are found as `end` of t_c says, all are.  Each has its own batch t_i; T is the least of them.  Batches
T + 1 to t_c are then stepped once more, and each slot skips the rows up to its own t_i.

Invariants (E1 to E4 of the tests): the state after the replay is that of a run without failure; nothing is given by the
replay that is not in the log; T never falls; every open slot has a footprint in the log from T on.

Source: Z. Sebepou, K. Magoutis, "CEC: Continuous Eventual Checkpointing for Data Stream Processing Operators", sections
II-B, III and III-A (the second method).  It departs:

- **Slots that closed have a footprint, too.**  Their recovery leaves them out of the checkpoint, and a replay from T
  then opens them again with rows that were counted already.  Here rows up to the batch in which a slot closed are skipped.
- Time is the number of a batch, which is atomic: no two events have one time.  A slot that opens and closes within a batch
  needs no `open`.
- `t < t_i` for what a window ignores reads `t <= t_i`: the row at t_i is in the footprint.
- Q counts footprints and closings, as both are read back; each slot counts once for each record that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from reprise.spark_jobs.state.window_log import End, Record, RecordKind

Slot = TypeVar("Slot", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Targets:
    """How much a recovery may have to read back and to replay before slots are stored again."""

    extent: int
    """Footprints and closings behind the oldest footprint (Q)."""
    replay: int
    """Rows behind it (U)."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """When a slot was stored last: after which batch, and how much had been written and taken by then."""

    batch: int
    written: int
    rows: int


@dataclass(slots=True)
class Footprints:
    """The footprints of the open slots of one partition, the oldest first."""

    targets: Targets
    written: int = 0
    """Footprints and closings so far."""
    rows: int = 0
    """Rows taken so far."""
    _stored: dict[Hashable, _Stored] = field(default_factory=dict)
    """Of each open slot, in the order in which they were stored."""

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, slot: Hashable) -> bool:
        return slot in self._stored

    def all_stored(self, batch: int, slots: Iterable[Hashable]) -> None:
        """All open slots are stored after `batch`, and what was written before is not needed any more."""
        self.written = 0
        self._stored = dict.fromkeys(slots, _Stored(batch, 0, self.rows))

    def applied(self, rows: int) -> None:
        """A batch of so many rows was taken."""
        self.rows += rows

    def closed(self, slots: Collection[Hashable]) -> None:
        """These slots have closed: each closing is written (case 3 of section III)."""
        for slot in slots:
            self._stored.pop(slot, None)
        self.written += len(slots)

    def stored(self, batch: int, slots: Collection[Hashable]) -> None:
        """These slots are written as they are after `batch`: opened (case 1), or once more."""
        for slot in slots:
            self._stored.pop(slot, None)
            self.written += 1
            self._stored[slot] = _Stored(batch, self.written, self.rows)

    def renumbered(self, name: Callable[[Hashable], Hashable]) -> None:
        """Slots have other names now."""
        self._stored = {name(slot): stored for slot, stored in self._stored.items()}

    def due(self, batch: int, limit: int, before: int = -1) -> list[Hashable]:
        """Slots, at most `limit`, that are to be stored again after `batch`, the oldest footprint first: while what is
        behind it is more than the targets allow (section III-A, second method), or it is no newer than batch `before`."""
        found = list[Hashable]()
        for slot, stored in self._stored.items():
            extent, replay = self.written + len(found) - stored.written, self.rows - stored.rows
            beyond = extent > self.targets.extent or replay > self.targets.replay or stored.batch <= before
            if not beyond or stored.batch >= batch or len(found) >= limit:
                break
            found.append(slot)
        return found

    def oldest(self, batch: int) -> int:
        """T: after this batch the oldest footprint was written; `batch`, the newest, where no slot is open."""
        return next((stored.batch for stored in self._stored.values()), batch)

    @property
    def extent(self) -> int:
        """Footprints and closings that a recovery would read back now (q)."""
        return next((self.written - stored.written for stored in self._stored.values()), 0)

    @property
    def replay(self) -> int:
        """Rows that it would replay (u)."""
        return next((self.rows - stored.rows for stored in self._stored.values()), 0)


@dataclass(frozen=True, slots=True)
class Found:
    """What is read back from a log at batch `at`.  `parts`: the body of a footprint record, the rows of it that count, and
    their batch; `seen`: slot -> the batch up to which its rows are in its footprint, or in what it gave when it closed."""

    at: int
    since: int
    """T: batches behind it are replayed."""
    end: End
    """What batch T left beside slots."""
    parts: Sequence[tuple[bytes, Sequence[int], int]]
    seen: Mapping[Hashable, int]
    extent: int
    """Footprints and closings that were read."""
    newest: End
    """What batch `at` left beside slots."""


def roll_back(
    records: Iterator[Record], names: Callable[[bytes], Sequence[Hashable]], closings: bool = True
) -> Found:
    """The newest footprint of each slot that is open after the newest batch of `records`, which come newest first.

    `names`: the slots that a record's body is of, in order.  `closings`: whether slots that closed are skipped in the
    replay; Sebepou and Magoutis do not say so, and it goes wrong without.  ValueError: the log does not reach back far
    enough.
    """
    last = next(records, None)
    if last is None or last.kind is not RecordKind.END:
        raise ValueError("the log does not end with a batch")
    at, ends = last.batch, {last.batch: End.decode(last.body)}
    missing, extent = ends[at].open_slots, 0
    open_: dict[Hashable, int] = {}
    closed: dict[Hashable, int] = {}
    parts = list[tuple[bytes, Sequence[int], int]]()
    while len(open_) < missing:
        found = next(records, None)
        if found is None:
            raise ValueError(f"the log has {len(open_)} of {missing} open slots of batch {at}")
        if found.kind is RecordKind.END:
            ends.setdefault(found.batch, End.decode(found.body))
        elif found.kind is RecordKind.CLOSED:
            slots = names(found.body)
            extent += len(slots)
            for slot in slots:
                if slot not in open_:  # section II-B: "skip tuples known to have closed"
                    closed.setdefault(slot, found.batch)
        elif found.kind in (RecordKind.OPEN, RecordKind.CHECK):
            slots, rows = names(found.body), list[int]()
            extent += len(slots)
            for row, slot in enumerate(slots):
                if slot not in open_ and slot not in closed:
                    open_[slot] = found.batch
                    rows.append(row)
            if rows:
                parts.append((found.body, rows, found.batch))
    since = min(open_.values(), default=at)
    seen = {**(closed if closings else {}), **open_}
    return Found(at, since, ends[since], parts, seen, extent, ends[at])

"""The log of one partition at work: what each batch adds to it, and the segments that it is stored in.

Each batch adds the slots that opened and closed, and for at most a share of the time those that were stored longest ago
(`reprise.spark_jobs.state.footprints`).  When its clock says so, the partition seals what is not stored yet as a segment,
with the output since the last one.  A snapshot is such a segment and the earlier ones that a recovery from it would read.

Invariants: a snapshot names only segments that are known to be stored, and holds everything else itself; it names none but
the one that was stored before it and those that this one names, so who knows a snapshot knows all earlier files of its log
that a later one may need.  Those that are stored behind it, and that the driver has not heard of yet, are kept by where
they are: a segment lies in the folder of its newest batch, which is not before the oldest slot of any earlier snapshot of
its log, and folders are removed only before the oldest position that is needed (`LocalLines.prune`).  Segments of an
earlier installation are not named, so the first snapshot of each holds all slots.  So does one at a punctuation, one while
an incident is open, and one that would name more than `MOST_SEGMENTS` others.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.arrow_stream import from_stream, to_stream
from reprise.spark_jobs.node.channels import Row, table_of
from reprise.spark_jobs.operators.slotted import Slotted, joined, names_of
from reprise.spark_jobs.platform import PLATFORM
from reprise.spark_jobs.state.footprints import Footprints, Found, Targets, roll_back
from reprise.spark_jobs.state.page_file import OvertakenError
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.state.window_log import (
    End,
    Record,
    RecordKind,
    Segment,
    begin,
    columns_of,
    encode_segment,
)

log = logging.getLogger("reprise.node")

MOST_SEGMENTS = 64
"""Earlier segments that a snapshot may need."""
CROWDED = 3 / 4
"""From this share of those on the slots of the oldest ones are stored again, as far as there is time for it: so the host's
thread seldom has to gather all at once."""
MOST_BYTES = 2**28
"""Of a table in one record: a larger one is cut, as lengths have 32 bits, and so that a reader needs less memory at once."""
AT_ONCE = 256
"""Slots that are stored again between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much time goes into storing slots again: at most `spend_s` (CI) once in `every_s` (CP)."""

    spend_s: float
    every_s: float


@dataclass(frozen=True, slots=True)
class _Pending:
    """What is to be written, encoded when it is; `number` rises."""

    number: int
    kind: RecordKind
    batch: int
    body: pa.Table | End

    def records(self) -> Iterator[Record]:
        if isinstance(self.body, End):
            yield Record(self.kind, self.batch, self.body.encode())
            return
        for table in _cut(self.body):
            yield Record(self.kind, self.batch, bytes(to_stream(table)))


def _cut(table: pa.Table) -> Iterator[pa.Table]:
    """A table in pieces of at most `MOST_BYTES`, or of one row."""
    if table.nbytes <= MOST_BYTES or table.num_rows < 2:
        yield table
        return
    half = table.num_rows // 2
    yield from _cut(table.slice(0, half))
    yield from _cut(table.slice(half))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A segment that is stored."""

    path: str
    size: int
    last: int
    """The newest batch in it."""


@dataclass(slots=True)
class _Chain:
    """The segments since all slots were stored, or are: each follows those that were stored before it."""

    upto: int = 0
    """What has a higher number is not stored yet."""
    need: int = 0
    """The least batch that the last snapshot needs; it never falls."""
    segments: list[_Stored] = field(default_factory=list)
    """Those that are stored, oldest first."""
    sealed: list[int] = field(default_factory=list)
    """The last number of each segment that is to be stored."""

    @property
    def length(self) -> int:
        """How many segments the next snapshot may need."""
        return sum(s.last >= self.need for s in self.segments) + sum(
            number > self.upto for number in self.sealed
        )

    def crowded_by(self) -> int:
        """The last batch of those segments that are beyond `CROWDED`; -1: none is."""
        segments = self.segments  # who stores them may put a shorter list in its place meanwhile
        beyond = len(segments) - int(CROWDED * MOST_SEGMENTS)
        return segments[beyond - 1].last if beyond > 0 else -1


@dataclass(frozen=True, slots=True)
class EncodedSegment:
    """A segment as it is stored."""

    data: bytes
    others: tuple[str, ...]
    """Paths of the earlier segments that a recovery reads with it, oldest first."""
    others_bytes: int
    """Bytes of those."""
    footprints: int
    """How many slots it has the state of, each as often as it was written."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A segment to be stored."""

    log: PartitionLog
    chain: _Chain
    since: int
    """T: a recovery from it replays what follows this batch."""
    batch: int
    """The newest batch in it."""
    need: int
    """The least batch that it needs of earlier segments."""
    channels: Mapping[str, int]
    """Target -> first batch of output for it that is in it, or in the earlier ones."""
    pending: tuple[_Pending, ...]
    """What was not stored when it was sealed."""

    def encode(self) -> EncodedSegment:
        """What is not stored by now.  OvertakenError: a later one is stored, and no more is removed than that one needs."""
        return self.log.encoded(self)

    def is_stored(self, file: StateFile) -> None:
        """Its file is there: later segments need not hold what it has."""
        self.log.is_stored(self, file)


@dataclass(slots=True)
class PartitionLog:
    """The log of one installation of a partition.  Batches are told by the host's thread; another one stores segments.

    Memory that is short costs nothing but time: what takes much of it is made before anything changes, and where noting a
    batch, or sealing, fails in the middle, the next snapshot holds all slots."""

    operator: Slotted
    targets: Targets
    pace: Pace
    clock: Callable[[], float] = PLATFORM.elapsed
    """Monotonic seconds, of the process's platform."""
    footprints: Footprints = field(init=False)
    room: int = field(init=False)
    """Footprints and closings beyond those that are open that may wait to be stored."""
    written: int = 0
    """Footprints that were ever written."""
    checks: int = 0
    """Of those: what was stored again in the background."""
    _writes: bool = False
    """Whether a snapshot with all slots was taken, and what changes since is written."""
    _all_next: bool = True
    """Whether the next snapshot holds all slots."""
    _waiting: int = 0
    """Footprints and closings that are not known to be stored."""
    _chain: _Chain = field(default_factory=_Chain)
    """Since all slots were stored."""
    _stored: int = 0
    """The last number of what is stored, by whichever segment."""
    _sealed: int = 0
    """Output up to this batch was sealed."""
    _sealed_rows: int = 0
    """Rows that had come when it was sealed last."""
    _between: deque[int] = field(default_factory=lambda: deque([0, 0], maxlen=4))
    _since: dict[str, int] = field(default_factory=dict)
    """Target -> first batch from which the log has all output for it."""
    _pending: list[_Pending] = field(default_factory=list)
    _next: int = 0
    _due_s: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.footprints, self.room = Footprints(self.targets), self.targets.extent

    def aim(self, targets: Targets) -> None:
        """Let a recovery have no more to do than this, from the next batch on."""
        self.targets = self.footprints.targets = targets

    @property
    def rows_between(self) -> int:
        """Rows that came between two times that it was sealed, the most of the last ones, or since then."""
        return max(self.footprints.rows - self._sealed_rows, *self._between)

    # -- what batches add ----------------------------------------------------------------------------------------------

    def applied(self, batch: int, rows: int, state: Any, watermark: int | None) -> None:
        """A batch of so many rows has led to this state.  It is told once, so that memory that is short is no error here."""
        if not self._writes:
            return
        try:
            with self._wholly():
                self._note(batch, rows, state, watermark)
        except MemoryError as error:
            log.warning("event=log-begins-anew batch=%d reason=%s: %s", batch, type(error).__name__, error)

    def _note(self, batch: int, rows: int, state: Any, watermark: int | None) -> None:
        changes, footprints = self.operator.changes(state), self.footprints
        footprints.applied(rows)
        if changes.closings is not None:
            footprints.closed(changes.closed)
            self._add(RecordKind.CLOSED, batch, changes.closings)
        if (moved := changes.moved) is not None:
            footprints.renumbered(lambda slot: (slot[0], moved[slot[1]]))  # type: ignore[index]
        self._store(RecordKind.OPEN, batch, state, changes.opened)
        self._store_again(batch, state)
        self._add(RecordKind.END, batch, self._end(len(footprints), state, watermark))
        if self._waiting > self.room + len(footprints):
            self._stop()  # more waits to be stored than may be read back

    @contextmanager
    def _wholly(self) -> Iterator[None]:
        """Around changes of which half would be wrong: the next snapshot holds all slots where one of them fails."""
        try:
            yield
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        """The next snapshot holds all slots, and nothing waits to be stored until then."""
        with self._lock:
            self._writes, self._waiting = False, 0
            self._pending.clear()

    def _store_again(self, batch: int, state: Any) -> None:
        """The background path (section III): for some time, and not with each batch."""
        began = self.clock()
        if began < self._due_s:
            return
        self._due_s = began + self.pace.every_s
        before = self._chain.crowded_by()
        while due := self.footprints.due(batch, AT_ONCE, before):
            self._store(RecordKind.CHECK, batch, state, due)
            self.checks += len(due)
            if self.clock() - began >= self.pace.spend_s:
                return

    def _store(self, kind: RecordKind, batch: int, state: Any, slots: Sequence[Hashable]) -> None:
        if len(slots):
            self._add(kind, batch, self.operator.export(state, slots))
            self.footprints.stored(batch, slots)
            self.written += len(slots)

    def _end(self, slots: int, state: Any, watermark: int | None) -> End:
        return End(slots, watermark, self.operator.rest(state), self.operator.types(state))

    def _add(self, kind: RecordKind, batch: int, body: pa.Table | End) -> None:
        with self._lock:
            self._next += 1
            self._pending.append(_Pending(self._next, kind, batch, body))
            self._waiting += _slots(kind, body)

    # -- what is stored ------------------------------------------------------------------------------------------------

    def sealed_upto(self, whole: bool) -> int:
        """The last batch whose output need not be in the next snapshot.  `whole`: it holds all slots, whether it has to or
        not; that is decided here, and holds for the next `seal`."""
        self._all_next = whole or not self._writes or self._chain.length > MOST_SEGMENTS
        return 0 if self._all_next else self._sealed

    def seal(
        self,
        batch: int,
        state: Any,
        watermark: int | None,
        rows: Sequence[Row],
        asked: Mapping[str, int],
    ) -> Sealed:
        """What is not stored yet after `batch`, with output of batches behind `sealed_upto`, which was asked just before.
        `asked`: target -> the first batch that it may still ask for.  MemoryError: to be called again."""
        operator = self.operator
        slots = operator.open_slots(state) if self._all_next else ()
        footprints = operator.export(state, slots) if len(slots) else None
        output = table_of(rows) if rows else None
        # what is open by the operator, so that a footprint that is missing is seen
        end = self._end(operator.open_count(state), state, watermark)
        with self._wholly():
            if self._all_next:
                self._begin_anew(batch, slots, footprints)
            else:
                with self._lock:
                    self._pending.pop()  # `end` comes last
            if output is not None:
                self._add(RecordKind.OUTPUT, batch, output)
            self._add(RecordKind.END, batch, end)
            self._follow(batch, rows, asked)
            self._between.append(self.footprints.rows - self._sealed_rows)
            self._sealed_rows = self.footprints.rows
            since = self.footprints.oldest(batch)
            with self._lock:
                pending, chain = tuple(self._pending), self._chain
                chain.need = min([since, *self._since.values()])
                chain.sealed.append(pending[-1].number)
            return Sealed(self, chain, since, batch, chain.need, dict(self._since), pending)

    def encoded(self, sealed: Sealed) -> EncodedSegment:
        """See `Sealed.encode`.  One thread stores the segments of a log, one after the other."""
        with self._lock:
            if sealed.pending[-1].number <= self._stored:
                raise OvertakenError(
                    f"a later segment than that of batch {sealed.batch} was stored before it"
                )
            others = [s for s in sealed.chain.segments if s.last >= sealed.need]
            pending = [p for p in sealed.pending if p.number > sealed.chain.upto]
        first = Record(RecordKind.BEGIN, pending[0].batch, begin(self.operator.slot_columns))
        return EncodedSegment(
            encode_segment([first, *chain.from_iterable(p.records() for p in pending)]),
            tuple(other.path for other in others),
            sum(other.size for other in others),
            sum(_slots(p.kind, p.body) for p in pending if p.kind is not RecordKind.CLOSED),
        )

    def is_stored(self, sealed: Sealed, file: StateFile) -> None:
        """A segment is stored, as it was encoded last.  Where this fails nothing of it counts."""
        last, chain = sealed.pending[-1], sealed.chain
        with self._lock:
            waits = [number for number in chain.sealed if number > last.number]
            needed = [s for s in chain.segments if s.last >= sealed.need]
            segments = [*needed, _Stored(file.path, file.size, last.batch)]
            pending = [pending for pending in self._pending if pending.number > last.number]
            waiting = sum(_slots(pending.kind, pending.body) for pending in pending)
            self._stored = chain.upto = last.number
            chain.sealed, chain.segments = waits, segments
            self._pending, self._waiting = pending, waiting

    def _begin_anew(self, batch: int, slots: Sequence[Hashable], footprints: pa.Table | None) -> None:
        self.footprints.all_stored(batch, slots)
        with self._lock:
            self._chain, self._waiting = _Chain(self._next), 0
            self._pending.clear()
        if footprints is not None:
            self._add(RecordKind.CHECK, batch, footprints)
            self.written += len(slots)
        self._writes = True

    def _follow(self, batch: int, rows: Sequence[Row], asked: Mapping[str, int]) -> None:
        """Which output the log has now, without a gap up to `batch`."""
        first: dict[str, int] = {}
        for row in rows:
            first.setdefault(row.target, row.batch)
        goes_on = {} if self._all_next else self._since
        self._since = {
            target: max(asked[target], goes_on.get(target, least) if least == self._sealed + 1 else least)
            for target, least in first.items()
        }
        self._sealed = batch


def _slots(kind: RecordKind, body: pa.Table | End) -> int:
    """Footprints or closings in a record."""
    return 0 if isinstance(body, End) or kind is RecordKind.OUTPUT else body.num_rows


@dataclass(frozen=True, slots=True)
class EventualCheckpoint:
    """What a recovery has read of a log: `found`, with the newest footprint of each open slot as one table (None: no slot is
    open), and the output that is in the log, as `reprise.spark_jobs.node.channels` has it."""

    found: Found
    slots: pa.Table | None
    output: pa.Table


def eventual_checkpoint(segments: Sequence[Segment], at: int) -> EventualCheckpoint:
    """What the segments of one snapshot at batch `at` hold, the newest segment first.  ValueError: they are damaged, or not
    all that it needs.  NewerVersionError: they are of a version that this one does not know."""
    output, columns = list[pa.Table](), None
    for record in chain.from_iterable(segment.backwards(at) for segment in segments):
        if record.kind is RecordKind.BEGIN:
            columns = columns_of(record.body)
        elif record.kind is RecordKind.OUTPUT:
            output.append(from_stream(record.body))
    if columns is None:
        raise ValueError("the log has no beginning")
    named = columns
    found = roll_back(
        chain.from_iterable(segment.backwards(at) for segment in segments),
        lambda body: names_of(from_stream(body), named),
    )
    if found.at != at:
        raise ValueError(f"the log ends with batch {found.at}, not {at}")
    tables = [from_stream(body).take(pa.array(rows)) for body, rows, _ in found.parts]
    return EventualCheckpoint(found, joined(tables) if tables else None, _without_gaps(output, at))


def _without_gaps(tables: Sequence[pa.Table], at: int) -> pa.Table:
    """The output of each target up to batch `at`, without what is before a gap."""
    if not tables:
        return table_of(())
    table = pa.concat_tables(tables).sort_by([("batch", "descending")])
    expected: dict[str, int] = {}
    rows = list[int]()
    named = zip(table["target"].to_pylist(), table["batch"].to_pylist(), strict=True)
    for row, (target, batch) in enumerate(named):
        if batch == expected.get(target, at):
            rows.append(row)
            expected[target] = batch - 1
    return table.take(pa.array(rows[::-1], pa.int64()))

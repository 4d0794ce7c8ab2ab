"""What a partition stores that takes its snapshots by its own clock: its state, and what others may still need of it.

Of an operator that is the output that is not known to be stored by who reads it: with `checkpoint.log: checkpointed` all of
it, with `memory` only the last batch over feedback edges, which its reader asks for even when both are at one position.  Of
a source it is which batches it can read again, and with which watermarks.  Who has nothing of all that stores no file: the
watermark goes into the record of the snapshot.  With communication-induced checkpoints everybody has a file, with what its
messages say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from reprise.algorithms.recovery_line import Heard
from reprise.spark_jobs.node.arrival import ArrivalRuntime
from reprise.spark_jobs.node.channels import CHANNELS, Row, held, table_of
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.induced import INDUCED
from reprise.spark_jobs.node.logged import LoggedRuntime
from reprise.spark_jobs.node.partition_log import Sealed
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime, SourceRuntime
from reprise.spark_jobs.node.state_tables import MARKS, MARKS_ALONE, WATERMARK, watermark_table
from reprise.spark_jobs.pages import Parts


@dataclass(frozen=True, slots=True)
class LocalState:
    """A partition as it is now.  `encode`: makes the tables of its file; None: it has none."""

    encode: Callable[[], Parts] | None
    channels: Mapping[str, int] = field(default_factory=dict)
    """Target -> first batch that can be given to it by who is restored from this."""
    watermark: int | None = None
    forced: bool = False
    """Whether messages have forced it."""
    sealed: Sealed | None = None
    """What is stored of a partition that has a log, instead of tables."""
    made: int | None = None
    """Of one that applies in the order of arrival: the number of its last message."""
    inputs: Mapping[str, Heard] = field(default_factory=dict)
    """Of such a one: how far each input is."""


def asked(runtime: Runtime, command: Command, stored: int) -> bool:
    """Whether a partition that has just come to its position is to store itself; `stored`: where it did so last."""
    at, asked_for = runtime.position, command.snapshot.get(runtime.partition.id)
    if at < runtime.replays_to:
        return False
    if at in command.punctuations:
        return stored < at  # one that applies in the order of arrival goes on at the same position
    return asked_for is not None and stored < asked_for <= at


def rows_of(runtime: Runtime, command: Command, log: str) -> list[Row]:
    """The output that a snapshot taken now holds.  `log`: `memory` or `checkpointed`.

    LostOutputError: output that was spilled is gone.  OSError: it cannot be read now.
    """
    if isinstance(runtime, SourceRuntime):
        return []  # it is read again
    position, rows, sealed = runtime.position, list[Row](), 0
    last = runtime.sent if isinstance(runtime, ArrivalRuntime) else position
    if isinstance(runtime, LoggedRuntime) and runtime.log is not None:
        sealed = runtime.log.sealed_upto(command.retain or position in command.punctuations)
    for target, buffer in runtime.buffers.items():
        if log == "checkpointed":
            needed = runtime.next_of(target, command.covered.of(target))
            rows += held(buffer, max(buffer.floor, needed, sealed + 1), last)
        elif target in runtime.feedback:
            rows += held(buffer, max(1, position), position)
    return rows


def frozen(runtime: Runtime, rows: Sequence[Row], command: Command) -> LocalState:
    """The state of a partition with the output that `rows_of` has found.  Raises what `freeze` of user code raises."""
    if isinstance(runtime, LoggedRuntime) and runtime.log is not None:
        position = runtime.position
        runtime.aims(command.within.get(runtime.partition.id))
        asked_next = {t: runtime.next_of(t, command.covered.of(t)) for t in runtime.buffers}
        sealed = runtime.log.seal(position, runtime.state, runtime.watermark, rows, asked_next)
        return LocalState(None, sealed.channels, sealed=sealed)
    if isinstance(runtime, ArrivalRuntime):
        return _arrived(runtime, rows)
    if runtime.induced is None:
        return _frozen(runtime, rows)
    forced = runtime.induced.stores(runtime.position)
    local, known = _frozen(runtime, rows, always=True), runtime.induced.table()
    encode = local.encode
    assert encode is not None
    return LocalState(lambda: {**encode(), INDUCED: known}, local.channels, forced=forced)


def _arrived(runtime: ArrivalRuntime, rows: Sequence[Row]) -> LocalState:
    """Take the state with how far each input is, and the numbers of messages: who is restored from it goes on counting."""
    local, numbers = _frozen(runtime, rows, always=True), runtime.numbers()
    encode = local.encode
    assert encode is not None
    return LocalState(
        lambda: {**encode(), **numbers}, local.channels, made=runtime.sent, inputs=runtime.frontier.heard()
    )


def _frozen(runtime: Runtime, rows: Sequence[Row], always: bool = False) -> LocalState:
    """`always`: there is to be a file."""
    if isinstance(runtime, SourceRuntime):
        return _source(runtime, always)
    assert isinstance(runtime, OperatorRuntime)
    channels: dict[str, int] = {}
    for row in rows:
        channels.setdefault(row.target, row.batch)
    if runtime.state is None and not runtime.staged and not rows and not runtime.feedback and not always:
        return LocalState(None, channels, runtime.watermark)
    state, watermark = runtime.freeze({}), runtime.watermark

    def encode() -> Parts:
        tables = {WATERMARK: watermark_table(watermark)} if state is None else dict(state())
        return {**tables, CHANNELS: table_of(rows)}

    return LocalState(encode, channels)


def _source(runtime: SourceRuntime, always: bool) -> LocalState:
    """Batches behind `forgotten` can be read again; watermarks that a later state would not give are stored."""
    channels = (
        dict.fromkeys(runtime.buffers, runtime.forgotten + 1) if runtime.forgotten < runtime.position else {}
    )
    state = runtime.freeze({})
    if state is None and not always and not any(mark is not None for mark in runtime.marks.values()):
        return LocalState(None, channels)
    known = sorted(runtime.marks.items())
    batches, watermarks = (pa.array([row[column] for row in known], pa.int64()) for column in (0, 1))
    table = pa.table({"batch": batches, "watermark": watermarks})

    def encode() -> Parts:
        return {MARKS_ALONE: table} if state is None else {**state(), MARKS: table}

    return LocalState(encode, channels)

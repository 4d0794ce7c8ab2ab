"""Waiting for a sink that shows later what it was given; and which trouble, of a sink or else, ends a partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.errors import (
    DataPlaneError,
    EncodeError,
    FencedError,
    LostOutputError,
    NotYetError,
    SinkError,
    StepError,
)
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.node.waits import Place
from reprise.spark_jobs.sinks import Sink, said_by_sink

MARKING_TRIES = 20
"""So often an installation waits a second for marks, on a thread of its own, before it begins anew."""


def leave_out(sink: Sink, batches: Collection[int]) -> None:
    """Mark batches of which nothing will be made, and let the sink go by them without rows; may wait for brokers.  Raises
    what `Sink.mark` raises, NotYetError when they have not answered for long."""
    with said_by_sink():
        waiting = list(batches)
        for _ in range(
            MARKING_TRIES
        ):  # all are asked for before one is waited for: a sink may take them together
            waiting = [batch for batch in waiting if not _is_marked(sink, batch)]
            if not waiting:
                break
            if (trouble := sink.settle(1.0)) is not None:
                raise SinkError(trouble)
        else:
            raise NotYetError(f"batches {waiting[0]} to {waiting[-1]} are not marked yet")
        for batch in batches:
            sink.write(batch, None)


def _is_marked(sink: Sink, batch: int) -> bool:
    try:
        sink.mark(batch)
    except NotYetError:
        return False
    return True


_KINDS: Mapping[type[DataPlaneError], FailureKind] = {
    StepError: FailureKind.POISON,
    FencedError: FailureKind.FENCED,
    LostOutputError: FailureKind.LOST_OUTPUT,
}
ENDS = tuple(_KINDS)
"""Trouble that does not pass and ends the partition."""


def kind_of(error: DataPlaneError) -> FailureKind:
    """What has happened to a partition that one of `ENDS` has ended."""
    return next(kind for raised, kind in _KINDS.items() if isinstance(error, raised))


def settle(runtime: OperatorRuntime, sink: Sink, patience_s: float) -> str:
    """Wait, at most so long, until a partition's sink shows all that it has taken; what is in the way.  Raises what ends the
    partition: StepError for rows that it can never take, FencedError, LostOutputError."""
    partition = runtime.partition.id
    try:
        trouble = sink.settle(patience_s)
    except ENDS:
        raise
    except EncodeError as error:
        raise StepError(runtime.partition.place.operator, partition, runtime.position, error) from error
    except Exception as error:  # of a client library: it passes
        trouble = f"{type(error).__name__}: {error}"
    runtime.waits.meets(Place.SETTLE, SinkError(trouble) if trouble else None)
    return f"{partition}: output waits: {trouble}" if trouble else ""

"""Waiting for a sink that shows later what it was given; and which trouble, of a sink or else, ends a partition."""

from __future__ import annotations

from collections.abc import Mapping

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.errors import DataPlaneError, EncodeError, FencedError, LostOutputError, StepError
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.sinks import Sink

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
    return f"{partition}: output waits: {trouble}" if trouble else ""

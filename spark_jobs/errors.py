"""The data plane's exceptions: one tree, so that adapters can translate all of them in one place."""

from __future__ import annotations

from collections.abc import Iterable

from reprise.spark_jobs.credentials import redacted


class DataPlaneError(Exception):
    """Anything that the data plane reports."""


class SpecError(DataPlaneError):
    """A resource that does not say what to do: `field` is the path in the resource, `reason` what is wrong with it.
    `others` are the further mistakes that were found with it, each without others of its own."""

    def __init__(self, field: str, reason: str, others: Iterable[SpecError] = ()) -> None:
        self.field = field
        self.reason = reason
        self.others = tuple(others)
        super().__init__(f"{field}: {reason}" + (f" (and {len(self.others)} more)" if self.others else ""))

    @property
    def all(self) -> tuple[SpecError, ...]:
        """This mistake and the others, each alone."""
        return (SpecError(self.field, self.reason), *self.others) if self.others else (self,)


def raise_all(found: Iterable[SpecError]) -> None:
    """Raise the first of these mistakes with the others in it, each field and reason once; nothing where there is none."""
    alone = {(error.field, error.reason): error for each in found for error in each.all}
    if alone:
        first, *others = alone.values()
        raise SpecError(first.field, first.reason, others)


class WireError(DataPlaneError):
    """Bytes between slots that are not a message bundle."""


class CheckpointError(DataPlaneError):
    """A file below the checkpoint location that cannot be used; names the file."""

    file = ""
    """Its path below the location, of a file that is damaged everywhere; several states may need it."""


class StoreError(CheckpointError):
    """A store that cannot be read or written just now.  It says nothing of the files: the attempt is repeated."""


class DamagedError(CheckpointError):
    """A file whose bytes are there and wrong, or that a manifest names and that is missing, after it was read twice."""

    def __init__(self, reason: str, file: str = "") -> None:
        super().__init__(reason)
        self.file = file


class NewerVersionError(CheckpointError):
    """A file that was written by a newer version, and says what this one does not know.  It is not damaged: whoever took an
    older one instead would go back behind output that is shown.  To be read again, as its writer may replace it."""


class StateVersionError(DataPlaneError):
    """A stored state of a version that the operator's class does not read.  It is not damaged: the class is another one."""


class SupersededError(DataPlaneError):
    """A later driver has begun with the same checkpoint location: this one must release and complete nothing more."""


class SinkError(DataPlaneError):
    """Sink output that cannot be written, or differs from what was written before for the same (partition, batch)."""


class DecodeError(DataPlaneError):
    """Bytes that are not what the topic should hold."""


class EncodeError(DataPlaneError):
    """Rows that the format of a sink cannot hold.  Trying again changes nothing: the batch is poison."""


class FencedError(DataPlaneError):
    """A later installation of the same output partition writes now: this one must never write again."""


class LostOutputError(DataPlaneError):
    """Buffered output of a partition that was spilled and cannot be read back: its file is gone, or its bytes are wrong.
    The partition has to produce it again, from a checkpoint."""


class SourceError(DataPlaneError):
    """A source that cannot be read just now; the batch waits and is tried again."""


class NotYetError(DataPlaneError):
    """Rows are on their way, in or out: nothing is wrong so far, and nothing is worth a report."""


class SlotMisplacedError(DataPlaneError):
    """Spark ran a slot's task on another node than the one it belongs to: the slot's node is gone."""


class JobError(DataPlaneError):
    """A Spark job that did not finish; `slot` is the one whose task raised, None where that is not known."""

    def __init__(self, reason: str, slot: int | None = None) -> None:
        super().__init__(reason)
        self.slot = slot


class VersionError(DataPlaneError):
    """Driver and executors that run other versions; names both."""


class LateRequestError(DataPlaneError):
    """A request of a job that was cancelled, or of a driver that was replaced, came to a host that is further."""


class MissedOrdersError(DataPlaneError):
    """A host is told what changed since a job whose orders it has not got; next it is told everything."""


class HostLostError(DataPlaneError):
    """The partition host of a node is not there any more: its state is lost with it."""


class HostBusyError(JobError):
    """A partition host does not answer in time: says in which operator, partition and batch it has been for how long."""


class StepError(DataPlaneError):
    """User code raised: names operator, partition and batch.  The batch is poison: it is reported, not retried."""

    def __init__(self, operator: str, partition: str, batch: int, cause: BaseException) -> None:
        super().__init__(
            redacted(
                f"operator {operator}, partition {partition}, batch {batch}: {type(cause).__name__}: {cause}"
            )
        )
        self.partition = partition
        self.batch = batch


WAITS = (NotYetError, SinkError, SourceError, BufferError, OSError)
"""Trouble of a source, a sink, a buffer or a disk that passes: what it has stopped is tried again."""

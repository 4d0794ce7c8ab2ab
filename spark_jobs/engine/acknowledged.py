"""What a host says that it has stored, as the record of a snapshot."""

from __future__ import annotations

from reprise.algorithms.recovery_line import Heard
from reprise.spark_jobs.node.command import Ack
from reprise.spark_jobs.state.snapshot import Kind, Snapshot, StateFile


def snapshot_of(ack: Ack, number: int) -> Snapshot:
    """The snapshot that a partition has taken by its own clock.  `number`: rises with each of the partition."""
    sent = next(k for k in (ack.made, ack.sent, ack.position) if k is not None)
    return Snapshot(
        ack.partition,
        ack.position,
        None if ack.file is None else StateFile.from_json(ack.file),
        _kind(ack),
        sent,
        sent + 1,
        number,
        dict(ack.channels),
        ack.watermark,
        {partition: Heard(*heard) for partition, heard in ack.inputs.items()},
    )


def _kind(ack: Ack) -> Kind:
    if ack.made is not None:
        return Kind.ARRIVAL
    return Kind.WINDOW_LOG if ack.sent is not None else Kind.FORCED if ack.forced else Kind.LOCAL

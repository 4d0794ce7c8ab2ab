"""The record of one stored partition: at which position, in which file, and what a partition restored from it can give
others.

A checkpoint is a line over such snapshots (`reprise.algorithms.recovery_line` says which lines are valid).  A global
checkpoint takes one of each partition at the same batch, a round; with `checkpoint.protocol: uncoordinated` each partition
is stored by its own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from reprise.spark_jobs.errors import NewerVersionError


@dataclass(frozen=True, slots=True)
class StateFile:
    """One partition's file: `path` relative to the store, size in bytes, SHA-256 in hex."""

    path: str
    size: int
    sha256: str
    others: tuple[str, ...] = ()
    """Of a state in pages: the earlier files that have pages of it."""
    all_bytes: int | None = None
    """Of a state in pages: bytes with those pages.  None: the file is the whole state, as tables."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All files without which the state cannot be read."""
        return (self.path, *self.others)

    @property
    def state_bytes(self) -> int:
        """Bytes that are read to have the state."""
        return self.size if self.all_bytes is None else self.all_bytes

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        data: dict[str, Any] = {"path": self.path, "size": self.size, "sha256": self.sha256}
        return (
            data
            if self.all_bytes is None
            else data | {"others": list(self.others), "allBytes": self.all_bytes}
        )

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StateFile:
        """The inverse of `to_json`; raises KeyError, TypeError or ValueError."""
        every = data.get("allBytes")
        return StateFile(
            data["path"],
            int(data["size"]),
            data["sha256"],
            tuple(map(str, data.get("others", ()))),
            None if every is None else int(every),
        )


class Kind(StrEnum):
    """Why a snapshot was taken."""

    ROUND = "round"  # a punctuation: every partition stores its state at this batch
    LOCAL = "local"  # the partition's own interval
    FORCED = "forced"  # a message that would have made the ones before it useless
    FINAL = "final"  # the partition has ended
    WINDOW_LOG = "window-log"  # footprints of windows, each with a position of its own


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of `partition` after batch `position`; `file` is None where there is no state to store."""

    partition: str
    position: int
    file: StateFile | None
    kind: Kind
    sent: int
    """Output up to this batch is not made again by a partition that is restored from it."""
    first: int
    """The first batch whose output such a partition makes exactly as before."""
    number: int
    """Rises with each snapshot of the partition; a round's is its position."""
    channels: Mapping[str, int] = field(default_factory=dict)
    """Target -> first batch of output for it that is in the file, or that a source can read again; a target that is not
    named has none there."""
    watermark: int | None = None
    """Of a partition without a file, where it has one."""

    @staticmethod
    def round(partition: str, position: int, file: StateFile | None = None) -> Snapshot:
        """The snapshot as it is stored for a global checkpoint at batch `position`."""
        return Snapshot(partition, position, file, Kind.ROUND, position, position + 1, position)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, without the partition, by which snapshots are listed."""
        data = asdict(self)
        del data["partition"]
        data["file"] = None if self.file is None else self.file.to_json()
        if self.watermark is None:
            del data["watermark"]
        return data

    @staticmethod
    def from_json(partition: str, data: Mapping[str, Any]) -> Snapshot:
        """The inverse of `to_json`; raises KeyError, TypeError, ValueError or AttributeError.  NewerVersionError: it is of a
        kind that this version does not know."""
        return Snapshot(
            partition=partition,
            position=int(data["position"]),
            file=None if data["file"] is None else StateFile.from_json(data["file"]),
            kind=_kind(partition, data["kind"]),
            sent=int(data["sent"]),
            first=int(data["first"]),
            number=int(data["number"]),
            channels={target: int(batch) for target, batch in data["channels"].items()},
            watermark=None if data.get("watermark") is None else int(data["watermark"]),
        )


def _kind(partition: str, name: Any) -> Kind:
    if isinstance(name, str) and name not in frozenset(Kind):
        raise NewerVersionError(
            f"the snapshot of {partition} is of kind {name!r}, which this Reprise does not know: it was written by a newer "
            "version"
        )
    return Kind(name)

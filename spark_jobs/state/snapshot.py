"""The record of one stored partition: at which position, in which file, and what a partition restored from it can give
others.

A checkpoint is a line over such snapshots (`reprise.algorithms.recovery_line` says which lines are valid).  A global
checkpoint takes one of each partition at the same batch, a round; with `checkpoint.protocol: uncoordinated` each partition
is stored by its own clock.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from reprise.algorithms.recovery_line import Heard
from reprise.spark_jobs.contract import FIRST_STATE_VERSION
from reprise.spark_jobs.errors import NewerVersionError


def folder(position: int) -> str:
    """Where the files of cp(position) are."""
    return f"cp-{position:08d}"


@dataclass(frozen=True, slots=True)
class StateFile:
    """One partition's file: `path` relative to the store, size in bytes, SHA-256 in hex."""

    path: str
    size: int
    sha256: str
    others: tuple[str, ...] = ()
    """Of a state in pages: the earlier files that have pages of it; of a log its earlier segments, oldest first."""
    all_bytes: int | None = None
    """Of a state in pages: bytes with those pages.  None: the file is the whole state, as tables."""
    state_version: int = FIRST_STATE_VERSION
    """`Operator.state_version` of the class that has written it."""

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
        if self.state_version != FIRST_STATE_VERSION:
            data["stateVersion"] = self.state_version
        if self.all_bytes is None:
            return data
        steps = _steps(self.path, self.others)
        return (
            data
            | {"allBytes": self.all_bytes}
            | ({"others": list(self.others)} if steps is None else {"steps": steps})
        )

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StateFile:
        """The inverse of `to_json`; raises KeyError, TypeError or ValueError."""
        every = data.get("allBytes")
        return StateFile(
            data["path"],
            int(data["size"]),
            data["sha256"],
            _stepped(data["path"], data["steps"])
            if "steps" in data
            else tuple(map(str, data.get("others", ()))),
            None if every is None else int(every),
            int(data.get("stateVersion", FIRST_STATE_VERSION)),
        )


def _steps(path: str, others: tuple[str, ...]) -> str | None:
    """Earlier segments of a log, which differ in their batch alone, as what each is before the next, the newest first;
    None: they are no such row.  A topology has ten thousand logs, each with up to 64 of them, and their names are long."""
    if not path.endswith(".log"):
        return None
    at, steps = _batch(path), list[int]()
    for other in reversed(others):
        before = _batch(other)
        steps.append(at - before)
        at = before
    said = " ".join(map(str, steps))
    return said if _stepped(path, said) == others else None


def _stepped(path: str, steps: str) -> tuple[str, ...]:
    """The inverse.  ValueError: it is none."""
    at, name = _batch(path), path.partition("/")[2]
    others = list[str]()
    for step in map(int, steps.split()):
        at -= step
        others.append(sys.intern(f"{folder(at)}/{name}"))
    return tuple(reversed(others))


def _batch(path: str) -> int:
    digits = path.partition("/")[0].removeprefix("cp-")
    return int(digits) if digits.isdigit() else 0


class Kind(StrEnum):
    """Why a snapshot was taken."""

    ROUND = "round"  # a punctuation: every partition stores its state at this batch
    LOCAL = "local"  # the partition's own interval
    FORCED = "forced"  # a message that would have made the ones before it useless
    FINAL = "final"  # the partition has ended
    WINDOW_LOG = "window-log"  # footprints of windows, each with a position of its own
    ARRIVAL = "arrival"  # the partition's own interval, with inputs that are not even


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
    inputs: Mapping[str, Heard] = field(default_factory=dict)
    """Of one that applies in the order of arrival: how far each input is.  `sent`, `first` and `channels` are numbers of
    messages then, and of batches where this is empty."""

    @property
    def last(self) -> int:
        """The last batch that may have left a trace in it, or in what is stored with it."""
        return self.position if self.inputs else self.sent

    @property
    def even(self) -> bool:
        """Whether all inputs are applied exactly up to its position."""
        return all(heard.taken == heard.marker for heard in self.inputs.values())

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
        if not self.inputs:
            del data["inputs"]
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
            inputs={p: Heard(*map(int, heard)) for p, heard in data.get("inputs", {}).items()},
        )


def _kind(partition: str, name: Any) -> Kind:
    if isinstance(name, str) and name not in frozenset(Kind):
        raise NewerVersionError(
            f"the snapshot of {partition} is of kind {name!r}, which this Reprise does not know: it was written by a newer "
            "version"
        )
    return Kind(name)

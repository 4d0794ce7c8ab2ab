"""Why a partition is not at work: a kind that programs decide by, and a reason for people; a value that all layers share.

The data plane says it, records and commands carry it, and decisions rest on its kind alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """What has happened to a partition.  The values stand in records that outlive a version, so they keep their text."""

    POISON = "poison"
    """Its code raised.  It is not restored elsewhere: it would raise again."""
    FENCED = "fenced"
    """A later installation of it writes its output."""
    LOST_OUTPUT = "lost output"
    """Output that only this partition had cannot be read any more; it has to be produced again."""
    CHECKPOINT = "checkpoint"
    """The checkpoint that it was to be restored from cannot be used."""
    NODE_LOST = "node lost"
    """Its node is gone."""
    STATE_LOST = "state lost with its host"
    """Its node is there, and the process that had its state is not."""
    NOT_ASSIGNED = "not assigned"
    """It was taken off its node."""
    OTHER = "other"
    """What a record of another version says and this one does not know; the reason is the whole text."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`reason` is for people, and empty where the kind says everything."""

    kind: FailureKind
    reason: str = ""
    file: str = ""
    """Of a checkpoint: the file below its location that is damaged or missing, where that is known; not in records."""

    @property
    def is_poison(self) -> bool:
        """Whether the partition's own code raised: it is not tried again while this driver lives."""
        return self.kind is FailureKind.POISON

    def __str__(self) -> str:
        """The form in which records and people have it."""
        if self.kind is FailureKind.OTHER:
            return self.reason
        return f"{self.kind.value}: {self.reason}" if self.reason else self.kind.value

    @staticmethod
    def parse(text: str) -> Failure:
        """The inverse of `str`; any text is a failure, of kind OTHER if it begins with no other kind's name."""
        kind, _, reason = text.partition(": ")
        if kind in _BY_NAME:
            return Failure(_BY_NAME[kind], reason)
        return Failure(FailureKind.OTHER, text)


_BY_NAME = {kind.value: kind for kind in FailureKind if kind is not FailureKind.OTHER}

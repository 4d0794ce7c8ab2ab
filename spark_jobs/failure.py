"""Why a partition is not at work: a kind that programs decide by, and a reason for people."""

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


@dataclass(frozen=True, slots=True)
class Failure:
    """`reason` is empty where the kind says everything."""

    kind: FailureKind
    reason: str = ""

    def __str__(self) -> str:
        """The form in which records and people have it."""
        return f"{self.kind.value}: {self.reason}" if self.reason else self.kind.value

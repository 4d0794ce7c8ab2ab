"""Why the driver says that a partition is not at work: a kind that decisions rest on, and a reason for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """The kinds that drivers report; `reprise.spark_jobs.failure` says what each of them means."""

    POISON = "poison"
    FENCED = "fenced"
    LOST_OUTPUT = "lost output"
    CHECKPOINT = "checkpoint"
    NODE_LOST = "node lost"
    STATE_LOST = "state lost with its host"
    NOT_ASSIGNED = "not assigned"
    OTHER = "other"
    """A kind that this version does not know; the reason is the whole text."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`reason` is empty where the kind says everything."""

    kind: FailureKind
    reason: str = ""

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

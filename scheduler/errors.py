"""The exceptions of the scheduler: one tree."""

from __future__ import annotations


class SchedulerError(Exception):
    """Anything that keeps the scheduler from deciding."""


class InvariantViolation(SchedulerError):
    """A decision that must not be carried out: the invariant it breaks (its name in design and docs) and how."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant

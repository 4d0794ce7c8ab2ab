"""The exceptions of the planners: one tree, so that an adapter can catch `PlanningError` and translate it."""

from __future__ import annotations


class PlanningError(Exception):
    """Anything that keeps a planner from answering."""


class InstanceError(PlanningError):
    """An instance that is not well formed: the field that is wrong, as a path, and why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class PlanFormatError(PlanningError):
    """A stored plan that cannot be read: the field that is wrong, as a path, and why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class UnknownAlgorithm(PlanningError):
    """A planner name that is not in the registry."""


class TooLarge(PlanningError):
    """The chosen algorithm refuses an instance of this size; the message names one that does not."""

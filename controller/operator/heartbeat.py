"""What ZooKeeper says of the pods of a topology: the one thing that `records` reads and `pods` judges by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What ZooKeeper says of a pod."""

    there: bool
    member: bool
    """It has registered at least once."""
    fenced: bool = False
    gone_s: float = 0.0
    """How long it has been gone, as far as this operator has seen."""

"""What somebody wants of the name of a savepoint; apart from the savepoints themselves, as the operator on Kubernetes knows
wishes and reads no states."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SavepointWish:
    """A savepoint of this name is to be taken, or to be deleted."""

    name: str
    id: str
    """Tells it from other wishes; a later one is greater."""
    delete: bool = False

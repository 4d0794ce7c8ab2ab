"""Conditions of an object, merged so that `lastTransitionTime` moves only when `status` does.

A condition that has not changed must come out unchanged: the status is written only when it differs, and a time that
moved by itself would turn every look into a write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reprise.controller.crd.convert import cut, rfc3339


class Truth(StrEnum):
    """Unknown is its own outcome."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """What one condition is to say now; times and generation are added when it is merged."""

    type: str
    truth: Truth
    reason: str
    message: str = ""


def merged(
    old: Sequence[Mapping[str, Any]], updates: Iterable[ConditionUpdate], generation: int, now: float
) -> list[dict[str, Any]]:
    """The conditions of `updates` in their order, with the times of those in `old` that have the same status; a condition
    without an update goes. `now` in seconds since the epoch."""
    before = {entry.get("type"): entry for entry in old}
    return [_condition(before.get(update.type, {}), update, generation, now) for update in updates]


def _condition(
    before: Mapping[str, Any], update: ConditionUpdate, generation: int, now: float
) -> dict[str, Any]:
    same = before.get("status") == update.truth.value and isinstance(before.get("lastTransitionTime"), str)
    return {
        "type": update.type,
        "status": update.truth.value,
        "reason": update.reason,
        "message": cut(update.message, 1024),
        "lastTransitionTime": before["lastTransitionTime"] if same else rfc3339(now),
        "observedGeneration": generation,
    }

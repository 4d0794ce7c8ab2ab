"""Conditions of an object, merged so that `lastTransitionTime` moves only when `status` does.

An unchanged claim must come out unchanged: the status is written only when it differs, and a time that moved by itself
would turn every look into a write.
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
class Claim:
    """One condition as it is now."""

    type: str
    truth: Truth
    reason: str
    message: str = ""


def merged(
    old: Sequence[Mapping[str, Any]], claims: Iterable[Claim], generation: int, now: float
) -> list[dict[str, Any]]:
    """The conditions of `claims` in their order, with the times of those in `old` that have the same status; what is
    no longer claimed goes. `now` in seconds since the epoch."""
    before = {entry.get("type"): entry for entry in old}
    return [_condition(before.get(claim.type, {}), claim, generation, now) for claim in claims]


def _condition(before: Mapping[str, Any], claim: Claim, generation: int, now: float) -> dict[str, Any]:
    same = before.get("status") == claim.truth.value and isinstance(before.get("lastTransitionTime"), str)
    return {
        "type": claim.type,
        "status": claim.truth.value,
        "reason": claim.reason,
        "message": cut(claim.message, 1024),
        "lastTransitionTime": before["lastTransitionTime"] if same else rfc3339(now),
        "observedGeneration": generation,
    }

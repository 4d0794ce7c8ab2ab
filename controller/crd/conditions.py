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


class ConditionReason(StrEnum):
    """Why a condition stands as it does.  docs/kubernetes.md says what to do about those that ask for somebody."""

    # of the condition Ready of a topology
    STARTING = "Starting"
    """The topology has not been started yet; the message says what is waited for."""
    SPEC_PENDING = "SpecPending"
    """Of Reconciling: the driver still runs the spec before."""
    AWAITING_APPROVAL = "AwaitingApproval"
    """A plan is proposed and not approved."""
    NOT_ADVANCING = "NotAdvancing"
    """A query runs and shows nothing."""
    QUERIES_DOWN = "QueriesDown"
    """Queries wait, or are being restored."""
    NOT_WATCHED_YET = "NotWatchedYet"
    """Queries are behind, and this operator has not watched them for long enough to say whether they advance."""
    ALL_QUERIES_AVAILABLE = "AllQueriesAvailable"

    # of Recovering, and of the conditions Restored and Closed of an Incident: the phase
    NO_INCIDENT = "NoIncident"
    SETTLING = "Settling"
    WAITING = "Waiting"
    RECOVERING = "Recovering"
    VERIFYING = "Verifying"
    CLOSED = "Closed"

    # of Degraded, beside NOT_ADVANCING and QUERIES_DOWN
    DRIVER_DOWN = "DriverDown"
    """There is no driver that works."""
    DRIVER_WAITS = "DriverWaits"
    """The driver waits for its checkpoint store."""
    CANNOT_DECIDE = "CannotDecide"
    """A record cannot be read, or a decision cannot be written down."""
    NOTHING_IS_DOWN = "NothingIsDown"

    # of Paused, Valid and Observed
    ASKED = "Asked"
    """Somebody holds batches back; the message says who."""
    RUNNING = "Running"
    ACCEPTED = "Accepted"
    SPEC_REFUSED = "SpecRefused"
    """The newest spec cannot be run; also of Ready where none could be run before."""
    UP_TO_DATE = "UpToDate"
    NO_ANSWER = "NoAnswer"
    """ZooKeeper or the API server does not answer."""
    NOT_OBSERVED = "NotObserved"
    """Of the conditions that are Unknown meanwhile."""

    # of Correlated of an Incident: its kind
    BLOCKING = "Blocking"
    CORRELATED = "Correlated"
    DRIVER = "Driver"
    START = "Start"

    # of Approved and Executed of a RecoveryPlan
    CARRIED_OUT = "Carried"
    EXECUTING = "Executing"
    DONE = "Done"
    SUPERSEDED = "Superseded"


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """What one condition is to say now; times and generation are added when it is merged."""

    type: str
    truth: Truth
    reason: ConditionReason
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
        "reason": update.reason.value,
        "message": cut(update.message, 1024),
        "lastTransitionTime": before["lastTransitionTime"] if same else rfc3339(now),
        "observedGeneration": generation,
    }

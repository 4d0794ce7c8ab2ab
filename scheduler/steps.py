"""What a decision consists of: typed steps, carried out together or not at all.

An adapter turns the steps of one decision into one transaction that checks that nothing on which the decision
rests has been rewritten. So a coordinator that is killed leaves a decision done or not begun, and of two that
act on the same records one is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reprise.scheduler.incident import Incident, PlanRecord
from reprise.scheduler.model import Desired, Poison


@dataclass(frozen=True, slots=True)
class WriteDesired:
    desired: Desired


@dataclass(frozen=True, slots=True)
class WriteIncident:
    """Create or rewrite the open incident."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class CloseIncident:
    """File the incident under its id; none is open then."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class AddPlan:
    plan: PlanRecord


@dataclass(frozen=True, slots=True)
class WritePoison:
    poison: Poison


Step = WriteDesired | WriteIncident | CloseIncident | AddPlan | WritePoison


class Outcome(StrEnum):
    """What came of looking at a snapshot."""

    UNKNOWN = "unknown"  # the snapshot says nothing: no session
    WAIT = "wait"  # nothing to do, or not yet
    ACT = "act"  # carry out the steps


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    rule: str
    """The rule of the table that decided."""
    reason: str
    steps: tuple[Step, ...] = ()
    until: float = 0.0
    """Nothing comes of looking earlier than this, by the clock of snapshots, while the records are the same: infinite where
    time alone changes nothing, 0 where nobody knows."""

    @property
    def desired(self) -> Desired | None:
        """What the driver is told, if anything new."""
        return next((s.desired for s in self.steps if isinstance(s, WriteDesired)), None)

    @property
    def plan(self) -> PlanRecord | None:
        """The plan of this decision, if there is one."""
        return next((s.plan for s in self.steps if isinstance(s, AddPlan)), None)

    @property
    def incident(self) -> Incident | None:
        """The incident as this decision leaves it, if it touches it."""
        found = (s.incident for s in self.steps if isinstance(s, WriteIncident | CloseIncident))
        return next(found, None)


def act(rule: str, reason: str, *steps: Step, until: float = 0.0) -> Decision:
    return Decision(Outcome.ACT, rule, reason, steps, until)


def wait(rule: str, reason: str, until: float = 0.0) -> Decision:
    return Decision(Outcome.WAIT, rule, reason, until=until)

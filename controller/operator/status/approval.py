"""A plan waits in recommend-only mode until somebody has approved its object: the one thing that objects are read for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from reprise.controller.crd.convert import APPROVED, object_name
from reprise.controller.kubernetes.errors import OperatorError
from reprise.controller.kubernetes.events import EventReason, Events
from reprise.controller.operator.status.publisher import ObjectPublisher, fingerprint
from reprise.scheduler import Decision
from reprise.scheduler.incident import Kind, PlanRecord

ASK_S = 2.0
"""Between two questions whether a plan was approved."""


@dataclass(slots=True)
class PlanApproval:
    """Lets the plans of one topology wait until they are approved."""

    publisher: ObjectPublisher
    events: Events
    clock: Callable[[], float] = time.monotonic
    required: bool = False
    """Whether plans wait for approval; those of a first start never do."""
    held_back: str = ""
    """Name of the object of the plan that waits; empty for none."""
    _proposed: str = ""
    """Name of the last object that still says that its plan waits."""
    _granted: bool = False
    """Whether that plan was approved."""
    _asked: float | None = None

    @property
    def proposed(self) -> str:
        """Name of the object of the plan that this operator has proposed last; empty where none waits."""
        return self._proposed

    def permits(self, decision: Decision) -> bool:
        """Whether a decision may be carried out."""
        plan = decision.plan
        if plan is None or not self.required or _is_start(decision):
            self.held_back = ""
            return True
        name = self._propose(plan)
        if name != self.held_back:
            self.held_back, self._asked = name, None
            self.events.note(EventReason.PLAN_PROPOSED, f"{name}: {decision.reason}")
        now = self.clock()
        if self._asked is not None and now - self._asked < ASK_S:
            return False
        self._asked = now
        self._granted = self._approved(name)
        if not self._granted:
            return False
        self.events.note(EventReason.PLAN_APPROVED, name)
        self.held_back = ""
        with contextlib.suppress(OperatorError):  # what is shown holds no recovery back: it is shown later
            self.withdraw()
        return True

    def withdraw(self) -> None:
        """No plan waits any more: the object of one that did says so, and whether it was approved."""
        if self._proposed:
            say = self.publisher.approve if self._granted else self.publisher.supersede
            say(self._proposed)
            self._proposed, self._granted = "", False

    def _propose(self, plan: PlanRecord) -> str:
        """Show the plan as an object; its name.  One that it replaces is superseded."""
        name = f"{object_name(self.publisher.reference.name, plan.id)}-{proposal_digest(plan)}"
        if self._proposed != name:
            self.withdraw()
        self.publisher.propose(name, plan)
        self._proposed = name
        return name

    def _approved(self, name: str) -> bool:
        found = self.publisher.find_plan(name)
        return (found.get("metadata", {}).get("annotations") or {}).get(APPROVED) == "true"


def proposal_digest(plan: PlanRecord) -> str:
    """Six digits of what a plan would do: approval is of this and of nothing else.  Who has approved that partitions are
    restored has not approved that rows are lost."""
    done = [sorted(plan.added.items()), plan.rollback, plan.checkpoint, plan.generation]
    return fingerprint([*done, sorted(plan.anew)] if plan.anew else done)[:6]


def _is_start(decision: Decision) -> bool:
    return decision.incident is not None and decision.incident.kind is Kind.START

"""What people are told of one topology: its status, conditions as Events, Incidents and RecoveryPlans.

Everything is computed from what is there and written where it differs, so a look that is left out, for want of a write to
spare, loses nothing but time.  Numbers that only grow are written when writes can be spared; conditions before them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reprise.controller.crd.conditions import ConditionUpdate, Truth
from reprise.controller.kubernetes.api import Api
from reprise.controller.kubernetes.budget import Urgency
from reprise.controller.kubernetes.errors import BudgetError, OperatorError
from reprise.controller.kubernetes.events import EventReason, Events
from reprise.controller.kubernetes.pods import seconds
from reprise.controller.operator.status.approval import PlanApproval
from reprise.controller.operator.status.former_proposals import FormerProposals
from reprise.controller.operator.status.publisher import ObjectPublisher
from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.operator.status.topology_status import status_of
from reprise.controller.zookeeper.observation import Observation

log = logging.getLogger("reprise.operator")
PUBLISH_S = 0.5
"""Least time between two looks at what ought to be said."""
PROBLEM_S = 30.0
"""Least time between two Events about what the driver reports."""
_GOOD = frozenset({"Ready", "Valid", "Observed"})
"""Conditions that are True while all is well."""
_FOR_TOOLS = frozenset({"Stalled", "Reconciling"})
"""Conditions that say for kstatus what others say for people, and that are not announced a second time."""


@dataclass(slots=True)
class StatusReporter:
    """Works out the status of one topology, its conditions and the Events about them, and has them written."""

    name: str
    publisher: ObjectPublisher
    approval: PlanApproval
    events: Events
    routine: Api
    former: FormerProposals
    standing: Mapping[str, Any] = field(default_factory=dict)
    """The status as it was written last, or as the object had it."""
    behind: bool = False
    """Something that people should see has not been written yet."""
    _said: dict[str, tuple[str, str]] = field(default_factory=dict)
    _troubles: frozenset[str] = frozenset()
    """What was said of code that raised and of jobs that fail, so that it is said once."""
    _problem: tuple[str, float] = ("", -PROBLEM_S)
    """The driver's problem that was said last, and when."""
    _told: float = 0.0
    _checkpoint: tuple[int, float | None] = (0, None)
    """Position of the newest one, and when it was complete."""

    @classmethod
    def of(cls, api: Api, name: str, publisher: ObjectPublisher, events: Events) -> StatusReporter:
        approval = PlanApproval(publisher, events)
        former = FormerProposals(publisher, approval)
        return cls(name, publisher, approval, events, api.at(Urgency.ROUTINE), former)

    @property
    def recovering(self) -> bool:
        """Whether an incident is open, by the condition that stands."""
        conditions = {c.get("type"): c.get("status") for c in self.standing.get("conditions") or []}
        return conditions.get("Recovering") == "True"

    @property
    def due(self) -> bool:
        """Whether there is a write to spare: for numbers that only grow, or for what people should see."""
        if time.monotonic() - self._told < PUBLISH_S:
            return False
        return self.routine.affordable or (self.behind and self.publisher.api.at(Urgency.SHOW).affordable)

    def tell(self, now: TopologyState) -> None:
        """Write what is new; what cannot be written now is tried again at the next look."""
        if time.monotonic() - self._told < PUBLISH_S:
            self.behind = True
            return
        self._told = time.monotonic()
        try:
            self._tell(replace(now, completed_at=self._completed_at(now.observation)))
            self.events.flush()
            self.behind = self.events.waiting
        except BudgetError:
            self.behind = True
        except OperatorError as error:
            self.behind = True
            log.warning("event=not-published topology=%s reason=%r", self.name, str(error))

    def _tell(self, now: TopologyState) -> None:
        status, updates = status_of(now, self.standing)
        seen = now.observation
        self.publisher.forecast = str(now.forecast)
        self.publisher.status(status, self.standing)
        self.standing = status
        self._announce(updates)
        if seen is not None and seen.connected:
            self._name_culprits(seen)
            self.former.settle(seen)
            self.publisher.recoveries(seen)
            if not now.held_back:
                self.approval.withdraw()

    def _name_culprits(self, seen: Observation) -> None:
        """An Event for each partition that was set aside, with what it raised, and for jobs that fail again and again."""
        progress = seen.progress
        if progress is None:
            return
        aside = {f"{p}: {failure}" for p, failure in progress.poisoned.items()}
        for text in sorted(aside - self._troubles):
            self.events.note(EventReason.PARTITION_SET_ASIDE, text, warning=True)
        if progress.stuck and EventReason.JOBS_FAIL not in self._troubles:
            self.events.note(EventReason.JOBS_FAIL, progress.stuck, warning=True)
        self._troubles = frozenset(aside) | ({EventReason.JOBS_FAIL} if progress.stuck else set())
        known = [str(failure) for failure in progress.poisoned.values()]
        known += [progress.stuck] if progress.stuck else []
        self._name_problem([p for p in seen.problems if not any(why in p or p in why for why in known)])

    def _name_problem(self, problems: Sequence[str]) -> None:
        """An Event for the newest that the driver reports; not for each, as their texts may hold numbers that change."""
        last, at = self._problem
        if problems and problems[-1] != last and time.monotonic() - at >= PROBLEM_S:
            self.events.note(EventReason.DRIVER_PROBLEM, problems[-1], warning=True)
            self._problem = problems[-1], time.monotonic()

    def _completed_at(self, seen: Observation | None) -> float | None:
        """When the newest checkpoint was complete, as far as this operator, or the one before it, has seen."""
        position = seen.progress.checkpoint if seen is not None and seen.progress else 0
        if position and position != self._checkpoint[0]:
            stands = self.standing.get("checkpoint") or {}
            known = seconds(stands.get("completedAt")) if stands.get("position") == position else None
            self._checkpoint = position, known or time.time()
        return self._checkpoint[1] if position else None

    def _announce(self, updates: Sequence[ConditionUpdate]) -> None:
        """An Event for each condition that has changed; the first look tells only what people would ask about."""
        for update in (update for update in updates if update.type not in _FOR_TOOLS):
            now, before = (update.truth.value, update.reason), self._said.get(update.type)
            self._said[update.type] = now
            good = update.truth.value == ("True" if update.type in _GOOD else "False")
            if now == before or (before is None and (good or update.truth is Truth.UNKNOWN)):
                continue
            text = f"{update.type} is {update.truth.value}" + (
                f": {update.message}" if update.message else ""
            )
            self.events.say(update.reason, text, warning=not good)

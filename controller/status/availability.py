"""Availability over time, against what the capacity of each moment allowed.

Taken from the time lines of the incidents, which say when each query was lost and had caught up.  The bound is the plans':
what runs, is coming back or was never lost, and at most `plan.bound` of what a plan had to choose from.  From the loss of a
node until the next plan nobody has asked what the rest allows, so the bound is unknown, and so is it where a plan's record
does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reprise.controller.status.incidents import Answers
from reprise.controller.status.model import AvailabilityPoint, AvailabilityView
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.incident import MAX_EVENTS, Event, EventName, Incident, PlanRecord


def availability(
    priorities: Mapping[str, int], seen: Observation, answers: Answers, share: float, available: int
) -> AvailabilityView:
    """A step function; the last point is now, with the share and count that the rest of the document gives.  Its times never
    go back, though those of a coordinator may be behind those of the one before it."""
    curve = _Curve(dict(priorities), answers)
    complete = True
    for incident in seen.incidents:
        complete = complete and incident.whole and len(incident.events) < MAX_EVENTS
        curve.incident(incident, seen.plans_of(incident))
    points = [*curve.points, AvailabilityPoint(curve.not_before(seen.time), share, available, curve.bound)]
    return AvailabilityView(tuple(points), complete)


@dataclass(slots=True)
class _Curve:
    priorities: dict[str, int]
    answers: Answers
    down: set[str] = field(default_factory=set)
    bound: float | None = 1.0
    points: list[AvailabilityPoint] = field(default_factory=list)

    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.priorities.values()) or 1

    def incident(self, incident: Incident, plans: list[PlanRecord]) -> None:
        """Its events and plans in the order of time."""
        steps: list[tuple[float, int, Event | PlanRecord]] = [(e.time, 0, e) for e in incident.events]
        steps += [(plan.time, 1, plan) for plan in plans]
        for at, _, step in sorted(steps, key=lambda step: step[:2]):
            if isinstance(step, PlanRecord):
                self.bound = self._allowed(step)
            elif not self._event(step, incident):
                continue
            self._point(self.not_before(at))

    def not_before(self, at: float) -> float:
        """This time, or that of the last point where it is later."""
        return max(at, self.points[-1].time) if self.points else at

    def _event(self, event: Event, incident: Incident) -> bool:
        """Whether it has changed anything here."""
        names = event.detail.split()
        match event.name:
            case EventName.QUERIES_LOST | EventName.QUERIES_BEHIND:
                self.down.update(names)
            case EventName.QUERIES_CAUGHT_UP:
                self.down.difference_update(names)
            case EventName.NODE_LOST | EventName.DRIVER_STARTED:
                self.bound = None
            case EventName.CLOSED | EventName.FALSE_ALARM:
                self.down -= {q for q, times in incident.queries.items() if times.restored_at is not None}
                if event.name is EventName.FALSE_ALARM:
                    self.down.clear()
                self.bound = self._share(self.down)
            case EventName.RESTORED:
                self.bound = self._share(set())
            case _:
                return False
        return True

    def _allowed(self, plan: PlanRecord) -> float | None:
        answer = self.answers[plan.id]
        if answer is None:
            return None
        open_ = {candidate.query for candidate in plan.candidates} | set(plan.left_out)
        whole = sum(priority for query, priority in self.priorities.items() if query not in open_)
        return min(1.0, (whole + answer.bound) / self.total)

    def _share(self, down: set[str]) -> float:
        """`priority_share` of all but these, by what is down alone: these are few, and a curve has many points."""
        return (self.total - sum(self.priorities.get(query, 0) for query in down)) / self.total

    def _point(self, at: float) -> None:
        down = self.down & set(self.priorities)
        point = AvailabilityPoint(at, self._share(down), len(self.priorities) - len(down), self.bound)
        if self.points and self.points[-1].time == at:
            self.points[-1] = point
        elif not self.points or self.points[-1] != replace(point, time=self.points[-1].time):
            self.points.append(point)

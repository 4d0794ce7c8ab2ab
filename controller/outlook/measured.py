"""How long things took in this topology so far: restoring, catching up, and the time between arrivals of nodes.

Taken from the open incident and the one before it.  An arrival is known by the plan that it led to, so one that changed
nothing is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from controller.view import StatusDocument
from controller.view.model import IncidentView, QueryTimesView


@dataclass(frozen=True, slots=True)
class Sample:
    """Measured seconds, ascending; none at all means unknown."""

    seconds: tuple[float, ...] = ()

    @property
    def range(self) -> tuple[float, float] | None:
        return (self.seconds[0], self.seconds[-1]) if self.seconds else None

    @property
    def middle(self) -> float | None:
        return median(self.seconds) if self.seconds else None

    def __str__(self) -> str:
        if not self.seconds:
            return "not measured yet"
        low, high = self.seconds[0], self.seconds[-1]
        span = f"{low:.1f} s" if high - low < 0.05 else f"{low:.1f} to {high:.1f} s"
        return f"{span} in {len(self.seconds)} case{'s' if len(self.seconds) > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Measured:
    restore: Sample
    """From the plan that chose a query until all of its partitions were at work."""
    catch_up: Sample
    """From then until its output was close to the newest batch."""
    gaps: Sample
    """Between arrivals of nodes, the first counted from the detection."""
    last_arrival: float | None
    """Unix seconds: the last arrival of the open incident, or its detection."""


def measured(document: StatusDocument) -> Measured:
    """Of the open incident and the last closed one."""
    incidents = [i for i in (document.last_incident, document.incident) if i is not None]
    restore = [s for incident in incidents for s in _restores(incident)]
    catch_up = [
        q.caught_up_at - q.restored_at
        for incident in incidents
        for q in incident.queries
        if q.caught_up_at is not None and q.restored_at is not None
    ]
    gaps = [b - a for incident in incidents for a, b in pairwise(_arrivals(incident))]
    last = _arrivals(document.incident)[-1] if document.incident else None
    return Measured(_sample(restore), _sample(catch_up), _sample(gaps), last)


def _restores(incident: IncidentView) -> list[float]:
    found = []
    for query in incident.queries:
        chosen = _last_choice(incident, query)
        if chosen is not None and query.restored_at is not None and query.restored_at >= chosen:
            found.append(query.restored_at - chosen)
    return found


def _last_choice(incident: IncidentView, query: QueryTimesView) -> float | None:
    """When a plan last chose it, before it was restored."""
    limit = query.restored_at if query.restored_at is not None else float("inf")
    times = [
        p.time for p in incident.plans if p.time <= limit and any(c.query == query.query for c in p.chosen)
    ]
    return max(times, default=None)


def _arrivals(incident: IncidentView) -> list[float]:
    """The detection, then the arrivals that led to a plan."""
    return [incident.opened_at, *(plan.time for plan in incident.plans if plan.trigger == "arrival")]


def _sample(seconds: Sequence[float]) -> Sample:
    return Sample(tuple(sorted(max(0.0, s) for s in seconds)))

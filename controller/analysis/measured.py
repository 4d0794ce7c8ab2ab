"""How long things took in this topology so far: restoring, catching up, and the time between arrivals of nodes.

Taken from the open incident and those before it.  An arrival is known by the plan that it led to, so one that changed
nothing is not counted.  A query that had not been seen back when its incident ended counts with what is known: it took at
least until then, and an answer that rests on it says "at least".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from reprise.controller.status import StatusDocument
from reprise.controller.status.model import IncidentView, QueryTimesView
from reprise.scheduler.incident import Trigger


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds, ascending; none at all means unknown."""

    seconds: tuple[float, ...] = ()
    """As measured."""
    at_least: tuple[float, ...] = ()
    """Of cases whose end was not seen: how long they took at least."""

    @property
    def range(self) -> tuple[float, float | None] | None:
        """Shortest and longest; the longest is None where a case was not measured to its end."""
        if not self.seconds and not self.at_least:
            return None
        low = self.seconds[0] if self.seconds else self.at_least[0]
        return low, None if self.at_least else self.seconds[-1]

    @property
    def middle(self) -> float | None:
        """Median of all cases; it is a lower bound where not all were measured."""
        return median((*self.seconds, *self.at_least)) if self.seconds or self.at_least else None

    @property
    def exact(self) -> bool:
        """There are cases, and all of them were measured."""
        return bool(self.seconds) and not self.at_least

    def __str__(self) -> str:
        if not self.seconds and not self.at_least:
            return "not measured yet"
        parts = [_span(self.seconds)] if self.seconds else []
        if self.at_least:
            parts.append(f"at least {_span(self.at_least)}, not measured to the end")
        return "; ".join(parts)


def _span(seconds: Sequence[float]) -> str:
    low, high = f"{seconds[0]:.1f}", f"{seconds[-1]:.1f}"
    span = f"{low} s" if low == high else f"{low} to {high} s"
    return f"{span} in {len(seconds)} case{'s' if len(seconds) > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Measured:
    restore: Sample
    """From the plan that chose a query until all of its partitions were at work."""
    catch_up: Sample
    """From then until it was back."""
    gaps: Sample
    """Between arrivals of nodes, the first counted from the detection."""
    last_arrival: float | None
    """Unix seconds: the last arrival of the open incident, or its detection."""


def measured(document: StatusDocument, earlier: Sequence[IncidentView] = ()) -> Measured:
    """Durations measured in the open incident, the last closed one, and `earlier` ones if somebody has them."""
    incidents = [*earlier, *(i for i in (document.last_incident, document.incident) if i is not None)]
    restore = [s for incident in incidents for s in _restores(incident)]
    catch_up, unseen = [], []
    for incident in incidents:
        for query in incident.queries:
            if query.restored_at is not None and query.caught_up_at is not None:
                catch_up.append(query.caught_up_at - query.restored_at)
            elif query.restored_at is not None and incident.closed_at is not None:
                unseen.append(incident.closed_at - query.restored_at)
    gaps = [b - a for incident in incidents for a, b in pairwise(_arrivals(incident))]
    last = _arrivals(document.incident)[-1] if document.incident else None
    return Measured(_sample(restore), _sample(catch_up, unseen), _sample(gaps), last)


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
    return [incident.opened_at, *(plan.time for plan in incident.plans if plan.trigger == Trigger.ARRIVAL)]


def _sample(seconds: Sequence[float], at_least: Sequence[float] = ()) -> Sample:
    return Sample(_rising(seconds), _rising(at_least))


def _rising(seconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted(max(0.0, s) for s in seconds))

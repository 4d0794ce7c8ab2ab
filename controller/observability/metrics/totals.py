"""Counters of what is on record, which go on when old records leave ZooKeeper.

ZooKeeper keeps the newest closed incidents and their plans (`reprise.controller.coordinator.history`).  A counter that
said how many there are would fall with each that leaves, and Prometheus takes a counter that falls for a process that has
begun anew: every incident after the hundredth would show as a hundred.  So what was seen once stays counted, for as long
as this process lives.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from reprise.controller.observability.metrics import catalogue
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.incident import PlanRecord

K = TypeVar("K", str, tuple[str, str])


@dataclass(slots=True)
class Totals:
    """The totals of one topology, since this process has seen it first."""

    incidents: Counter[str] = field(default_factory=Counter)
    """Closed ones, by kind."""
    plans: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By algorithm and outcome."""
    seconds: array[float] = field(default_factory=lambda: array("d"))
    """That each plan took."""
    starts: dict[str, array[float]] = field(default_factory=dict)
    """Seconds from the request for a node until a phase of its start was over, by phase."""
    _started: frozenset[tuple[str, str]] = frozenset()
    """Incident, node and phase of those that are on record."""
    _closed: frozenset[str] = frozenset()
    _planned: frozenset[str] = frozenset()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seen: Observation) -> None:
        """What is new in it.  Several may ask for metrics at once."""
        with self._lock:
            self._closed, closed = _new(self._closed, seen.closed, seen.connected)
            self.incidents.update(seen.closed[name].kind.value for name in closed)
            self._planned, planned = _new(self._planned, seen.plans, seen.connected)
            for plan in (seen.plans[name] for name in planned):
                self.plans[_algorithm(plan), _outcome(plan)] += 1
                self.seconds.append(plan.seconds)
            took = _starts(seen)
            self._started, ended = _new(self._started, took, seen.connected)
            for key in ended:
                self.starts.setdefault(key[1], array("d")).append(took[key])


def _starts(seen: Observation) -> Mapping[tuple[str, str], float]:
    """(incident and node, phase) -> seconds from the request until it was over."""
    return {
        (f"{incident.id} {node}", phase.value): seconds
        for incident in seen.incidents
        for node, start in incident.starts.items()
        for phase, seconds in start.seconds.items()
    }


def _new(known: frozenset[K], seen: Mapping[K, object], connected: bool) -> tuple[frozenset[K], list[K]]:
    """What is known now, and what was not before.  Names that are not on record any more may come again, as those of a
    topology that was made anew; while ZooKeeper is away nothing is known to have gone."""
    names = frozenset(seen)
    return (names if connected else known | names), sorted(names - known)


def _algorithm(plan: PlanRecord) -> str:
    name = str(plan.plan.get("algorithm"))
    return name if name in catalogue.PLANNED_BY else "other"


def _outcome(plan: PlanRecord) -> str:
    if not plan.added:
        return "nothing"
    return "partial" if plan.left_out else "complete"

"""How often topologies are looked at, when there are many of them on one core.

A look costs milliseconds.  Ten topologies can be looked at three times a second; a thousand cannot, and an operator that
tries is late where it matters, as threads of one process take turns.  So looks of each kind together get a share of a
core, by what they have cost lately, and the time between two looks at one topology follows from that.  What must be seen at
once (a heartbeat gone, a pod's end, a new spec) does not wait for the next look: it wakes the topology.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import StrEnum

_SMOOTH = 0.05


class PollKind(StrEnum):
    """Kinds of looks, by what they are for."""

    POLL = "poll"  # at a topology where nothing is going on: has it anything to say?
    DECIDE = "decide"  # snapshot, decision, transaction
    RECONCILE = "reconcile"  # pods, objects, status


SHARE = {PollKind.POLL: 0.08, PollKind.DECIDE: 0.4, PollKind.RECONCILE: 0.25}
"""Of one core, by the time of the threads that look; as much again goes for what they ask.  The rest is for watches,
ZooKeeper's thread, probes, and what was not foreseen."""
WHOLE_SHARE = 0.05
"""Of one core, for looking at everything of quiet topologies, in case something was not told."""
SHORTEST_WHOLE_S, LONGEST_WHOLE_S = 30.0, 300.0
SHORTEST_S = {PollKind.POLL: 1.0, PollKind.DECIDE: 0.3, PollKind.RECONCILE: 0.3}
"""Between two looks, however few topologies there are."""
LONGEST_S = {PollKind.POLL: 30.0, PollKind.DECIDE: 3.0, PollKind.RECONCILE: 30.0}


@dataclass(slots=True)
class PollRate:
    """The poll rate of one operator; used by several threads."""

    _cost_s: dict[PollKind, float] = field(default_factory=lambda: dict.fromkeys(PollKind, 0.0))
    _count: dict[PollKind, int] = field(default_factory=lambda: dict.fromkeys(PollKind, 0))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, look: PollKind, cpu_s: float) -> None:
        """A look has taken so much CPU time."""
        with self._lock:
            known = self._cost_s[look]
            self._cost_s[look] = cpu_s if not known else known + _SMOOTH * (cpu_s - known)

    def enter(self, look: PollKind) -> None:
        """One more topology is looked at in this way."""
        with self._lock:
            self._count[look] += 1

    def leave(self, look: PollKind) -> None:
        with self._lock:
            self._count[look] -= 1

    def between_s(self, look: PollKind) -> float:
        """Time between two looks at one topology."""
        fair = self._cost_s[look] * self._count[look] / SHARE[look]
        return min(LONGEST_S[look], max(SHORTEST_S[look], fair))

    def whole_s(self) -> float:
        """Time between two looks at everything of one quiet topology."""
        costs = self._cost_s[PollKind.DECIDE] + self._cost_s[PollKind.RECONCILE]
        fair = costs * self._count[PollKind.POLL] / WHOLE_SHARE
        return min(LONGEST_WHOLE_S, max(SHORTEST_WHOLE_S, fair))

"""What a driver sees of the starts of nodes, for its report.

Invariant: bounded.  A start is told of for as long as the coordinator may need to hear of it, and of so many nodes at once
that a report stays small.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from reprise.scheduler.node_start import NodeStart, StartPhase

TOLD_S = 600.0
"""For so long after the last that was seen of a node; a coordinator that is away for longer does not learn of it."""
TOLD = 100
"""Nodes that a report tells of, those of which something was seen last."""


@dataclass(slots=True)
class NodeStarts:
    """The starts that this driver has seen; from any thread."""

    clock: Callable[[], float] = time.time
    """Unix seconds, as the record has."""
    _starts: dict[str, NodeStart] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def saw(self, node: str, phase: StartPhase, at: float | None = None) -> None:
        """A phase of `node` (`node#incarnation`) is over, since `at` (unix seconds) or now; the first time counts."""
        self.saw_all(node, {phase: self.clock() if at is None else at})

    def saw_all(self, node: str, phases: Mapping[StartPhase, float]) -> None:
        """The same for several phases, each with its time."""
        with self._lock:
            before = self._starts.get(node, NodeStart())
            now = before.known({phase: round(at, 3) for phase, at in phases.items()})
            if now is not before:
                self._starts.pop(node, None)  # what was seen last stands last
                self._starts[node] = now

    def working(self, nodes: Collection[str]) -> None:
        """These have partitions at work; of interest where their start was seen."""
        for node in nodes:
            if node in self._starts and StartPhase.WORK not in self._starts[node].at:
                self.saw(node, StartPhase.WORK)

    def told(self) -> Mapping[str, NodeStart]:
        """What a report says; forgets what none needs any more."""
        with self._lock:
            since = self.clock() - TOLD_S
            recent = [(node, x) for node, x in self._starts.items() if max(x.at.values()) >= since]
            self._starts = dict(recent[-TOLD:])
            return dict(self._starts)

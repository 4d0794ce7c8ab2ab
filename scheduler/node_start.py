"""How a node starts: the phases from the request for it to its first work, and when each of them was over.

Whoever sees a phase end says when, by the clock of its own machine.  Times of one machine can be compared; between machines
they are as good as their clocks are, so a phase that ends on another machine than the one before may seem to have taken
no time, or less.

Invariant: a phase whose end nobody has seen is absent, and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class StartPhase(StrEnum):
    """What a node passes, in this order where nothing goes on beside it; each is over at one moment."""

    REQUESTED = "requested"
    """It was asked for: the cluster on one machine was told to add it, or its pod was created."""
    AGENT = "agent"
    """Its agent has been started and has its imports."""
    HEARTBEAT = "heartbeat"
    """Its agent registers it in ZooKeeper."""
    EXECUTOR = "executor"
    """The driver has seen its executor registered."""
    TASK = "task"
    """Its first task has begun: Spark's Python daemon and worker are there."""
    HOST = "host"
    """That task has reached the partition host, which has its imports."""
    READY = "ready"
    """An exchange reaches it, and the driver reports it as usable."""
    PLANNED = "planned"
    """The first plan that gives it partitions."""
    WORK = "work"
    """The driver has heard that a partition is at work on it."""


MAX_STARTS = 300
"""Nodes whose starts one incident keeps, the first ones, so that a record always fits a znode."""


@dataclass(frozen=True, slots=True)
class NodeStart:
    """When the phases of one node's start were over, unix seconds; those that are not known are not in it."""

    at: Mapping[StartPhase, float] = field(default_factory=dict)

    def known(self, more: Mapping[StartPhase, float]) -> NodeStart:
        """The start with `more`; what has been said once stands."""
        return self if more.keys() <= self.at.keys() else NodeStart({**more, **self.at})

    @property
    def seconds(self) -> Mapping[StartPhase, float]:
        """Seconds from the request until each phase was over, in the order of the phases.  Nothing where nobody knows when
        the node was asked for."""
        asked = self.at.get(StartPhase.REQUESTED)
        if asked is None:
            return {}
        return {phase: max(0.0, self.at[phase] - asked) for phase in LATER if phase in self.at}


LATER = tuple(phase for phase in StartPhase if phase is not StartPhase.REQUESTED)
"""Phases that take time."""


def eldest_first(starts: Mapping[str, NodeStart]) -> list[tuple[str, NodeStart]]:
    """Those that began first, first."""
    return sorted(starts.items(), key=lambda entry: (min(entry[1].at.values(), default=0.0), entry[0]))

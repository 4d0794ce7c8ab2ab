"""The records of a recovery: the incident and its plans.

An incident carries all that a successor of a killed coordinator needs to go on, in particular the costs that
held before the failure: what is measured while partitions catch up at full speed says nothing of normal
running, and plans made with it would find every node full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

MAX_EVENTS = 300
"""Of a timeline; beyond it the oldest but one go, so that a record always fits a znode."""


class Kind(StrEnum):
    """What failed, and so how it is recovered."""

    BLOCKING = "blocking"  # fewer than X nodes: all or nothing, with a rollback
    CORRELATED = "correlated"  # at least X nodes: by the strategy of the policy
    DRIVER = "driver"  # the driver started anew and with it everything
    START = "start"  # too little capacity for a first start: begin with the most valuable queries


class Phase(StrEnum):
    """Where a recovery stands."""

    SETTLING = "settling"  # the rest of a burst, or the nodes of a new driver, are waited for
    WAITING = (
        "waiting"  # something is failed, and no plan restores it now: none was made yet, or there is no room
    )
    RECOVERING = "recovering"  # something is being restored
    VERIFYING = "verifying"  # nothing is failed; a new global checkpoint is waited for
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LostNode:
    node: str
    """`node#incarnation`."""
    time: float


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the timeline."""

    time: float
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class QueryTimeline:
    """Of one query that the incident affects. `lost_at` is its first loss, the others belong to the last.
    `scheduler.back` says what they mean, and alone changes them."""

    lost_at: float
    restored_at: float | None = None
    """All of its partitions at work again."""
    caught_up_at: float | None = None
    """Since when it is back: its output near the newest batch, which has held."""
    losses: int = 1
    """How often a partition that it needs was lost."""
    relapses: int = 0
    """How often it was back and went down again."""
    up_s: float = 0.0
    """Seconds for which it was back before a relapse."""
    turning_since: float | None = None
    """Since when its output is near, and does not count as back yet, or far, and does not count as down yet."""
    turning_at: int = 0
    """Position of its output then."""


@dataclass(frozen=True, slots=True)
class Considered:
    """What the last plan looked at: the same again would give the same plan again."""

    nodes: frozenset[str]
    waiting: frozenset[str]
    """The failed partitions that it left."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One failure from detection until a global checkpoint is complete with nothing failed."""

    id: str
    kind: Kind
    phase: Phase
    opened_at: float
    checkpoint: int
    """The one that the incident is recovered from; a newer one closes it."""
    generation: int
    nodes_before: int
    settle_until: float
    driver_until: float | None = None
    """Set while the nodes of a new driver are waited for: no longer than this."""
    lost: tuple[LostNode, ...] = ()
    plans: tuple[str, ...] = ()
    queries: Mapping[str, QueryTimeline] = field(default_factory=dict)
    costs: Mapping[str, int] = field(default_factory=dict)
    """Milli-CPU of each partition as it was before the failure; all plans of the incident use these."""
    steady: Mapping[str, int] = field(default_factory=dict)
    """Batches between the output of each query and the newest one, as it was before the failure; absent: not known."""
    horizon: int = 0
    """The newest batch when the incident opened."""
    bad_checkpoints: frozenset[int] = frozenset()
    considered: Considered | None = None
    events: tuple[Event, ...] = ()
    closed_at: float | None = None

    def log(self, time: float, name: str, detail: str = "") -> Incident:
        """With one more line in the timeline, which is in the order of time."""
        later = sum(event.time > time for event in self.events)
        at = len(self.events) - later
        events = (*self.events[:at], Event(time, name, detail), *self.events[at:])
        if len(events) > MAX_EVENTS:
            events = (events[0], *events[-(MAX_EVENTS - 1) :])
        return replace(self, events=events)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A failed query that a plan could choose: what it needs now, alone."""

    query: str
    priority: int
    cost: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """One plan with all that explains it."""

    id: str
    incident: str
    time: float
    trigger: str
    """first | arrival | loss | blocking | start"""
    rollback: bool
    checkpoint: int
    generation: int
    free: Mapping[str, int]
    """Milli-CPU under the cap, by node, before this plan."""
    candidates: tuple[Candidate, ...]
    plan: Mapping[str, object]
    """The planner's answer in the format of `algorithms.plan_to_json`."""
    added: Mapping[str, str]
    """What the plan adds to the assignment."""
    seconds: float
    left_out: Mapping[str, str]
    """Why, for each failed query that stays down."""
    note: str = ""

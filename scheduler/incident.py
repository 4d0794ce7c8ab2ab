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
    """Of one query that the incident affects. `lost_at` is its first loss, the others belong to the last."""

    lost_at: float
    restored_at: float | None = None
    """All of its partitions at work again."""
    caught_up_at: float | None = None
    """Its output partition within a few batches of the horizon."""
    losses: int = 1


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
    bad_checkpoints: frozenset[int] = frozenset()
    considered: Considered | None = None
    events: tuple[Event, ...] = ()
    closed_at: float | None = None

    def log(self, time: float, name: str, detail: str = "") -> Incident:
        """With one more line in the timeline."""
        events = (*self.events, Event(time, name, detail))
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

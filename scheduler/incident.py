"""The records of a recovery: the incident and its plans.

An incident carries all that a successor of a killed coordinator needs to go on, in particular the costs that
held before the failure: what is measured while partitions catch up at full speed says nothing of normal
running, and plans made with it would find every node full.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from reprise.algorithms.positions import Line, Origin
from reprise.algorithms.spans import Span, Spans, batches, joined
from reprise.scheduler.node_start import NodeStart

MAX_EVENTS = 300
"""Of a timeline; beyond it the oldest but one go, so that a record always fits a znode."""

MAX_DETAILS = 512_000
"""Characters of all details of a timeline: some lines name a thousand queries each."""

MAX_RIVALS = 20
"""Chosen queries that a record names for one that is left out; each may have hundreds."""

MAX_NAMED = 20
"""Partitions that a line of the timeline gives reasons for."""


_NUMBER = re.compile(r"inc-(\d+)(?:-(\d+))?(?:-p(\d+))?")
"""Of the incident, of those that were given this number the how many-eth it is, and of its plan."""


def incident_id(seq: int) -> str:
    """The id of the incident that is opened with the desired state of this number."""
    return f"inc-{seq:06d}"


def number_in(name: str) -> int:
    """The number of the incident that this record, of one or of its plans, is about; 0 where it names none."""
    return _numbers(name)[0]


def _numbers(name: str) -> tuple[int, int, int]:
    """The numbers in the id of a record; 0 for each that it does not name."""
    found = _NUMBER.match(name)
    return (int(found[1]), int(found[2] or 0), int(found[3] or 0)) if found else (0, 0, 0)


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


class EventName(StrEnum):
    """What a line of an incident's timeline says has happened."""

    OPENED = "opened"
    NODE_LOST = "node-lost"
    QUERIES_LOST = "queries-lost"
    QUERIES_RESTORED = "queries-restored"
    QUERIES_CAUGHT_UP = "queries-caught-up"
    QUERIES_BEHIND = "queries-behind"
    BLOCKING = "blocking"
    CORRELATED = "correlated"
    DRIVER = "driver"
    START = "start"
    DRIVER_STARTED = "driver-started"
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    BUFFERS_DROPPED = "buffers-dropped"
    POISON = "poison"
    PLAN = "plan"
    PROMOTED = "promoted"
    TAKEN_OFF = "taken-off"
    STOPPED = "stopped"
    WAITING = "waiting"
    WENT_BACK = "went-back"
    BATCHES_SKIPPED = "batches-skipped"
    SKIP_ASKED = "skip-asked"
    RESTORED = "restored"
    FALSE_ALARM = "false-alarm"
    CLOSED = "closed"
    LINES_DROPPED = "lines-dropped"
    """Second line of a timeline that is not whole; its detail says how many lines are gone."""
    OTHER = "other"
    """What a record of another version says and this one does not know: the detail begins with its name."""


_NAMES = frozenset(name.value for name in EventName if name is not EventName.OTHER)


class Trigger(StrEnum):
    """What a plan was made for."""

    START = "start"  # a first start for which there is too little capacity
    FIRST = "first"  # the first plan after a correlated failure
    ARRIVAL = "arrival"  # a node has arrived
    LOSS = "loss"  # more was lost
    BLOCKING = "blocking"  # all that failed, at once


@dataclass(frozen=True, slots=True)
class LostNode:
    node: str
    """`node#incarnation`."""
    time: float


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the timeline."""

    time: float
    name: EventName
    detail: str = ""

    @staticmethod
    def of(time: float, name: str, detail: str = "") -> Event:
        """The line that a record has; a name that this version does not know stands at the beginning of the detail."""
        if name in _NAMES:
            return Event(time, EventName(name), detail)
        return Event(time, EventName.OTHER, f"{name} {detail}" if detail else name)

    @property
    def written(self) -> tuple[str, str]:
        """Name and detail as records and people have them; the inverse of `of`."""
        if self.name is EventName.OTHER:
            name, _, detail = self.detail.partition(" ")
            return name, detail
        return self.name.value, self.detail


@dataclass(frozen=True, slots=True)
class QueryTimeline:
    """The times of one query that the incident affects. `lost_at` is its first loss, the others belong to the last.
    `reprise.scheduler.back` says what they mean, and alone changes them."""

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
class Incident(Line):
    """One failure from detection until a global checkpoint is complete with nothing failed."""

    id: str
    kind: Kind
    phase: Phase
    opened_at: float
    checkpoint: int
    """The one that the incident is recovered from; one that is newer for every partition closes it."""
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
    lines: Mapping[str, Origin] = field(default_factory=dict)
    """Partitions that are recovered from another snapshot than the one at `checkpoint`."""
    starts: Mapping[str, NodeStart] = field(default_factory=dict)
    """How the nodes started that have come since the incident was opened, by `node#incarnation`."""
    skipped: Mapping[str, Spans] = field(default_factory=dict)
    """Partitions that began anew in this incident, with the batches that lack their rows."""
    marked: Mapping[str, Spans] = field(default_factory=dict)
    """Queries with gaps for that reason: batches that may lack rows, each of them marked where it is shown."""

    @property
    def turn(self) -> tuple[int, int, int, float]:
        """Sorts incidents as they were opened, whatever the clocks of the coordinators said that opened them."""
        return *_numbers(self.id), self.opened_at

    def log(self, time: float, name: EventName, detail: str = "") -> Incident:
        """The incident with one more line in the timeline, which is in the order of time."""
        at = sum(event.time <= time for event in self.events)
        return replace(
            self, events=_bounded((*self.events[:at], Event(time, name, detail), *self.events[at:]))
        )

    @property
    def promoted(self) -> bool:
        """Whether a standby was promoted in it."""
        return any(event.name is EventName.PROMOTED for event in self.events)

    @property
    def whole(self) -> bool:
        """Whether the timeline has all of its lines."""
        return not any(event.name is EventName.LINES_DROPPED for event in self.events)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A failed query that a plan could choose, with what it would take alone.  Which partitions that are follows from the
    topology and the plan's `pending`: written down for each query they would be queries times partitions."""

    query: str
    priority: int
    cost: int


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """One plan with all that explains it."""

    id: str
    incident: str
    time: float
    trigger: Trigger
    rollback: bool
    checkpoint: int
    generation: int
    free: Mapping[str, int]
    """Milli-CPU under the cap, by node, before this plan; where it goes above the cap, what that leaves."""
    candidates: tuple[Candidate, ...]
    plan: Mapping[str, object]
    """The planner's answer in the format of `reprise.algorithms.plan_to_json`, without what follows from the rest of the
    record."""
    added: Mapping[str, str]
    """What the plan adds to the assignment."""
    seconds: float
    left_out: Mapping[str, str]
    """Why, for each failed query that stays down."""
    note: str = ""
    slowdown: Mapping[str, float] = field(default_factory=dict)
    """How many times as long as it should what runs there takes, for each node above its cap after this plan."""
    pending: tuple[str, ...] = ()
    """The partitions without a place that it could place, in topological order: those that failed, and survivors that gave
    their room (`reprise.scheduler.eviction`)."""
    anew: tuple[str, ...] = ()
    """Those of `added` that begin anew, as somebody has asked to skip a query (`reprise.scheduler.skips`)."""

    @property
    def turn(self) -> tuple[int, int, int, float]:
        """Sorts plans as they were made, whatever the clocks of the coordinators said that made them."""
        return *_numbers(self.id), self.time

    def needs(self, query: Collection[str]) -> tuple[str, ...]:
        """Those of the pending partitions that a query with these partitions needs."""
        return tuple(partition for partition in self.pending if partition in query)


def gaps_of(incidents: Iterable[Incident]) -> dict[str, Spans]:
    """Query -> batches that may lack rows, by all of these incidents; what two of them name is there once."""
    found: dict[str, list[Span]] = {}
    for incident in incidents:
        for query, spans in incident.marked.items():
            found.setdefault(query, []).extend(span for span in spans if span[0] <= span[1])
    return {query: joined(spans) for query, spans in found.items() if spans}


def batches_in(marked: Mapping[str, Spans]) -> int:
    """How many batches of outputs these are."""
    return sum(batches(spans) for spans in marked.values())


def some(parts: Sequence[str]) -> str:
    """Name as many as a line of the timeline names, and how many more there are."""
    more = [f"and {len(parts) - MAX_NAMED} more"] if len(parts) > MAX_NAMED else []
    return "; ".join([*parts[:MAX_NAMED], *more])


def _bounded(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The same, or where they are too many or say too much: without the oldest but one, and with a line that says so."""
    size = sum(len(event.detail) for event in events)
    if len(events) < 3 or (len(events) <= MAX_EVENTS and size <= MAX_DETAILS):
        return events
    first, *rest = events
    dropped = sum(int(event.detail) for event in rest if event.name is EventName.LINES_DROPPED)
    kept = deque(event for event in rest if event.name is not EventName.LINES_DROPPED)
    since = kept[0].time
    while len(kept) > 1 and (len(kept) > MAX_EVENTS - 2 or size > MAX_DETAILS):
        since = kept[0].time
        size -= len(kept.popleft().detail)
        dropped += 1
    return (first, Event(since, EventName.LINES_DROPPED, str(dropped)), *kept)

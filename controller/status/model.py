"""The parts of the status document.  Times are unix seconds, CPU is in milli-cores, positions and checkpoints are batches.

The document grows with partitions, queries and plans, and not with how many of them need each other: ten million edges
between ten thousand partitions are a few between their operators.

Invariant: what is not known is None, never 0 or an empty text.  A field may be added; one that is there keeps its name and
meaning as long as `FORMAT` stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reprise.algorithms.outside import Outside
from reprise.algorithms.spans import Spans
from reprise.controller.status.failure_domains import FailureDomainsView
from reprise.controller.status.partition_state import NodeState, PartitionState
from reprise.controller.status.query_state import Status
from reprise.spark_jobs.topology.promise import NO_PROMISE, Guarantee, Promise

FORMAT = "reprise.dev/status/v2"


class CalmPhase(StrEnum):
    """How a topology stands while no incident is open; in one it stands in the incident's phase."""

    STARTING = "starting"
    STEADY = "steady"
    SILENT = "silent"
    PAUSED = "paused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class OperatorView:
    name: str
    kind: str
    """source | operator | output"""
    partitions: tuple[str, ...]
    """Their ids, in order of index."""
    layer: int
    """Longest way from a source, feedback edges left aside: a column of the drawn graph."""
    height: float
    """Middle of its place within the column, in rows of partitions: few edges cross when it is drawn so."""
    standbys: bool = False
    """Whether its partitions are to have standbys."""
    failure_domain: str | None = None
    """The label of nodes that `standby.failureDomain` names, else `nodes.failureDomain`."""
    guarantee: Guarantee | None = None
    """What is promised of its output; None where it has none, and where it cannot be told from here."""
    limited_by: tuple[str, ...] = ()
    """Operators at or upstream of it without which more would be promised."""
    limited_because: str = ""
    """In words why no more is promised, also where it cannot be told, and what is given up; empty where it is `precise` and
    nothing is, or has no output."""
    given_up: tuple[str, ...] = ()
    """What settings of sources upstream of its output, and of its sink, give up, in words."""

    @property
    def promise(self) -> Promise | None:
        """What is promised of its output; None where it has none, or a controller of an earlier version does not say."""
        found = Promise(self.guarantee, self.limited_by, self.given_up)
        return None if found == NO_PROMISE else found


@dataclass(frozen=True, slots=True)
class EdgeView:
    origin: str
    target: str
    label: str
    """How rows are spread: by keys, forward, broadcast; empty for a single partition."""
    feedback: bool
    forward: bool
    """Partition k of the target reads partition k of the origin alone; else each reads all of them."""


@dataclass(frozen=True, slots=True)
class GraphView:
    operators: tuple[OperatorView, ...]
    """In topological order."""
    edges: tuple[EdgeView, ...]


@dataclass(frozen=True, slots=True)
class AimView:
    """What follows from the objective of a query for a partition that is stored slot by slot."""

    within_s: float
    """Seconds in which it is to be read and replayed."""
    extent: int
    """Footprints and closings that it may have to read back (Q)."""
    replay: int
    """Rows behind its oldest footprint (U)."""
    least_s: float
    """What it takes at best; more than `within_s`: it cannot be."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    id: str
    operator: str
    state: PartitionState
    reason: str
    """Empty while it is running."""
    position: int | None
    """Last batch applied; None where it is not at work."""
    lag: int | None
    """Batches between it and the last one that is due, released or not; None where it is not at work."""
    node: str | None
    """`node#incarnation`: where it is, or is being restored."""
    cost: int
    """Milli-CPU that plans count: frozen by the open incident, else the greater of declared and measured."""
    needed_by: int
    """How many queries need it.  Which these are, and what it reads, follows from the edges between operators."""
    state_bytes: int | None = None
    """Size of its newest stored state; 0: it has none; None: the driver has not said yet."""
    standby: str | None = None
    """`node#incarnation` of its standby; None where none was placed."""
    standby_position: int | None = None
    """Last batch that its standby has applied, or has the state of; None: none could go on in its place now."""
    standby_apart: bool | None = None
    """Whether its standby is in another failure domain; None: there is none, no label is named, or nobody can say."""
    backed: bool | None = None
    """Whether it could be fed again now by what its upstreams keep; None where it is not to be."""
    load_s: float | None = None
    """Seconds in which it would read its state if it were lost now; None: not known, as the two following."""
    replay_s: float | None = None
    """In which it would apply once more what came after that, at most, since the snapshot before its newest; with a standby
    that could go on in its place, what that one lacks."""
    replay_rows: int | None = None
    """Rows of that."""
    assumed: tuple[str, ...] = ()
    """load, replay: which of these rest on rates that were not measured here."""
    aim: AimView | None = None
    """How much it may have to do, where that follows from an objective."""
    lag_s: float | None = None
    """Seconds of the stream that `lag` stands for; None: it is not at work, or batches have no fixed interval."""
    input_rows_s: float | None = None
    """Rows a second that it has applied, over several batches; None: it is not at work, or the driver does not say."""
    checkpoint: int | None = None
    """Batch of its snapshot in the newest complete checkpoint; 0: the initial state.  None before a driver has reported."""
    error: str | None = None
    """What the driver says has failed on it, until it is at work again; None: nothing."""
    watermark: float | None = None
    """Event time, in unix seconds, below which no row will come any more, late ones apart.  None: it has none (yet), its
    input has ended, it is not at work, or the driver does not say."""
    input_ended: bool = False
    """Whether no row will come any more at all."""
    waits_for: Outside | None = None
    """What of the outside it waits for at this moment; None: nothing, or it is not at work."""


@dataclass(frozen=True, slots=True)
class QueryView:
    id: str
    priority: int
    state: Status
    lag: int
    """Batches between its output and the last one that is due."""
    reason: str
    """Why it waits, or what it is doing; empty where there is nothing to say."""
    partitions: int
    """How many it needs."""
    missing: tuple[str, ...]
    """The first of its partitions that are waiting, being restored or poisoned, in topological order."""
    missing_total: int
    """How many there are."""
    lost_at: float | None
    """In the open incident, as the two following."""
    restored_at: float | None
    caught_up_at: float | None
    stalled_since: float | None = None
    """All of its partitions are at work, and its output has not advanced since then although batches are due."""
    recovery_s: float | None = None
    """In how many seconds it would be back if the node that it needs most of were lost now, and another one had room for all
    that was there; None: not known."""
    slowest_node: str | None = None
    """`node#incarnation` of that node."""
    objective_s: float | None = None
    """In how many seconds it is to be back; None: nobody says."""
    held: bool | None = None
    """Whether `recovery_s` is no more than that; None: not known, or nobody says in how many."""
    lag_s: float | None = None
    """Seconds of the stream that `lag` stands for; None: batches have no fixed interval."""
    gaps: Spans = ()
    """The newest batches of its output that may lack rows, by all incidents on record; each is marked where it is shown."""
    gaps_total: int = 0
    """How many such spans there are."""


@dataclass(frozen=True, slots=True)
class QueriesView:
    total: int
    available: int
    recovering: int
    waiting: int
    priority_total: int
    """Summed priority of all queries."""
    priority_available: int
    """Summed priority of those that are available."""
    share: float
    """Priority-weighted share of available queries, 0..1."""
    items: tuple[QueryView, ...]
    """The most valuable first."""


@dataclass(frozen=True, slots=True)
class NodeView:
    id: str
    """`node#incarnation`."""
    name: str
    state: NodeState
    cpu: int | None
    """Milli-CPU; None of a node that is gone."""
    partitions: int
    """How many are assigned to it."""
    used: int
    """Milli-CPU of the partitions that are assigned to it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of its labels those that are failure domains (`nodes.failureDomain`, `standby.failureDomain`); those that it is not
    known to have are absent."""
    slowdown: float | None = None
    """How many times as long as it should what runs there takes, where a plan went above the cap; None under it."""


@dataclass(frozen=True, slots=True)
class RebalancingView:
    """Load that is levelled by planned moves (`recovery.rebalance`)."""

    moving: Mapping[str, str]
    """Partition -> `node#incarnation`, of what is on its way; at most one."""
    left: int
    """How many are to follow."""
    due: float | None
    """When load is looked at next, unix seconds; None while partitions move."""


@dataclass(frozen=True, slots=True)
class OverheadView:
    """Seconds that each recovery takes, however much it restores."""

    detection_s: float
    """From the death of a node until its heartbeat is gone."""
    plan_s: float
    """From then until it is known what is to be restored where."""
    install_s: float
    """From then until a partition is at work, without reading its state."""
    assumed: tuple[str, ...]
    """plan, install: which of these were not measured yet."""


@dataclass(frozen=True, slots=True)
class CheckpointView:
    newest: int
    """The newest complete global checkpoint; 0 is the initial state."""
    announced: int
    """The newest that was begun."""
    age_batches: int
    """Batches from its oldest position to the newest that was released."""
    restored_from: int
    """What the newest desired state restores from."""
    enabled: bool
    """False from the detection of a failure until everything is back, and while the topology is paused."""


@dataclass(frozen=True, slots=True)
class ChosenView:
    query: str
    priority: int
    cost: int
    """What it adds to the queries before it."""
    restores: tuple[str, ...]
    """Partitions that it adds to those of the queries before it."""


@dataclass(frozen=True, slots=True)
class LeftOutView:
    query: str
    priority: int
    reason: str
    code: str | None
    """too-large | outbid | packing | not-completed | not-found | order; None where another than the planner left it out."""
    missing: tuple[str, ...]
    """The first of its partitions that were lost and that the plan does not restore."""
    missing_capacity: int | None
    """Milli-CPU beyond what is free that adding it to the plan would take; 0: it fits in sum, and on no node."""
    competes_with: tuple[str, ...]
    """Chosen queries that would have to make way."""
    enters_at: int | None
    """Least free capacity at which it comes in."""
    entry_exact: bool
    """False: at `enters_at` it comes in for certain, and it may come in earlier."""


@dataclass(frozen=True, slots=True)
class PlanView:
    id: str
    time: float
    trigger: str
    """A `Trigger`; that of a newer controller may be none that is known here."""
    summary: str
    rollback: bool
    """Whether partitions at work go back to the checkpoint as well."""
    checkpoint: int
    """Position from which partitions are restored."""
    algorithm: str | None
    why: str
    """Why this algorithm."""
    value: int | None
    """Summed priority of the queries that it brings back."""
    bound: int | None
    """No plan for the same capacity is worth more."""
    optimal: bool | None
    seconds: float
    """Spent on planning."""
    free: Mapping[str, int]
    """Milli-CPU under the cap before the plan, by `node#incarnation`."""
    added: Mapping[str, str]
    """Where each partition that it places goes: partition -> `node#incarnation`."""
    at_work: int
    """Of the partitions in `added`."""
    chosen: tuple[ChosenView, ...]
    left_out: tuple[LeftOutView, ...]
    note: str


@dataclass(frozen=True, slots=True)
class EventView:
    time: float
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class LostNodeView:
    node: str
    """`node#incarnation`."""
    time: float
    """When its loss was noticed."""


@dataclass(frozen=True, slots=True)
class NodeStartView:
    """The start of a node that came while the incident was open."""

    node: str
    ended: Mapping[str, float]
    """When each phase of its start was over; phases of which that is not known are absent."""
    seconds: Mapping[str, float]
    """From the request for it until then; empty where nobody knows when that was."""


@dataclass(frozen=True, slots=True)
class QueryTimesView:
    query: str
    priority: int
    lost_at: float
    restored_at: float | None
    caught_up_at: float | None
    """Since when it is back."""
    losses: int
    """How often a partition that it needs was lost."""
    relapses: int = 0
    """How often it was back and went down again."""
    down_s: float = 0.0
    """How long it was down, without the time for which it was back in between."""
    measured: bool = False
    """False: it has not been seen back, so it is `down_s` at least."""


@dataclass(frozen=True, slots=True)
class IncidentView:
    id: str
    kind: str
    phase: str
    opened_at: float
    closed_at: float | None
    checkpoint: int
    """Position that it is recovered from."""
    nodes_before: int
    """How many nodes there were before the first loss."""
    lost: tuple[LostNodeView, ...]
    queries_lost: int
    queries_back: int
    """How many have caught up since."""
    queries: tuple[QueryTimesView, ...]
    """Each that it affected, the most valuable first."""
    plans: tuple[PlanView, ...]
    """Oldest first."""
    events: tuple[EventView, ...]
    """The time line: plans with their summary among them."""
    recovery: str = ""
    """How many queries are back, in which time, and what of the others is known; one sentence."""
    starts: tuple[NodeStartView, ...] = ()
    """Of nodes that have come since it was opened; those that began first, first."""
    skipped: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Partitions that began anew: first and last batch that what reads them did without their rows."""
    marked: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Queries with a gap for that reason: first and last batch that may lack rows, each of them marked."""
    skipped_spans: Mapping[str, Spans] = field(default_factory=dict)
    """As `skipped`, without the batches between two gaps."""
    marked_spans: Mapping[str, Spans] = field(default_factory=dict)
    """As `marked`, without the batches between two gaps."""

    @property
    def gaps(self) -> Mapping[str, Spans]:
        """The same by query; a controller of an earlier version does not tell gaps apart."""
        return {query: self.marked_spans.get(query, (span,)) for query, span in self.marked.items()}


@dataclass(frozen=True, slots=True)
class AvailabilityPoint:
    """What holds from `time` on, until the next point."""

    time: float
    share: float
    """Priority-weighted share of available queries, 0..1."""
    available: int
    """How many queries were available."""
    bound: float | None
    """The share that the capacity of then allows at most; None where no plan has looked at it."""


@dataclass(frozen=True, slots=True)
class AvailabilityView:
    points: tuple[AvailabilityPoint, ...]
    complete: bool
    """False when an incident had more events than its record holds."""


@dataclass(frozen=True, slots=True)
class CounterView:
    """One number that an operator counts (`Operator.counters`), summed over its partitions at work."""

    operator: str
    name: str
    value: int


@dataclass(frozen=True, slots=True)
class StandbysView:
    wanted: int
    """Partitions that are to have one."""
    placed: int
    """Of these, those for which a node was found."""
    ready: int
    """Of these, those that could go on in their partition's place now."""
    missing: int
    """Wanted and not ready, but for partitions whose code raised."""
    apart: int
    """Placed in another failure domain than their partition, of operators that name a label."""
    same_domain: int
    """Placed in the failure domain of their partition."""
    unknown_domain: int
    """Placed where nobody can say: a node is not known to have the label."""


@dataclass(frozen=True, slots=True)
class SkipView:
    """A wish to let a query do without what it has missed, that is not carried out yet."""

    query: str
    taken: bool
    """Whether a coordinator has taken it up; until then it can be taken back."""
    partitions: tuple[str, ...]
    """Those that are to begin anew and are not at work yet."""


@dataclass(frozen=True, slots=True)
class StatusDocument:
    format: str
    topology: str
    time: float
    connected: bool
    """False: ZooKeeper does not answer, and the rest is what was known last."""
    phase: str
    """A `CalmPhase`, or the phase of the open incident."""
    batch: int
    """The newest that was released."""
    due: int
    """The last that should be released by now."""
    ended: bool
    queries: QueriesView
    incident: IncidentView | None
    """The open one."""
    plan: PlanView | None
    """The newest of the open incident."""
    last_incident: IncidentView | None
    """The newest closed one."""
    incidents: int
    """How many there have been, all together."""
    nodes: tuple[NodeView, ...]
    checkpoint: CheckpointView | None
    buffers: Mapping[str, int]
    """Bytes kept for replay: memory, disk."""
    problems: tuple[str, ...]
    """What the driver complains of, and records that could not be read."""
    graph: GraphView
    partitions: tuple[PartitionView, ...]
    """In topological order."""
    availability: AvailabilityView
    counters: tuple[CounterView, ...] = ()
    """What operators count: rows that were dropped as too late, keys that are kept; by operator and name."""
    standbys: StandbysView | None = None
    """None where no operator is to have any."""
    skips: tuple[SkipView, ...] = ()
    """What `reprise skip` has asked for, as long as it is not carried out."""
    rebalancing: RebalancingView | None = None
    """Load that is being levelled, or will be looked at; None where nothing of the kind is to come."""
    overhead: OverheadView | None = None
    """Of a recovery that would begin now; None where a controller of an earlier version does not say."""
    failure_domains: FailureDomainsView | None = None
    """None where `nodes.failureDomain` names no label, or no node is there."""
    batch_interval_s: float | None = None
    """Seconds between batches; None: they have no fixed interval, or a controller of an earlier version does not say."""
    chained: str = ""
    """Why messages travel with the stages of jobs; empty: an exchange carries them, or no job has begun."""

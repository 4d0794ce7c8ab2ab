"""What the scheduler sees: one immutable snapshot of a topology, its nodes, its driver and the records.

Nodes are named with their incarnation, `node#incarnation`: a node that comes back after it was lost is another
node, with no state. CPU is in milli-cores, times are seconds since the epoch, positions and checkpoints are
batch numbers (checkpoint 0: the initial state, always there).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from reprise.algorithms.cpu import under_cap
from reprise.algorithms.failure import Failure
from reprise.algorithms.outside import Outside
from reprise.algorithms.positions import Line, Origin, Positions
from reprise.algorithms.recovery_time import RestoreWork
from reprise.algorithms.spans import Spans
from reprise.scheduler.incident import Incident
from reprise.scheduler.node_start import NodeStart


class Strategy(StrEnum):
    """How a correlated failure is recovered."""

    INCREMENTAL = "incremental"  # plan by plan, whole queries, the most valuable first
    BLOCKING = "blocking"  # stop everything until the former number of nodes is there
    OPERATOR_CENTRIC = "operator-centric"  # plan by plan, partitions in topological order
    BEST_CASE = "best-case"  # as incremental, with standby nodes that are ready at once

    @property
    def whole_queries(self) -> bool:
        """Whether plans are made for whole queries; the others leave what survived where it is, or stop everything."""
        return self in (Strategy.INCREMENTAL, Strategy.BEST_CASE)


class Scope(StrEnum):
    """What goes back to the newest checkpoint with what failed, in a recovery of whole queries."""

    GLOBAL = "global"  # everything
    ANCESTORS = "ancestors"  # what has to make again what the failed ones read
    PARTITION = "partition"  # those alone that cannot be fed any more: the driver finds them
    AUTO = "auto"  # nothing that lives, where its output since then is still there; else the ancestors


class Order(StrEnum):
    """Which of several queries come back first."""

    VALUE = "value"  # those that together have the most priority for the capacity that is there
    STRICT = "strict"  # the most valuable first, whatever it costs: none before one of a higher priority


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of decisions."""

    strategy: Strategy = Strategy.INCREMENTAL
    scope: Scope = Scope.AUTO
    by_driver: bool = False
    """Partitions store themselves by their own clocks, and the driver finds from which snapshot each is restored."""
    correlated_nodes: int = 2
    """X: nodes lost since the last global checkpoint from which a failure is correlated (Su and Zhou, 4.2.1)."""
    window_s: float | None = None
    """Losses longer ago than this are not counted; None: all since the last global checkpoint are."""
    cpu_cap: float = 0.8
    """Share of a node's CPU that plans may fill."""
    overcommit: float = 0.0
    """Share of a node's CPU that plans of an incident may fill where a query would be left out otherwise; 0: the cap holds
    (`reprise.scheduler.overcommit`)."""
    rebalance: bool = False
    """After an incident, and when nodes come, load is levelled by planned moves (`reprise.scheduler.rebalancing`)."""
    rebalance_after_s: float = 30.0
    """So long things have to be calm first: what is measured is the median of 24 s, and nodes that come do so together."""
    order: Order = Order.VALUE
    algorithm: str = "auto"
    """Planner by its registered name; the operator-centric strategy has its own."""
    time_limit_s: float = 1.0
    """Longest time that one plan may take."""
    settle_s: float = 1.0
    """How long after a first loss to wait for the rest of the burst, so that one plan serves all of it."""
    nodes_wanted: int = 2
    """Nodes that the topology starts on; what is there beyond them stands by."""
    node_cpu_milli: int = 1000
    """CPU of a node that is gone, and of which nothing else is known any more."""
    driver_grace_s: float = 30.0
    """How long after a restart of the driver to wait for as many nodes as there were before."""
    failure_domain: str | None = None
    """Label of nodes; those with the same value are lost together (`reprise.scheduler.domains`)."""

    def cap_of(self, cpu_milli: int) -> int:
        """What plans may use of a node, milli-CPU."""
        return under_cap(self.cpu_cap, cpu_milli)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition with the ids of the partitions that it reads (`feedback`: the batch before)."""

    id: str
    upstream: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()
    cpu_milli: int = 1
    """Declared CPU."""


@dataclass(frozen=True, slots=True)
class QueryView:
    """An output partition with everything upstream of it, itself included."""

    id: str
    priority: int
    partitions: Set[str]


@dataclass(frozen=True, slots=True)
class TopologyView:
    """`partitions` in topological order. Not `deterministic`: a failure rolls all back, unless what may differ
    waits for passive standbys and goes on there (`Progress.output_waits`)."""

    name: str
    partitions: tuple[PartitionView, ...]
    queries: tuple[QueryView, ...]
    deterministic: bool = True
    standbys: Set[str] = frozenset()
    """Partitions that are to have a standby."""
    passive: Set[str] = frozenset()
    """Those of them whose standbys are passive: they hold a copy of the state and step nothing."""
    domains: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Partition -> label of nodes in which its standby is to differ, of those for which one is named."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """Why a node is to be emptied, for people, and when it will be gone, seconds since the epoch (None: nobody says)."""

    reason: str
    by: float | None = None


@dataclass(frozen=True, slots=True)
class SkipWish:
    """A person wants a query to do without what it has missed (`reprise.scheduler.skips`)."""

    id: str
    """Another one each time that somebody asks: a wish is taken once."""


@dataclass(frozen=True, slots=True)
class Moving:
    """Partitions on their way to other nodes, without a rollback."""

    to: Mapping[str, str] = field(default_factory=dict)
    """Partition -> `node#incarnation` to which it goes with a checkpoint behind `after`; empty: all have been given theirs,
    and are waited for."""
    after: int = 0
    begun: bool = False
    """The most valuable of them have been given theirs already, before a deadline."""
    considered: frozenset[str] = frozenset()
    """Nodes that were there, with a mark on those to be emptied, when this was decided: with others it is decided anew, and
    with the same ones no plan is made again for what has no room before a deadline."""
    rebalances: bool = False
    """It is one to level load: nobody has to leave, so it is given up where anything speaks against it."""


@dataclass(frozen=True, slots=True)
class Rebalancing:
    """How far load is levelled over the nodes that are there (`reprise.scheduler.rebalancing`)."""

    nodes: frozenset[str]
    """The nodes that it is levelled over, as `node#incarnation`; with others it begins anew."""
    at: float
    """Seconds since the epoch before which nothing more is planned."""
    rounds: int
    """How often moves may still be planned; 0 with no moves left: it is over."""
    to: Mapping[str, str] = field(default_factory=dict)
    """Partition -> `node#incarnation`, of the moves of this round that have not begun."""

    @property
    def over(self) -> bool:
        return not self.rounds and not self.to


@dataclass(frozen=True, slots=True)
class Node:
    """A living node."""

    name: str
    incarnation: int
    cpu_milli: int
    start: NodeStart = field(default_factory=NodeStart, compare=False)
    """What its agent says of its start; it makes no difference to what the node can do."""
    leaving: Leaving | None = None
    """It is to be emptied, and given nothing more."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Of the machine, as far as somebody names them as failure domains."""

    @property
    def id(self) -> str:
        """`node#incarnation`."""
        return f"{self.name}#{self.incarnation}"


@dataclass(frozen=True, slots=True)
class Progress:
    """What the driver says of itself; field meanings in docs/recovery.md."""

    driver: str
    seq: int = 0
    generation: int = 0
    nodes: frozenset[str] = frozenset()
    positions: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, Failure] = field(default_factory=dict)
    horizon: int = 0
    punctuation: int = 0
    ended: bool = False
    done: bool = False
    checkpoint: int = 0
    lines: Mapping[str, int] = field(default_factory=dict)
    """Partition -> batch of its snapshot in the newest complete checkpoint, of those that are not at `checkpoint`."""
    restored: Mapping[str, int] = field(default_factory=dict)
    """Partition -> batch of the snapshot that it was restored from since something failed, where the driver chose it."""
    bad_checkpoints: frozenset[int] = frozenset()
    not_kept: frozenset[str] = frozenset()
    """Partitions at work whose upstreams hold no longer what they need: only a rollback of all feeds them."""
    buffers: Mapping[str, int] = field(default_factory=dict)
    stuck: str = ""
    """Why nothing moves although nodes are there: jobs that fail the same way again and again."""
    drained: int | None = None
    """The checkpoint at which it has stopped for good, so that other code may go on."""
    time: float = 0.0
    trimmed: int = 0
    """The stream cannot begin again behind this batch: the input up to it was given up."""
    kept_since: int | None = None
    """What is restored from this batch or a later one is sent all that it needs by the partitions at work; None: the driver
    does not say."""
    due: int = 0
    """The last batch that should be released by now, as the stream's clock says."""
    turns: int = 0
    """How many turns the driver's loop has begun."""
    turn_limit_s: float = 0.0
    """A loop that begins no other turn for so long is hung; 0: the driver does not say."""
    jobs: int = 0
    """How many jobs it has begun."""
    chained: str = ""
    """Why messages travel with the stages of jobs; empty: an exchange carries them, or no job has begun."""
    problems: tuple[str, ...] = ()
    """What it complains of, for people; the newest last."""

    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What operators count, by operator and name, summed over their partitions at work."""
    starts: Mapping[str, NodeStart] = field(default_factory=dict)
    """What the driver says of the starts of the nodes that came last, by `node#incarnation`."""
    skipped: Mapping[str, Spans] = field(default_factory=dict)
    """Partition -> batches without its rows, as it began anew (`availability: amnesia`, `reprise skip`): at least those
    behind the checkpoint that the desired state restores from."""
    marked: Mapping[str, Spans] = field(default_factory=dict)
    """Output partition -> batches that may lack rows for that, of the same time."""
    standbys: Mapping[str, int] = field(default_factory=dict)
    """Partition -> the last batch that its standby has applied, or has the state of, of those that could be promoted."""
    backed: Set[str] = frozenset()
    """Partitions that could be fed again by what their upstreams keep (`availability: upstream-backup`)."""
    unbacked: Set[str] = frozenset()
    """Those that are to be, and would come from a checkpoint if they were lost now."""
    overhead: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each part of a recovery, however much it restores, that were measured (`Overhead`)."""
    adopted: Mapping[str, str] = field(default_factory=dict)
    """Partition -> `node#incarnation`, of those that a new driver has found at work where they were, and goes on with, until
    something is decided for it."""
    stored: Mapping[str, float] = field(default_factory=dict)
    """What checkpoints have cost in this driver's life; keys as in docs/recovery.md."""
    settings: str = ""
    """Which settings of the topology it follows; empty: one that knows of none."""
    deterministic: bool = True
    """A replay by the code that runs gives the same again.  While it drains, the topology may say otherwise already."""
    output_waits: Set[str] = frozenset()
    """Partitions whose output waits until their passive standbys have it: all of which a replay may differ, or none."""
    waits: Mapping[str, Outside] = field(default_factory=dict)
    """Partition at work -> what of the outside it waits for, as it cannot be read, or written, now."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Partition -> the wish (`Desired.anew`) that it begin anew which the driver does not carry out: it is restored."""

    @property
    def poisoned(self) -> dict[str, Failure]:
        """Partitions whose own code has failed, with what was said of it."""
        return {p: failure for p, failure in self.failed.items() if failure.is_poison}

    @property
    def covers(self) -> Positions:
        """Up to which batch each partition is stored in the newest complete checkpoint."""
        return Positions(self.checkpoint, self.lines)

    @property
    def newest(self) -> int:
        """The last batch that is due, whether it could be released or not: a source, the ledger or the driver may wait, and
        a topology that is too slow is given no more than a window."""
        return max(self.horizon, self.due)


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """Measured load of a partition."""

    cpu_milli: float
    state_bytes: int = 0
    """Size of the partition's newest stored state; 0 for one without."""
    restore: RestoreWork | None = None
    """What it would have to do if it were lost now; None: the driver does not say."""
    input_rows_s: float | None = None
    """Rows a second that it has applied, over several batches; None: the driver does not say."""
    watermark: int | None = None
    """Microseconds of event time below which no row will come any more, late ones apart; None: it has none, its input has
    ended, or the driver does not say."""
    input_ended: bool = False
    """Whether no row will come any more at all."""


def of_standby(partition: str) -> str:
    """The name under which the load of a partition's passive standby is in the statistics: with a blank, no partition's."""
    return f"{partition} standby"


@dataclass(frozen=True, slots=True)
class Desired(Line):
    """What the driver must bring about; field meanings in docs/recovery.md."""

    seq: int
    generation: int
    checkpoint: int
    driver: str
    """The driver's life that this was decided for: a new one has none of the states that it speaks of."""
    assignment: Mapping[str, str] = field(default_factory=dict)
    retain: bool = False
    punctuate: bool = True
    plan: str | None = None
    paused: bool = False
    lines: Mapping[str, Origin] = field(default_factory=dict)
    """Partitions that do not go on from (generation, checkpoint), with what they go on from."""
    moving: Moving | None = None
    """What goes to another node next (`reprise.scheduler.moves`)."""
    standbys: Mapping[str, str] = field(default_factory=dict)
    """Partition -> node of its standby (`reprise.scheduler.standbys`)."""
    anew: Mapping[str, str] = field(default_factory=dict)
    """Partition that is to begin anew, as somebody asked for it -> the id of that wish; until everything is at work."""
    demand: Mapping[str, int] = field(default_factory=dict)
    """Milli-CPU that partitions took before a plan put them on a node above its cap: they count as no less since."""
    rebalancing: Rebalancing | None = None
    """How far load is levelled; None: not begun, and anew after each incident."""
    skips: Mapping[str, str] = field(default_factory=dict)
    """Where a wish to skip stands (`reprise.scheduler.wishes.annotated`) -> the id of the last one there that was taken."""

    @property
    def checkpoint_after(self) -> int | None:
        """The driver is to take a checkpoint behind this batch as soon as it can: a move waits for it."""
        return self.moving.after if self.moving is not None and self.moving.to else None

    @property
    def next_generation(self) -> int:
        """Greater than that of every partition."""
        return 1 + max([self.generation, *(origin.generation for origin in self.lines.values())])

    def next(self, **changes: Any) -> Desired:
        """The following one: `seq` grows by one with each.  A move that was prepared is given up, and what is kept for it,
        unless `changes` say otherwise: it begins anew when nothing else is to be done."""
        if self.moving is not None:
            changes = {"moving": None, "retain": False, **changes}
        return replace(self, seq=self.seq + 1, **changes)

    def back_to(self, checkpoint: Positions) -> Desired:
        """The state with everything taken back to a checkpoint, each partition to its own snapshot in it."""
        generation = self.next_generation
        lines = checkpoint.origins(generation)
        return replace(self, generation=generation, checkpoint=checkpoint.everybody, lines=lines, anew={})

    def taking_back(self, partitions: Collection[str]) -> Desired:
        """The state with some partitions taken back to the snapshot that each would be restored from, and no others."""
        back = {p: Origin(self.next_generation, self.origin(p).position) for p in sorted(partitions)}
        return replace(self, lines={**self.lines, **back})

    def covered_by(self, checkpoint: Positions) -> Desired:
        """The state with a newer checkpoint to restore what is lost from; nobody at work goes back for it."""
        differ = self.lines.keys() | checkpoint.others.keys()
        lines = {p: Origin(self.origin(p).generation, checkpoint.of(p)) for p in sorted(differ)}
        return replace(self, checkpoint=checkpoint.everybody, lines=lines)


@dataclass(frozen=True, slots=True)
class Poison:
    """Partitions whose code raised, with the reason: never retried while this driver lives."""

    driver: str
    partitions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one decision rests on. `session` False: read without a valid session, so nothing is known."""

    now: float
    topology: TopologyView
    session: bool = True
    nodes: tuple[Node, ...] = ()
    """Alive by their heartbeat."""
    progress: Progress | None = None
    stats: Mapping[str, PartitionStats] = field(default_factory=dict)
    checkpoints: frozenset[int] = frozenset()
    """Complete global checkpoints on record."""
    desired: Desired | None = None
    incident: Incident | None = None
    closed: int = 0
    """The greatest number of an incident on record; only where there is no desired state, which else goes on counting."""
    poison: Poison | None = None
    wishes: Mapping[str, SkipWish] = field(default_factory=dict)
    """By where they stand: a query, or what `reprise.scheduler.wishes.annotated` makes of it."""
    paused: bool = False
    steady: Mapping[str, int] = field(default_factory=dict)
    """Batches between the output of each query and the horizon while all was well; absent: not known."""

    @property
    def last_seq(self) -> int:
        """The number of the desired state, or the greatest that one may have had that is not there any more: a driver may
        have taken one that it has not reported yet."""
        if self.desired is not None:
            return self.desired.seq
        known = max(self.closed, self.progress.seq if self.progress else 0)
        return known + 1 if known else 0

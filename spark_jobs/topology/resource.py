"""A topology as the rest of the program reads it: frozen values in base units, all defaults applied.

Problem: driver, executors, coordinator and controller must agree on one topology.  Invariant: a
`StreamTopology` is built from its `document` alone (`parse.from_json(t.document) == t`), so whoever has the
JSON text has the same topology, and nothing is pickled.  Units are in the names: seconds (`_s`), cores,
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reprise.spark_jobs.topology.choices import (
    BatchOrder,
    Format,
    OutputLog,
    Protocol,
    QueryOrder,
    Scope,
    StateForm,
    Strategy,
    Upgrade,
)
from reprise.spark_jobs.topology.pods import KubernetesSettings


class Mode(StrEnum):
    """How an edge spreads the rows of one upstream partition over the downstream operator's."""

    SINGLE = "single"  # the downstream operator has one partition
    KEYS = "keys"  # by a hash of key columns
    BROADCAST = "broadcast"  # everything to everyone
    FORWARD = "forward"  # partition i to partition i


@dataclass(frozen=True, slots=True)
class Grouping:
    """The key grouping of an edge; `by` holds columns for `Mode.KEYS` and is empty otherwise."""

    mode: Mode
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One subscription of an operator."""

    source: str
    """Name of the upstream source or operator (`from`)."""
    grouping: Grouping
    feedback: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, for records of graphs."""
        by = list(self.grouping.by)
        return {"from": self.source, "mode": self.grouping.mode.value, "by": by, "feedback": self.feedback}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> InputSpec:
        """The inverse of `to_json`.  KeyError, TypeError, ValueError: it is none."""
        grouping = Grouping(Mode(data["mode"]), tuple(map(str, data["by"])))
        return InputSpec(str(data["from"]), grouping, bool(data["feedback"]))


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """Where output goes that is not written to files."""

    class_path: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """What makes an operator an output operator."""

    priority: int
    priorities: Mapping[int, int]
    """Priority by partition index where it differs."""
    format: Format
    sink: SinkSpec | None = None
    objective_s: float | None = None
    """In how long each of its queries is to be back after the loss of a node; None: nobody says."""

    def priority_of(self, index: int) -> int:
        """The priority, 1..10, of the query whose output partition has this index."""
        return self.priorities.get(index, self.priority)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One source."""

    name: str
    class_path: str
    parallelism: int
    parameters: Mapping[str, Any]
    cpu_cores: float


STANDBY_EVERY = 10
"""Batches between what a passive standby is sent, where nothing is said."""


@dataclass(frozen=True, slots=True)
class StandbySpec:
    """What is said of the standbys of an operator's partitions."""

    every: int | None = None
    """Batches between what a passive one is sent."""
    failure_domain: str | None = None
    """Label of nodes in which one is to differ from its partition."""


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator."""

    name: str
    class_path: str
    parallelism: int
    parameters: Mapping[str, Any]
    cpu_cores: float
    deterministic: bool | None
    """None: what the class says of itself."""
    inputs: tuple[InputSpec, ...]
    output: OutputSpec | None
    checkpoint_interval_s: float | None = None
    """Between the snapshots of one partition; None: as the topology says."""
    availability: str = "checkpoint"
    """`checkpoint`, `amnesia`, `upstream-backup`, `active-standby` or `passive-standby`."""
    standby: StandbySpec | None = None
    """What was said of its standbys."""

    @property
    def forgetful(self) -> bool:
        """Whether a lost partition may begin anew, without its state and without the batches in between."""
        return self.availability == "amnesia"

    @property
    def backed_upstream(self) -> bool:
        """Whether a lost partition may begin with its initial state, and be fed again by what its upstreams keep for it."""
        return self.availability == "upstream-backup"

    @property
    def has_standby(self) -> bool:
        """Whether each partition has a standby on another node, which steps as it does or has a copy of its state."""
        return self.availability == "active-standby" or self.passive

    @property
    def passive(self) -> bool:
        """Whether that has a copy of its state, and steps nothing."""
        return self.availability == "passive-standby"

    @property
    def standby_every(self) -> int:
        """Batches between what a passive standby is sent; 0: it has none."""
        if not self.passive:
            return 0
        return STANDBY_EVERY if self.standby is None or self.standby.every is None else self.standby.every


EXTENT, REPLAY = 200_000, 1_000_000
"""What a recovery of one partition may have to read back and to replay, where nothing is said."""


@dataclass(frozen=True, slots=True)
class EventualPace:
    """How often slots are stored again (Sebepou and Magoutis, section III)."""

    extent: int
    """Footprints that a recovery may have to read back before slots are stored again (Q)."""
    replay: int
    """Rows that it may have to replay (U)."""
    spend_s: float
    """For at most so long slots are stored again (CI),"""
    every_s: float
    """once in this time (CP)."""
    given: tuple[str, ...] = ()
    """Which of `extent` and `replay` the resource names."""


@dataclass(frozen=True, slots=True)
class StartFrom:
    """The savepoint from which a topology begins (`reprise.spark_jobs.state.start_from`)."""

    location: str
    """Checkpoint location of the topology that has taken it."""
    savepoint: str
    allow_new: tuple[str, ...] = ()
    """Sources and operators that it may lack."""
    allow_gone: tuple[str, ...] = ()
    """Sources and operators that only it may have."""


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """When and where checkpoints are taken: exactly one of `interval_s` and `every_batches` is set."""

    interval_s: float | None
    every_batches: int | None
    location: str | None
    keep: int
    standby: tuple[str, ...] = ()
    """Mirrors of the location, read where it cannot be."""
    local_copies_bytes: int = 0
    """On each node, for states that it has stored."""
    state_memory_bytes: int = 0
    """Of a node, for states in pages; 0: no limit."""
    state_disk_bytes: int = 0
    """Of a node, for what exceeds that."""
    protocol: Protocol = "coordinated"
    log: OutputLog = "none"
    jitter: float = 0.2
    """Share of the interval, 0 <= jitter < 1."""
    state: StateForm = "arrays"
    eventual_pace: EventualPace | None = None
    """With `eventual`."""
    start_from: StartFrom | None = None
    """None: the topology begins at the beginning of its sources."""

    @property
    def uncoordinated(self) -> bool:
        """Whether each partition stores itself by its own clock, and lines are found; messages may force it to, too."""
        return self.protocol == "uncoordinated" or self.induced or self.eventual

    @property
    def eventual(self) -> bool:
        """Whether states are stored slot by slot, by operators that have slots."""
        return self.protocol == "eventual"

    @property
    def induced(self) -> bool:
        """Whether messages can force a partition to store itself."""
        return self.protocol == "communication-induced"

    @property
    def paged(self) -> bool:
        """Whether states are stored in pages, by operators that offer them."""
        return self.state == "paged"


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """How failures are recovered; field meanings in `schema.RecoveryModel`."""

    strategy: Strategy
    recommend_only: bool
    """Plans are written down and wait for approval."""
    scope: Scope
    correlated_nodes: int
    window_s: float | None
    cpu_cap: float
    """Fraction of a node's CPU, 0 < cap <= 1."""
    order: QueryOrder
    algorithm: str
    time_limit_s: float
    buffer_memory_bytes: int
    buffer_disk_bytes: int
    driver_grace_s: float = 0.0
    """For how long hosts keep their partitions without a driver; 0: they end with it."""
    overcommit: float = 0.0
    """Fraction of a node's CPU that plans may fill where a query would wait; 0: no more than the cap."""
    rebalance: bool = False
    """Load is levelled by planned moves."""

    @property
    def keeps_output(self) -> bool:
        """Whether partitions keep their output since the newest checkpoint while nothing fails."""
        return self.scope == "auto" and self.strategy in ("incremental", "best-case")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    executor_memory_bytes: int
    conf: Mapping[str, str]
    exchange: str = "auto"
    """`auto` or `chained`."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    count: int
    cpu_cores: float
    failure_domain: str | None = None
    """Label of nodes; those with the same value are lost together."""


@dataclass(frozen=True, slots=True)
class StreamTopology:
    """The whole resource."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    batch_interval_s: float
    sources: tuple[SourceSpec, ...]
    operators: tuple[OperatorSpec, ...]
    checkpoint: CheckpointPolicy
    recovery: RecoveryPolicy
    spark: SparkSettings
    nodes: NodeSettings
    paused: bool
    upgrade: Upgrade
    """drain | replay: see docs/topology.md."""
    sink_location: str | None
    kubernetes: KubernetesSettings
    document: str
    """The resource in its wire form: JSON with sorted keys and every default written out."""
    batch_order: BatchOrder = "aligned"

    @property
    def arrival(self) -> bool:
        """Whether partitions apply what is there of each input, so that a replay may give other rows."""
        return self.batch_order == "arrival"

    @property
    def keeps_output(self) -> bool:
        """Whether partitions keep what they have sent until a checkpoint covers it, also while nothing fails."""
        return self.checkpoint.uncoordinated or self.recovery.keeps_output

    def standby_domain(self, operator: OperatorSpec) -> str | None:
        """Label of nodes in which the standbys of an operator are to differ from their partitions; None: in none."""
        own = None if operator.standby is None else operator.standby.failure_domain
        return (own or self.nodes.failure_domain) if operator.has_standby else None

    @property
    def passive_every(self) -> dict[str, int]:
        """Operators with passive standbys -> batches between what each of these is sent."""
        return {o.name: o.standby_every for o in self.operators if o.passive}

    @property
    def stages(self) -> tuple[SourceSpec | OperatorSpec, ...]:
        """Sources, then operators, as the resource lists them."""
        return (*self.sources, *self.operators)

    def source(self, name: str) -> SourceSpec:
        """The source of this name; KeyError when there is none."""
        return next((s for s in self.sources if s.name == name), None) or _missing(name)

    def operator(self, name: str) -> OperatorSpec:
        """The operator of this name; KeyError when there is none."""
        return next((o for o in self.operators if o.name == name), None) or _missing(name)


def _missing(name: str) -> Any:
    raise KeyError(name)

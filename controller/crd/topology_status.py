"""Status of a StreamTopology: how many queries are available, on how many nodes, how fresh the newest checkpoint is."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reprise.controller.crd.base import (
    MAX_LISTED,
    Conditions,
    Count,
    Label,
    ObjectName,
    Reason,
    Summary,
    Time,
    WaitingQuery,
    Written,
)
from reprise.spark_jobs.topology.promise import Guarantee


class QueriesStatus(Written):
    available: Count
    """Queries all of whose partitions are at work and whose output is not behind."""
    recovering: Count = 0
    """Queries that are placed and being restored, or catching up."""
    waiting: Count = 0
    """Queries that nothing is done for yet."""
    total: Count
    """All queries of the topology."""
    summary: Summary
    """`available/total`."""
    value: Summary
    """Summed priority of the available queries, of all: `45/120`."""


class NodesStatus(Written):
    ready: Count
    """Nodes that can host partitions, by heartbeat and by Spark."""
    wanted: Count
    """`spec.nodes.count`."""
    lost: Count = 0
    """Nodes lost in the open incident."""
    pending: Count = 0
    """Executor pods that have no Kubernetes node yet."""
    expected: Count = 0
    """Executors that were asked for and are on their way: starting, or an autoscaler adds a Kubernetes node."""
    room: Count | None = None
    """More executors that Kubernetes nodes have room for now; absent where the operator may not read all pods."""
    outlook: Reason | None = None
    """Whether waiting will help, for people."""
    summary: Summary
    """`ready/wanted`."""


class StandbysStatus(Written):
    ready: Count = 0
    """Partitions with a standby that could go on in their place now."""
    wanted: Count
    """Partitions of operators with `availability: active-standby` or `passive-standby`."""


class FailureDomainsStatus(Written):
    count: Count
    """Failure domains with nodes that are alive: values of the label `nodes.failureDomain`, and each node that is not known
    to have it."""
    priority: Count
    """Summed priority of the queries that have all of their partitions on nodes that are alive."""
    worst: Count
    """What would be lost of it now with the domain that takes most, standbys in other domains considered."""
    summary: Annotated[str, Field(max_length=256)]
    """The same in words, with what would be lost with one of them on average."""


class UpstreamBackupStatus(Written):
    ready: Count = 0
    """Those that could be fed again by what their upstreams keep, if each alone were lost now."""
    wanted: Count
    """Partitions of operators with `availability: upstream-backup`; the others would come from a checkpoint."""


MAX_NAMED = 10
"""Operators that are named for one output."""


class OutputStatus(Written):
    operator: Label
    """The operator whose output it is."""
    guarantee: Guarantee | None = None
    """`precise`: each batch is as without a failure, and at once; `precise, by checkpoint`: it is shown with the checkpoint
    that covers it; `gap`: batches may lack rows, and are marked then. Absent: it is open whether batches wait for a
    checkpoint, as an operator with a class of its own does not say whether it is deterministic."""
    limited_by: Annotated[list[Label], Field(max_length=MAX_NAMED)] = Field(default_factory=list)
    """Operators at or upstream of it without which more would be promised; at most 10."""
    given_up: Annotated[list[Reason], Field(max_length=MAX_NAMED)] = Field(default_factory=list)
    """What settings of sources upstream of it, and of its sink, give up, in words; at most 10."""


class SkipStatus(Written):
    query: Label
    """Id of its output partition."""
    taken: bool
    """Whether the coordinator has taken the wish; until then it can be taken back (`--undo`)."""
    partitions: Count = 0
    """How many partitions are to begin anew for it, and are not at work yet."""


class CheckpointStatus(Written):
    position: Count
    """Batch of the newest complete global checkpoint; 0 is the initial state."""
    completed_at: Time | None = None
    """When it was complete."""


class DriverStatus(Written):
    pod: ObjectName | None = None
    """The driver's pod."""
    epoch: Count = 0
    """How often a driver of this topology has started; commands of lower epochs are refused."""


class TopologyStatus(Written):
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation of the spec that the rest speaks of."""
    conditions: Conditions = Field(default_factory=list)
    """Ready (every query is available), Recovering (an incident is open), Degraded (some query is not available),
    Paused, Valid (the spec can be run), Observed (ZooKeeper and the API server both answer, so the rest is current), and for
    tools that go by kstatus: Stalled (the newest spec will never take effect), Reconciling (it is being started)."""
    started_at: Time | None = None
    """When the first batch was released; from then on the shape of the graph and the checkpoint location are
    immutable."""
    queries: QueriesStatus | None = None
    """How many queries are available."""
    waiting: Annotated[list[WaitingQuery], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """The most valuable queries that are not available, and why; at most 50."""
    waiting_total: Count = 0
    """How many are not available."""
    nodes: NodesStatus | None = None
    """The nodes."""
    partitions: Count = 0
    """Partitions of the topology; where each one runs is kept in ZooKeeper."""
    standbys: StandbysStatus | None = None
    """Standbys; absent where no operator is to have any."""
    failure_domains: FailureDomainsStatus | None = None
    """What would be lost with a failure domain; absent where `nodes.failureDomain` names no label."""
    upstream_backup: UpstreamBackupStatus | None = None
    """Upstream backups; absent where no operator is to have any."""
    outputs: Annotated[list[OutputStatus], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """What is promised of outputs when something fails, the least first; at most 50."""
    skips: Annotated[list[SkipStatus], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """Queries that somebody wants to do without what they have missed (`reprise skip`), as long as it is not carried out;
    at most 50. The batches that may lack rows then are in `gaps` of the Incident."""
    checkpoint: CheckpointStatus | None = None
    """The newest global checkpoint."""
    position: Count = 0
    """The newest batch that was released."""
    lag_batches: Count = 0
    """Batches between the last one that is due, released or not, and the output of the query that is furthest behind."""
    incident: Label | None = None
    """Name of the open Incident."""
    driver: DriverStatus | None = None
    """The Spark driver."""
    coordinator: Label | None = None
    """Who decides at present."""
    root: Reason | None = None
    """Path of the records in ZooKeeper."""

"""Incident: one failure from detection until a global checkpoint completes with nothing failed.

The spec is what was known when it opened and never changes; the rest follows the coordinator's record of the incident
in ZooKeeper, which is the truth when the two differ.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reprise.controller.crd.base import (
    MAX_LISTED,
    Conditions,
    Count,
    Label,
    Reason,
    Summary,
    Time,
    TopologyReference,
    WaitingQuery,
    Written,
)
from reprise.scheduler.incident import Kind, Phase


class IncidentSpec(Written):
    topology: TopologyReference
    """The topology that it happened to."""
    id: Label
    """Id of the record in ZooKeeper."""
    opened_at: Time
    """When the first loss was detected."""
    nodes_before: Count
    """Nodes in use before it."""


class LostNodeStatus(Written):
    node: Label
    """`node#incarnation`."""
    time: Time
    """When its loss was detected."""


class LostNodes(Written):
    count: Count
    """All nodes lost."""
    latest: Annotated[list[LostNodeStatus], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """The newest losses."""


class Affected(Written):
    affected: Count
    """Queries that it stopped."""
    restored: Count
    """Of these, queries all of whose partitions are at work again."""
    caught_up: Count
    """Of these, queries that are back: their output holds its own steady lag."""
    recovery: Reason | None = None
    """Of a closed incident: how long they were down, and how many were not seen back before it closed."""
    summary: Summary
    """`restored/affected`."""


class Plans(Written):
    count: Count
    """Plans made so far."""
    last: Label | None = None
    """Name of the newest RecoveryPlan."""


MAX_SPANS = 10
"""Gaps that are listed for a query, the newest."""


class BatchSpan(Written):
    first: Count
    """First batch."""
    last: Count
    """Last batch, which is one of them."""


class QueryGaps(Written):
    query: Label
    """Id of its output partition."""
    batches: Count
    """How many batches may lack rows, all together."""
    spans: Annotated[list[BatchSpan], Field(max_length=MAX_SPANS)]
    """Which ones they are, in order; at most the newest 10 spans."""


class TimelineEntry(Written):
    time: Time
    """When."""
    name: Label
    """What: opened, plan, restored, ..."""
    detail: Reason = ""
    """More of it."""


class IncidentStatus(Written):
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation that the rest speaks of."""
    conditions: Conditions = Field(default_factory=list)
    """Correlated (at least `correlatedNodes` were lost together), Restored (everything is at work again), Closed (a
    global checkpoint is complete with nothing failed)."""
    kind: Literal[tuple(kind.value for kind in Kind)]  # type: ignore[valid-type]
    """blocking: few nodes, restored as a whole. correlated: by the strategy of the topology. driver: the driver started
    anew. start: too little capacity to start everything. A blocking one becomes correlated when more nodes go."""
    phase: Literal[tuple(phase.value for phase in Phase)]  # type: ignore[valid-type]
    """settling: the rest of the burst is waited for. waiting: no room for what is failed. recovering: something is
    being restored. verifying: a new global checkpoint is waited for. closed."""
    checkpoint: Count
    """Position of the global checkpoint that it is recovered from."""
    generation: Count
    """Grows with each rollback of the topology or of a part of it."""
    closed_at: Time | None = None
    """When it was over."""
    lost: LostNodes
    """The nodes lost."""
    queries: Affected
    """The queries affected."""
    waiting: Annotated[list[WaitingQuery], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """The most valuable queries that wait, and why; at most 50."""
    waiting_total: Count = 0
    """How many wait."""
    gaps: Annotated[list[QueryGaps], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """Queries with batches that may lack rows, each of them marked where it is shown (`availability: amnesia`, `reprise
    skip`), the most valuable first; at most 50. Nothing brings these rows back."""
    gaps_total: Count = 0
    """How many queries have any."""
    gap_batches: Count = 0
    """How many batches of outputs these are."""
    plans: Plans
    """The plans made."""
    timeline: Annotated[list[TimelineEntry], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """The newest events, at most 50; all of them are in ZooKeeper."""
    timeline_total: Count = 0
    """How many there are."""

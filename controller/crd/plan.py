"""RecoveryPlan: what is restored now, where, what that brings back, and why the rest waits.

The spec is the plan and never changes: a new situation gets a new plan.  It holds what a person asks of a plan;
the placement of single partitions, which may be a hundred thousand, stays in the record in ZooKeeper.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reprise.controller.crd.base import (
    MAX_LISTED,
    Conditions,
    Count,
    Label,
    Priority,
    Reason,
    Summary,
    Time,
    TopologyReference,
    Written,
)
from reprise.scheduler.incident import Trigger


class ChosenQuery(Written):
    query: Label
    """Id of its output partition."""
    priority: Priority
    """1 to 10."""
    cost_milli_cpu: Count
    """CPU that it adds to the queries before it."""
    alone_milli_cpu: Count
    """CPU that it would need if it shared nothing."""
    partitions: Count
    """Partitions restored for it."""


class LeftOutQuery(Written):
    query: Label
    """Id of its output partition."""
    priority: Priority
    """1 to 10."""
    reason: Reason
    """Why it waits."""
    code: Label | None = None
    """too-large, outbid, packing, not-completed, not-found or order; absent where no planner was asked."""
    missing_milli_cpu: Count = 0
    """CPU that it would take to add it to the plan."""


class NodeRoom(Written):
    node: Label
    """`node#incarnation`."""
    free_milli_cpu: Count
    """CPU under the cap before this plan."""
    partitions: Count
    """Partitions that the plan places there."""


class PlanSpec(Written):
    topology: TopologyReference
    """The topology."""
    id: Label
    """Id of the record in ZooKeeper, which says where each partition goes."""
    incident: Label
    """Name of the Incident."""
    time: Time
    """When it was made."""
    trigger: Literal[tuple(trigger.value for trigger in Trigger)]  # type: ignore[valid-type]
    """first: the first plan after nodes were lost together. arrival: a node has arrived. loss: more was lost. blocking: all
    that failed, at once. start: too little capacity to start everything."""
    rollback: bool
    """Whether everything goes back to the checkpoint."""
    checkpoint: Count
    """Position of the global checkpoint that restored partitions start from."""
    generation: Count
    """Grows with each rollback of the topology or of a part of it, this one included."""
    algorithm: Label
    """The planner."""
    why: Reason = ""
    """Why this planner, and what it found."""
    value: Count
    """Summed priority of the queries that come back."""
    bound: Count
    """Proven: no plan has more value."""
    optimal: bool
    """Whether the value is proven to be the greatest possible."""
    cost_milli_cpu: Count
    """CPU of the partitions that are restored."""
    capacity_milli_cpu: Count
    """CPU that was free under the cap."""
    micros: Count
    """Time that planning took, in microseconds."""
    partitions: Count
    """Partitions that it restores."""
    candidates: Count
    """Failed queries that it could choose from."""
    summary: Summary
    """`chosen/candidates`."""
    chosen: Annotated[list[ChosenQuery], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """The queries that come back, in the order in which they are restored; at most the first 50."""
    left_out: Annotated[list[LeftOutQuery], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """The queries that wait, the most valuable first; at most 50."""
    left_out_total: Count = 0
    """How many wait; those that are not listed are `leftOutTotal` minus 50."""
    nodes: Annotated[list[NodeRoom], Field(max_length=MAX_LISTED)] = Field(default_factory=list)
    """The nodes with most room; at most 50."""
    nodes_total: Count = 0
    """How many had room."""
    note: Reason = ""
    """What else there is to say."""


class PlanStatus(Written):
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The generation that the rest speaks of."""
    conditions: Conditions = Field(default_factory=list)
    """Approved (it may be carried out), Executed (all of its partitions are at work)."""
    state: Literal["Proposed", "Executing", "Done", "Superseded"]
    """Proposed: waits for approval. Executing: partitions are being restored. Done: all are at work. Superseded: a
    newer plan has taken its place, or, where it was approved, the object of the plan as it is carried out."""
    restored: Count = 0
    """Partitions of the plan that are at work."""
    finished_at: Time | None = None
    """When it was done or superseded."""

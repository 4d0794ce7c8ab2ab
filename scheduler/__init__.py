"""The fault-tolerance coordinator's mind: from a snapshot of a topology to a decision.

The law of this package: pure. No clock (`now` is part of the snapshot, the planner's clock is an argument), no
I/O, no knowledge of ZooKeeper, Spark or Kubernetes. Whoever has the same snapshot takes the same decision,
which is what lets a killed coordinator's successor go on in the middle.
"""

from reprise.scheduler.decide import decide, precompute, settling
from reprise.scheduler.errors import InvariantViolation, SchedulerError
from reprise.scheduler.incident import Event, Incident, Kind, LostNode, Phase, PlanRecord, QueryTimeline
from reprise.scheduler.model import (
    Desired,
    Node,
    PartitionStats,
    PartitionView,
    Poison,
    Policy,
    Progress,
    QueryView,
    Scope,
    Snapshot,
    Strategy,
    TopologyView,
)
from reprise.scheduler.precomputed import PrecomputedPlan
from reprise.scheduler.steps import (
    AddPlan,
    CloseIncident,
    Decision,
    Outcome,
    Step,
    WriteDesired,
    WriteIncident,
    WritePoison,
)

__all__ = [
    "AddPlan",
    "CloseIncident",
    "Decision",
    "Desired",
    "Event",
    "Incident",
    "InvariantViolation",
    "Kind",
    "LostNode",
    "Node",
    "Outcome",
    "PartitionStats",
    "PartitionView",
    "Phase",
    "PlanRecord",
    "Poison",
    "Policy",
    "PrecomputedPlan",
    "Progress",
    "QueryTimeline",
    "QueryView",
    "SchedulerError",
    "Scope",
    "Snapshot",
    "Step",
    "Strategy",
    "TopologyView",
    "WriteDesired",
    "WriteIncident",
    "WritePoison",
    "decide",
    "precompute",
    "settling",
]

"""Where the records of a topology stand below its root `/reprise/<namespace>/<topology>`."""

from __future__ import annotations

NODES = "nodes"
PROGRESS = "progress"
STATS = "stats"
CHECKPOINTS = "checkpoints"
DESIRED = "desired"
INCIDENT = "incident"
INCIDENTS = "incidents"
PLANS = "plans"
POISON = "poison"
COORDINATOR = "coordinator"
PAUSED = "commands/paused"
SETTINGS = "commands/settings"
"""Values of the fields that take effect in place; without it those of what the driver was started with."""
TOPOLOGY = "commands/topology"
"""In a run on one machine: the topology with other queries that it is to go on with, once its stream has drained."""
SPEC = "spec"
"""On Kubernetes: topology and image that the last driver was started with."""
DRAIN = "commands/drain"
"""Which driver is to stop at a checkpoint and to end."""
LEAVING = "leaving"
"""Nodes that are to be emptied, a znode each."""
SKIPS = "skips"
"""Queries that are to do without what they have missed, a znode each until that is taken up."""
SAVEPOINT_WISHES = "savepoint-wishes"
"""Savepoints that are to be taken or deleted, a znode for each wish until the driver has said what came of it."""
SAVEPOINTS = "savepoints"
"""Which savepoints there are, and what came of wishes, by the driver."""
WAITS = "waits"
"""What a driver waits for that has not begun; ends with its session."""
DRIVER = "driver"
"""Epoch of the newest driver, a whole number; or the one after that, where queries came or went since."""
OWNER = "owner"
"""On Kubernetes: uid of the object that the records belong to, as text."""

OF_A_GRAPH = (DESIRED, PROGRESS, STATS, POISON, SETTINGS)
"""Records that name the partitions of one graph, or say what stands above the topology that its processes were started
with: where a stream goes on with other queries they are removed before anybody decides by the other graph."""
FOLDERS = (NODES, LEAVING, SKIPS, SAVEPOINT_WISHES, CHECKPOINTS, INCIDENTS, PLANS, "commands")


def checkpoint(position: int) -> str:
    """The record of a complete one, below the root.  Names sort as positions do up to 99,999,999: compare numbers."""
    return f"{CHECKPOINTS}/{position:08d}"


def root_of(namespace: str, topology: str) -> str:
    return f"/reprise/{namespace}/{topology}"

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
SPEC = "spec"
"""On Kubernetes: topology and image that the last driver was started with."""
DRAIN = "commands/drain"
"""Which driver is to stop at a checkpoint and to end."""
LEAVING = "leaving"
"""Nodes that are to be emptied, a znode each."""
SKIPS = "skips"
"""Queries that are to do without what they have missed, a znode each until that is taken up."""
WAITS = "waits"
"""What a driver waits for that has not begun; ends with its session."""
DRIVER = "driver"
"""Epoch of the newest driver, a whole number."""
OWNER = "owner"
"""On Kubernetes: uid of the object that the records belong to, as text."""

FOLDERS = (NODES, LEAVING, SKIPS, CHECKPOINTS, INCIDENTS, PLANS, "commands")


def checkpoint(position: int) -> str:
    """The record of a complete one, below the root.  Names sort as positions do up to 99,999,999: compare numbers."""
    return f"{CHECKPOINTS}/{position:08d}"


def root_of(namespace: str, topology: str) -> str:
    return f"/reprise/{namespace}/{topology}"

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

FOLDERS = (NODES, CHECKPOINTS, INCIDENTS, PLANS, "commands")


def checkpoint(position: int) -> str:
    """The record of a complete one, below the root; names sort as positions do."""
    return f"{CHECKPOINTS}/{position:08d}"


def root_of(namespace: str, topology: str) -> str:
    return f"/reprise/{namespace}/{topology}"

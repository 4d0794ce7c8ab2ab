"""What `kubectl get` shows: the answers to the first questions of the person on call, most urgent first.

A column shows one field as it is, so fields that belong together ("12/22") are written as one text into the status.
Columns of priority 1 appear with `-o wide`.
"""

from __future__ import annotations

from typing import Any


def _column(
    name: str, path: str, description: str, kind: str = "string", priority: int = 0
) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return column | ({"priority": priority} if priority else {})


def _condition(kind: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")]'


_AGE = _column("Age", ".metadata.creationTimestamp", "Time since it was created.", "date")

TOPOLOGY = [
    _column("Ready", f"{_condition('Ready')}.status", "Whether every query is available."),
    _column("Reason", f"{_condition('Ready')}.reason", "Why, or why not."),
    _column("Queries", ".status.queries.summary", "Queries available, of all."),
    _column("Nodes", ".status.nodes.summary", "Nodes ready, of those wanted."),
    _column("Checkpoint", ".status.checkpoint.completedAt", "Age of the newest global checkpoint.", "date"),
    _column("Incident", ".status.incident", "The open incident."),
    _AGE,
    _column("Value", ".status.queries.value", "Summed priority of available queries, of all.", priority=1),
    _column("Lag", ".status.lagBatches", "Batches that the slowest query is behind.", "integer", 1),
    _column("Strategy", ".spec.recovery.strategy", "How a correlated failure is recovered.", priority=1),
    _column("Mode", ".spec.recovery.mode", "Whether plans are carried out or only written.", priority=1),
    _column("Paused", ".spec.paused", "Whether batches are held back.", "boolean", 1),
]
INCIDENT = [
    _column("Topology", ".spec.topology.name", "Whose incident."),
    _column("Kind", ".status.kind", "What failed, and so how it is recovered."),
    _column("Phase", ".status.phase", "Where the recovery stands."),
    _column("Lost", ".status.lost.count", "Nodes lost.", "integer"),
    _column("Queries", ".status.queries.summary", "Queries restored, of those affected."),
    _column("Plans", ".status.plans.count", "Plans made.", "integer"),
    _column("Opened", ".spec.openedAt", "Time since detection.", "date"),
    _column("Closed", ".status.closedAt", "Time since a global checkpoint closed it.", "date"),
    _column("Last plan", ".status.plans.last", "The newest plan.", priority=1),
    _column("Checkpoint", ".status.checkpoint", "The one that it is recovered from.", "integer", 1),
]
PLAN = [
    _column("Topology", ".spec.topology.name", "Whose plan."),
    _column("Incident", ".spec.incident", "The incident that it answers."),
    _column("Trigger", ".spec.trigger", "What made it necessary."),
    _column("Queries", ".spec.summary", "Failed queries that it brings back, of all."),
    _column("Value", ".spec.value", "Summed priority of these queries.", "integer"),
    _column("Bound", ".spec.bound", "No plan can have more value.", "integer"),
    _column("State", ".status.state", "Whether it is proposed, being carried out, or done."),
    _AGE,
    _column("Algorithm", ".spec.algorithm", "The planner that made it.", priority=1),
    _column("Rollback", ".spec.rollback", "Whether everything goes back to the checkpoint.", "boolean", 1),
]

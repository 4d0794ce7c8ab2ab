"""How each partition and each node stands: the one place that says so, for queries, the status document and metrics.

A partition without a living place waits; one that has a place but is not at work there is being restored; code that raised
poisons it, wherever it is.  Invariant: pure, from one observation, and without regard to what a partition reads: who is
starved by whom is the status document's to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import back
from reprise.scheduler.view import taken_over


class PartitionState(StrEnum):
    """How a partition stands; docs/status-document.md says when each holds."""

    RUNNING = "running"
    CATCHING_UP = "catching-up"
    STARVED = "starved"
    RESTORING = "restoring"
    WAITING = "waiting"
    POISONED = "poisoned"


class NodeState(StrEnum):
    READY = "ready"
    JOINING = "joining"
    STANDBY = "standby"
    DRAINING = "draining"
    DRAINED = "drained"
    LOST = "lost"


def partition_state(partition: str, seen: Observation) -> PartitionState:
    """Any state but STARVED."""
    progress, desired = seen.progress, seen.desired
    if progress is None or desired is None:
        return PartitionState.WAITING
    failed = progress.failed.get(partition)
    if failed is not None and failed.is_poison:
        return PartitionState.POISONED
    if desired.assignment.get(partition) not in seen.nodes:
        return PartitionState.WAITING
    position = progress.positions.get(partition)
    if position is None or failed is not None:
        return PartitionState.RESTORING
    behind = seen.incident is not None and not back.near(progress, seen.incident, partition)
    return PartitionState.CATCHING_UP if behind else PartitionState.RUNNING


def node_states(nodes: Iterable[str], seen: Observation) -> dict[str, NodeState]:
    """The state of each of `nodes`, given as `node#incarnation`:  LOST if it is not alive, JOINING while the driver
    does not use it, DRAINING where it is to be emptied, DRAINED where it has nothing left by what the driver has taken
    over: until then partitions may still run there."""
    settled = taken_over(seen.desired, seen.progress)
    ready = seen.progress.nodes if seen.progress else frozenset()
    hosting = frozenset(seen.desired.assignment.values()) if seen.desired else frozenset()

    def state(node: str) -> NodeState:
        if node not in seen.nodes:
            return NodeState.LOST
        if seen.nodes[node].leaving is not None:
            return NodeState.DRAINED if settled and node not in hosting else NodeState.DRAINING
        if node not in ready:
            return NodeState.JOINING
        return NodeState.READY if node in hosting else NodeState.STANDBY

    return {node: state(node) for node in nodes}

"""Suspects: nodes whose heartbeat is gone while the driver still hears them.  They stand for a while.

An agent for which alone ZooKeeper is slow, on a busy machine or behind a busy network, loses its session while it and the
executor below it work on.  Taken for a loss, that costs a rollback and a new place for everything that runs there, for
nothing: the agent is back within seconds as the same incarnation.  The driver knows better: it loses a dead process's
connection at once, and drops a node that answers no job.  (An agent that did not run itself for so long asks when it wakes:
`reprise.controller.agent.pod_agent` whether its pod was given up; `reprise.controller.agent.fencing` cannot know, and
ends the node.)

Invariants.  A node without heartbeat stands only while the driver, by a report that has applied the newest desired state,
lists it as usable and reports none of its partitions as failed, and never for longer than `limit_s`.  One that has come back
as another incarnation does not stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reprise.scheduler.model import Desired, Node, Progress
from reprise.scheduler.view import taken_over


@dataclass(slots=True)
class Suspects:
    """The suspected nodes of one topology, as one coordinator has seen it; `elapsed` only grows."""

    limit_s: float
    elapsed: Callable[[], float]
    _known: dict[str, Node] = field(default_factory=dict)
    """By `node#incarnation`: those of the last look, alive or standing."""
    _since: dict[str, float] = field(default_factory=dict)
    """When the heartbeat of each that stands was missed first."""

    @property
    def doubtful(self) -> bool:
        """Whether some node stands without a heartbeat: who looks must look again soon."""
        return bool(self._since)

    def forget(self) -> None:
        """Nothing is known of before: who is absent from now on is lost."""
        self._known, self._since = {}, {}

    def gone(self, name: str) -> None:
        """Somebody has fenced the node of this name, so it does not stand, whatever the driver still hears."""
        self._known = {key: node for key, node in self._known.items() if node.name != name}
        self._since = {key: began for key, began in self._since.items() if key in self._known}

    def add(
        self, alive: Sequence[Node], desired: Desired | None, progress: Progress | None
    ) -> tuple[Node, ...]:
        """`alive` and those that stand; by name."""
        now, present = self.elapsed(), {node.name for node in alive}
        since = {
            node.id: self._since.get(node.id, now)
            for node in self._known.values()
            if node.name not in present and _heard(node, desired, progress)
        }
        since = {key: began for key, began in since.items() if now - began < self.limit_s}
        stand = [self._known[key] for key in since]
        self._since = since
        self._known = {node.id: node for node in (*alive, *stand)}
        return tuple(alive) if not stand else tuple(sorted((*alive, *stand), key=lambda node: node.name))


def _heard(node: Node, desired: Desired | None, progress: Progress | None) -> bool:
    """Whether the driver, knowing what is wanted now, has the node and all that is to run there."""
    if desired is None or progress is None or not taken_over(desired, progress):
        return False
    if node.id not in progress.nodes:
        return False
    return _works_there(node, desired.assignment, progress)


def _works_there(node: Node, assignment: Mapping[str, str], progress: Progress) -> bool:
    """All that is placed there is at work.  A node where nothing runs is not spared."""
    placed = {partition for partition, where in assignment.items() if where == node.id}
    return bool(placed) and placed <= progress.positions.keys() and progress.failed.keys().isdisjoint(placed)

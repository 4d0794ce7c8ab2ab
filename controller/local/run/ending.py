"""When a run is over: the stream has ended, or nothing that is left could ever go on.

A run that waits for ever is worse than one that fails: who started it sits before a page that says "waiting" for a reason
that was known after seconds.  Invariant: a verdict is only given on what the driver has said itself (a known progress, of a
ZooKeeper that answers), and "nothing can go on" only when what is still under way has come to rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprise.controller.local.run.config import Outcome
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import Progress
from reprise.spark_jobs.topology import Topology

REST_S = 5.0
"""Batches that were under way when a partition was set aside still come out; for so long nobody has moved."""
STUCK_S = 60.0
"""How long jobs may fail one like the other: a node that is starting may need some tries."""


@dataclass(slots=True)
class Ending:
    """One run's watch; `now` is of any clock that does not jump, seconds."""

    topology: Topology
    _outputs: Mapping[str, int] | None = None
    _at_rest_since: float = 0.0
    _stuck_since: float | None = None

    def look(self, seen: Observation, now: float) -> tuple[Outcome, str] | None:
        """The outcome with its reason; None while the run goes on."""
        progress = seen.progress
        if not seen.connected or progress is None:
            return None
        if progress.done and seen.incident is None:
            poison = aside(progress)
            return (Outcome.POISONED, "; ".join(poison)) if poison else (Outcome.DONE, "")
        return self._nothing_left(progress, now) or self._stuck(progress, now)

    def _nothing_left(self, progress: Progress, now: float) -> tuple[Outcome, str] | None:
        outputs = {p: progress.positions[p] for p in self.topology.outputs if p in progress.positions}
        if outputs != self._outputs:
            self._outputs, self._at_rest_since = outputs, now
        poisoned = progress.poisoned
        if not poisoned or not set(self.topology.outputs) <= self.topology.downstream_of(poisoned):
            return None
        if now - self._at_rest_since < REST_S:
            return None
        text = f"every query needs what was set aside: {'; '.join(aside(progress))}"
        return Outcome.POISONED, text

    def _stuck(self, progress: Progress, now: float) -> tuple[Outcome, str] | None:
        if not progress.stuck:
            self._stuck_since = None
            return None
        if self._stuck_since is None:
            self._stuck_since = now
        return (Outcome.FAILED, progress.stuck) if now - self._stuck_since >= STUCK_S else None


def aside(progress: Progress) -> list[str]:
    """The partitions that were set aside, each with what it raised."""
    return [f"{p}: {failure}" for p, failure in progress.poisoned.items()]

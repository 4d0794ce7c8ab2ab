"""What is lost with a standby: the time by which it would have shortened the recovery of its partition, by who waits for it.

Where a plan needs the room of a standby, that one goes first of which least is lost: the priority of the most valuable query
that needs its partition, times the seconds that the partition would take longer without it.  These are the plan, reading the
stored state and applying again the rows that came after it; the driver says of each partition at work how much that is
(`PartitionStats.restore`).  A loss is noticed, and what goes on is told to, with a standby as well.

Departs from Hwang et al., who do not say which standby goes.  What a passive standby has to apply again, a few batches, is
not taken off.  Of a partition of which the driver says nothing the plan alone counts; where it says nothing of any, the
order is that of priority.
"""

from __future__ import annotations

from reprise.algorithms.recovery_time import Overhead, RestoreWork
from reprise.scheduler.model import PartitionStats
from reprise.scheduler.view import View
from reprise.scheduler.worth import by_worth, worth_of


def most_lost_first(view: View) -> list[str]:
    """Partitions, those first with whose standbys most would be lost; of equal ones those that the more valuable query
    needs, then in topological order."""
    worth, progress = worth_of(view), view.snapshot.progress
    plan_s = Overhead.of(progress.overhead if progress is not None else {}).plan_s
    stats = view.snapshot.stats
    return sorted(by_worth(view), key=lambda p: -worth[p] * (plan_s + _restored_s(stats.get(p))))


def _restored_s(stats: PartitionStats | None) -> float:
    """Seconds for reading the state of a partition and applying again what followed; 0 where nothing is known of it."""
    if stats is None:
        return 0.0
    work = stats.restore or RestoreWork(0)
    return work.load_s(stats.state_bytes) + work.replay_s

"""When a query is back: the one definition, for the record of an incident and for everybody who shows it.

A query is back when all of its partitions are at work and its output has been *near* the newest batch for some time, during
which it has moved.  Near is measured with the query's own yardstick: the lag that its output had while all was well, frozen
when the incident opens, as one topology runs two batches behind its horizon and another seven.  A query that is back goes
down again when a partition of it is lost, or when its output has been far from the newest batch for as long.

The newest batch is never older than the one that was newest when the incident opened: a rollback takes the horizon of the
driver's report back to the checkpoint, and for a moment everything seems to be near it.

Newest is what was released.  What is due and not released yet, as a source waits or as hours of input are caught up window
by window, keeps every query from its readers alike: it is shown as their lag (`behind`), and is no part of one recovery.

Invariant: pure; whoever has the same record and the same report says the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from reprise.scheduler.incident import Incident, QueryTimeline
from reprise.scheduler.model import Progress

FLOOR = 2
"""A query this many batches behind is near, however small its steady lag is or if it is not known."""
TOLERANCE = 1
"""Batches on top of a steady lag."""
HOLD_S = 2.0
"""How long an output must have been near, or far, before it counts as back, or as down again."""


def limit(incident: Incident, partition: str) -> int:
    """The largest lag, in batches, with which the output of a query is near.  A partition that is no output has no yardstick
    of its own, and takes that of the slowest query."""
    steady = incident.steady.get(partition, max(incident.steady.values(), default=0))
    return max(FLOOR, steady + TOLERANCE)


def lag(progress: Progress, incident: Incident | None, partition: str) -> int:
    """Batches between a partition and the newest batch that was released: what it is judged by."""
    return _to(progress.horizon, progress, incident, partition)


def behind(progress: Progress, incident: Incident | None, partition: str) -> int:
    """Batches between a partition and the last one that is due, released or not: what a reader misses.  One that is not
    there has shown what is before the snapshot from which it comes back."""
    stored = incident.restored_from if incident else progress.covers
    return _to(progress.newest, progress, incident, partition, stored.of(partition))


def _to(newest: int, progress: Progress, incident: Incident | None, partition: str, absent: int = 0) -> int:
    newest = max(newest, incident.horizon) if incident else newest
    return max(0, newest - progress.positions.get(partition, absent))


def near(progress: Progress, incident: Incident, partition: str) -> bool:
    """Whether a partition is at work and near the newest batch in this report."""
    return partition in progress.positions and lag(progress, incident, partition) <= limit(
        incident, partition
    )


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look shows of the output of a query whose partitions are all at work."""

    now: float
    position: int
    near: bool
    all_shown: bool
    """It has shown all batches that there are: none is there for which it could move."""
    last: bool = False
    """The incident is being closed: a query that is near and has moved is not waited for any longer."""


def seen(times: QueryTimeline, sight: Sight) -> QueryTimeline:
    """The record of a query with what a look has shown."""
    if sight.near == (times.caught_up_at is not None):
        return times if times.turning_since is None else replace(times, turning_since=None)
    since = sight.now if times.turning_since is None else min(times.turning_since, sight.now)
    if since != times.turning_since:  # just now; or by a leader whose clock is ahead of this one
        times = replace(times, turning_since=since, turning_at=sight.position)
    held = sight.now - since >= HOLD_S
    if not sight.near:
        return relapsed(times, since) if held else times
    moved = sight.all_shown or sight.position > times.turning_at
    return replace(times, caught_up_at=since, turning_since=None) if moved and (held or sight.last) else times


def relapsed(times: QueryTimeline, at: float) -> QueryTimeline:
    """The record of a query that is down from `at` on, whether it was back before or not."""
    if times.caught_up_at is None:
        return replace(times, turning_since=None)
    return replace(
        times,
        caught_up_at=None,
        turning_since=None,
        relapses=times.relapses + 1,
        up_s=times.up_s + max(0.0, at - times.caught_up_at),
    )


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long a query was down."""

    seconds: float
    """Without the time for which it was back in between."""
    measured: bool
    """False: it had not been seen back when the record ends, so it took at least this long."""
    relapses: int = 0

    def __str__(self) -> str:
        again = f", down again {_times(self.relapses)}" if self.relapses else ""
        return f"{'' if self.measured else 'at least '}{self.seconds:.1f} s{again}"


def recovery_of(times: QueryTimeline, end: float) -> Recovery:
    """The recovery of one query; `end` is when its incident was closed, or now."""
    until = end if times.caught_up_at is None else times.caught_up_at
    seconds = max(0.0, until - times.lost_at - times.up_s)
    return Recovery(seconds, times.caught_up_at is not None, times.relapses)


def spread(recoveries: Iterable[Recovery], closed: bool) -> str:
    """All of an incident in one sentence that leaves none out.

    For example `7 of 15 back, down for 20.7 to 51.4 s; 8 not measured (at least 60.0 s)`."""
    every = list(recoveries)
    back = sorted(r.seconds for r in every if r.measured)
    others = sorted(r.seconds for r in every if not r.measured)
    parts = [f"{len(back)} of {len(every)} back" + (f", down for {_range(back)}" if back else "")]
    if others:
        parts.append(
            f"{len(others)} {'not measured' if closed else 'still down'} (at least {_range(others)})"
        )
    if relapses := sum(r.relapses for r in every):
        parts.append(f"{relapses} relapse{'s' if relapses > 1 else ''}")
    return "; ".join(parts)


def summary(incident: Incident, now: float) -> str:
    """`spread` of all queries of an incident; `now` counts while it is open."""
    end = now if incident.closed_at is None else incident.closed_at
    return spread((recovery_of(t, end) for t in incident.queries.values()), incident.closed_at is not None)


def _range(seconds: list[float]) -> str:
    low, high = f"{seconds[0]:.1f}", f"{seconds[-1]:.1f}"
    return f"{low} s" if low == high else f"{low} to {high} s"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"

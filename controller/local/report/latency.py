"""Relative latency and availability of queries, as in Su and Zhou, section 7.2.

A query's latency is the write time of a batch less the time it was due; l_s is its mean before the failure, RL = l / l_s.
A query is available when the mean latency over a window is below 1.2 l_s.  Su and Zhou's latencies are seconds to minutes;
here l_s is a fraction of a second, and one garbage collection or one more JVM on the machine is more than a fifth of it.
So a fixed tolerance is added: available means mean latency < 1.2 l_s + tolerance, and both numbers are in every report.

A query that writes nothing has no latency to average; the age of the oldest batch that is due and unwritten is then what
a reader of its output sees, and it counts.  Without this a dead query would look as good as its last write.  A query that
has written the last batch of a stream that ended owes nothing and is available.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reprise.controller.local.report.history import Seconds, Writes
from reprise.controller.status.share import priority_share

THETA = 1.2
"""Of Su and Zhou, section 7.2."""
BASELINE_BATCHES = 30
"""l_s is taken over so many batches before the failure, of which those of the start-up are left out."""
WARM_UP_BATCHES = 5


@dataclass(frozen=True, slots=True)
class Criterion:
    """When a query counts as available."""

    window_s: float
    tolerance_s: float
    theta: float = THETA
    interval_s: float = 0.0
    """Between batches: when the one after the last that was written is due."""

    def limit(self, baseline_s: float) -> float:
        """The mean latency from which on a query is not available, seconds."""
        return self.theta * baseline_s + self.tolerance_s


def criterion_for(batch_interval_s: float) -> Criterion:
    """The window holds at least three batches.  Tolerance: one batch, as outputs come batch by batch, and one second for
    a machine that starts JVMs beside the run."""
    return Criterion(
        window_s=max(2.0, 3 * batch_interval_s),
        tolerance_s=1.0 + batch_interval_s,
        interval_s=batch_interval_s,
    )


@dataclass(frozen=True, slots=True)
class Series:
    """One query over time; arrays are as long as the grid that they were made for."""

    query: str
    priority: int
    baseline_s: float
    """l_s."""
    latency_s: Seconds
    """Mean over the window, or the age of the oldest unwritten batch if that is more."""
    available: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    @property
    def relative(self) -> Seconds:
        """RL."""
        found: Seconds = self.latency_s / max(self.baseline_s, 1e-3)
        return found


def baseline(writes: Writes, failure: float | None) -> float:
    """The value l_s: mean latency of the batches written before the failure (of all, without one), start-up left out."""
    before = writes.latency if failure is None else writes.latency[writes.written < failure]
    settled = before[WARM_UP_BATCHES:] if before.size > 2 * WARM_UP_BATCHES else before
    recent = settled[-BASELINE_BATCHES:] if failure is not None else settled
    return float(max(recent.mean(), 0.0)) if recent.size else 0.0


def series(
    query: tuple[str, int],
    writes: Writes,
    grid: Seconds,
    failure: float | None,
    final: int | None,
    criterion: Criterion,
) -> Series:
    """A query's (id, priority) latency and availability at the times of `grid` (unix seconds, rising).

    `final`: the last batch of the stream, None if the stream had not ended.
    """
    usual = baseline(writes, failure)
    age = _age(writes, grid, final, criterion.interval_s)
    latency = np.maximum(_windowed(writes, grid, criterion.window_s), age)
    nothing_owed = grid >= writes.written.max() if _finished(writes, final) else np.zeros(len(grid), np.bool_)
    return Series(*query, usual, latency, (latency < criterion.limit(usual)) | nothing_owed)


def _finished(writes: Writes, final: int | None) -> bool:
    """Whether the query has written its last batch: from then on its reader misses nothing."""
    return final is not None and bool(writes.batches[-1] >= final)


def _windowed(writes: Writes, grid: Seconds, window_s: float) -> Seconds:
    """Mean latency of what was written in the window before each time; where nothing was, that of the last write."""
    order = np.argsort(writes.written, kind="stable")
    at, latency = writes.written[order], writes.latency[order]
    total = np.concatenate([[0.0], np.cumsum(latency)])
    end = np.searchsorted(at, grid, side="right")
    start = np.searchsorted(at, grid - window_s, side="right")
    start = np.where(start == end, np.maximum(end - 1, 0), start)
    count = np.maximum(end - start, 1)
    found: Seconds = (total[end] - total[start]) / count
    return found


def _age(writes: Writes, grid: Seconds, final: int | None, interval_s: float) -> Seconds:
    """Age of the oldest batch that is due and not written.  A query writes its batches in their order."""
    # at time t the batches up to index k are written when the latest write among them is not after t
    done = np.maximum.accumulate(writes.written)
    following = np.searchsorted(done, grid, side="right")
    due = np.append(writes.due, np.inf if _finished(writes, final) else writes.due[-1] + interval_s)
    found: Seconds = np.maximum(grid - due[following], 0.0)
    return found


def weighted_share(found: Mapping[str, Series]) -> Seconds:
    """Priority-weighted share of available queries over the grid, 0..1."""
    share: Seconds = np.asarray(priority_share((s.priority, s.available) for s in found.values()))
    return share


def lost_area(share: Seconds, grid: Seconds, since: float) -> float:
    """Integral of (1 - share) from `since` on, in seconds of the whole topology unavailable."""
    late = grid >= since
    return float(np.trapezoid(1.0 - share[late], grid[late])) if late.sum() > 1 else 0.0

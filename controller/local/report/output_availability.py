"""Availability of a whole run by its output: every query's series on one grid of times, and what follows from them.

It is measured after the run, by how late each output is (Su and Zhou, section 7.2).  What
`reprise.controller.status.availability` says while a topology runs follows from the records: whether a query is lost or
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reprise.controller.local.report.history import Seconds, Writes
from reprise.controller.local.report.latency import Criterion, Series, lost_area, series, weighted_share
from reprise.controller.status.actions import FAILURES

STEP_S = 0.25
MAX_POINTS = 4000


@dataclass(frozen=True, slots=True)
class OutputAvailability:
    """`grid`: unix seconds; all series are on it.  `failure`: the first fault, None in a run without."""

    grid: Seconds
    zero: float
    failure: float | None
    criterion: Criterion
    queries: Mapping[str, Series]
    share: Seconds

    @property
    def elapsed(self) -> Seconds:
        """The grid in seconds since the stream began."""
        found: Seconds = self.grid - self.zero
        return found

    @property
    def count(self) -> Seconds:
        """Available queries at each time."""
        found: Seconds = np.sum([s.available for s in self.queries.values()], axis=0, dtype=np.float64)
        return found

    @property
    def lost_s(self) -> float:
        """Area over the priority-weighted availability since the failure: seconds of the whole topology lost."""
        return 0.0 if self.failure is None else lost_area(self.share, self.grid, self.failure)

    def again_s(self, query: str) -> float | None:
        """Seconds from the failure until the query was available for good; 0 if it always was, None if it never came
        back."""
        if self.failure is None:
            return 0.0
        late = self.grid >= self.failure
        down = np.flatnonzero(~self.queries[query].available & late)
        if not down.size:
            return 0.0
        if down[-1] == len(self.grid) - 1:
            return None
        return float(self.grid[down[-1] + 1] - self.failure)


def first_failure(actions: Iterable[Mapping[str, Any]], opened: Iterable[float]) -> float | None:
    """The moment of the first thing that was broken, else of the first incident."""
    broken = [float(a["time"]) for a in actions if a["action"] in FAILURES and "error" not in a]
    return min(broken or list(opened), default=None)


def output_availability(
    writes: Mapping[str, Writes],
    priorities: Mapping[str, int],
    span: tuple[float, float],
    failure: float | None,
    done: bool,
    criterion: Criterion,
) -> OutputAvailability | None:
    """Availability of each query over time; None when nothing was written.  Queries that never wrote anything are
    unavailable throughout.

    `span`: when the stream began and when the run ended; `done`: the stream ended, so after the last batch that anybody
    wrote nothing is due.
    """
    written = {query: w for query, w in writes.items() if w.written.size}
    if not written:
        return None
    zero = span[0]
    last = max(float(w.written.max()) for w in written.values())
    end = max(last if done else span[1], last, zero) + STEP_S
    final = max(int(w.batches[-1]) for w in written.values()) if done else None
    grid = np.linspace(zero, end, min(MAX_POINTS, int((end - zero) / STEP_S) + 2))
    found = {}
    for query, priority in priorities.items():
        if query in written:
            found[query] = series((query, priority), written[query], grid, failure, final, criterion)
        else:
            found[query] = Series(query, priority, 0.0, grid - zero, np.zeros(len(grid), dtype=np.bool_))
    return OutputAvailability(grid, zero, failure, criterion, found, weighted_share(found))

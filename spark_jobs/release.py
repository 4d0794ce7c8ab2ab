"""When batches become due: the clock of the stream.

Batch b is due (b - 1) intervals after the start, which is kept beside the ledger: a driver that restarts, or a cluster that
was down, finds the batches that came due meanwhile, as a live stream would.  With an interval of 0 batches are due as soon as
the topology can take them (throughput measurements).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import fsspec


@dataclass(frozen=True, slots=True)
class Release:
    """`started`: unix seconds at which batch 1 was due; `interval_s`: seconds between batches, 0 = at once."""

    started: float
    interval_s: float
    ahead: int = 32

    def due(self, now: float, slowest: int) -> int:
        """The last batch that is due."""
        if self.interval_s <= 0:
            return slowest + self.ahead
        return max(0, int((now - self.started) / self.interval_s) + 1)

    def at(self, batch: int) -> float:
        """When `batch` was due, unix seconds."""
        return self.started + (batch - 1) * self.interval_s


def open_release(location: str, interval_s: float, now: float) -> Release:
    """The stream's clock, started now unless it was started before at this location."""
    fs, root = fsspec.core.url_to_fs(location)
    path = f"{root.rstrip('/')}/clock.json"
    if fs.exists(path):
        return Release(float(json.loads(fs.cat_file(path))["started"]), interval_s)
    fs.makedirs(root, exist_ok=True)
    with fs.open(path, "w") as file:
        json.dump({"started": now}, file)
    return Release(now, interval_s)

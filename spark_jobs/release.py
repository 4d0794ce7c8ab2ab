"""When batches become due: the clock of the stream.

Batch b is due (b - 1) intervals after the start: the moment at which the topology stood for the first time, which is kept
beside the ledger.  A driver that restarts, or a cluster that was down, finds the batches that came due meanwhile, as a live
stream would.  With an interval of 0 batches are due as soon as the topology can take them (throughput measurements).
"""

from __future__ import annotations

import json

from spark_jobs.errors import DamagedError
from spark_jobs.files import Files

CLOCK = "clock.json"


class Release:
    """The clock of one stream.  `interval_s`: seconds between batches; `ahead`: batches in flight where it is 0."""

    def __init__(self, location: str, interval_s: float, ahead: int = 32) -> None:
        self.interval_s = interval_s
        self.ahead = ahead
        self._files = Files(location)
        self.started = self._read()

    def _read(self) -> float | None:
        data = self._files.read(CLOCK)
        try:
            return None if data is None else float(json.loads(data)["started"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(
                f"{CLOCK} in {self._files.name}: the stream's clock is damaged: {error}"
            ) from error

    def start(self, now: float) -> None:
        """Let batch 1 be due now (unix seconds), unless the clock was started before, by whomever.  StoreError: it cannot
        be written; the clock stands still until it is."""
        if self.started is None:
            self._files.create(CLOCK, json.dumps({"started": now}).encode())
            self.started = self._read()

    def due(self, now: float, slowest: int) -> int:
        """The last batch that is due; `slowest` is the least position."""
        if self.started is None:
            return 0
        if self.interval_s <= 0:
            return slowest + self.ahead
        return max(0, int((now - self.started) / self.interval_s) + 1)

    def at(self, batch: int) -> float:
        """When `batch` is due, unix seconds; 0.0 before the start."""
        return 0.0 if self.started is None else self.started + (batch - 1) * self.interval_s

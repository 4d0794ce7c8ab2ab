"""When batches become due: the clock of the stream.

Batch b is due (b - 1) intervals after the start: the moment at which the topology stood for the first time, which is kept
beside the ledger.  A driver that restarts, or a cluster that was down, finds the batches that came due meanwhile, as a live
stream would.  With an interval of 0 batches are due as soon as the topology can take them (throughput measurements).
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import fsspec

from spark_jobs.errors import CheckpointError


class Release:
    """The clock of one stream.  `interval_s`: seconds between batches; `ahead`: batches in flight where it is 0."""

    def __init__(self, location: str, interval_s: float, ahead: int = 32) -> None:
        self.interval_s = interval_s
        self.ahead = ahead
        self._fs, root = fsspec.core.url_to_fs(location)
        self._path = str(PurePosixPath(root) / "clock.json")
        self.started = self._read()

    def _read(self) -> float | None:
        try:
            return (
                float(json.loads(self._fs.cat_file(self._path))["started"])
                if self._fs.exists(self._path)
                else None
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self._path}: the stream's clock is damaged: {error}") from error

    def start(self, now: float) -> None:
        """Let batch 1 be due now (unix seconds), unless the clock was started before."""
        if self.started is None:
            self._fs.makedirs(str(PurePosixPath(self._path).parent), exist_ok=True)
            with self._fs.open(self._path, "w") as file:
                json.dump({"started": now}, file)
            self.started = now

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

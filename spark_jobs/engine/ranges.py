"""Which ranges of the ledger the partitions of sources have been told.

Invariant: an installation is told the range of each batch from its checkpoint on until a report has come after it; so one
whose report was lost is told again.  One that an earlier driver has installed is told what follows its position.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reprise.spark_jobs.contract import Range
from reprise.spark_jobs.state.ledger import Ledger


@dataclass(slots=True)
class ToldRanges:
    """What is told by one driver; `most`: batches that one command names, so that a source that has far to go is told in
    several."""

    ledger: Ledger
    most: int
    _taken: dict[str, int] = field(default_factory=dict)
    """Installation -> last batch whose range it has."""

    def new(self, partition: str, installation: str, origin: int, horizon: int) -> dict[int, Range]:
        """Ranges up to the horizon that an installation, which began at batch `origin`, has not got."""
        after = self._taken.get(installation, origin)
        return self.ledger.spans(partition, after, min(horizon, after + self.most))

    def taken(self, installation: str, origin: int, horizon: int) -> None:
        """It has got what is new."""
        after = self._taken.get(installation, origin)
        self._taken[installation] = min(horizon, after + self.most)

    def holds(self, installation: str, position: int) -> None:
        """It lived on without a driver, and has the ranges of all that it has read and of which it may be asked again."""
        self._taken[installation] = position

    def forget(self, installation: str) -> None:
        """Nobody has this installation any more."""
        self._taken.pop(installation, None)

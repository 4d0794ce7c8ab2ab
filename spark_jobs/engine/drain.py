"""Stopping a stream at a checkpoint, so that another version of its code can go on from there.

Invariant: no batch that may have been shown lies behind the checkpoint at which the stream stops; new code replays none.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from reprise.spark_jobs.engine.punctuation import Punctuations

log = logging.getLogger("reprise.engine")


@dataclass(slots=True)
class Drain:
    """The drain of one driver's life."""

    asked: bool = False
    """Set when the stream is to stop; never taken back in this driver's life."""
    shown_by: int = 0
    """Batches up to this one may have been shown, by this driver before a rollback or by one before it."""
    _last: int | None = None
    """The last batch that is released: a punctuation."""

    def back_from(self, horizon: int) -> None:
        """The stream goes back to a checkpoint after batches up to `horizon` were released."""
        self.shown_by = max(self.shown_by, horizon)
        self._last = None

    def release(self, due: int, horizon: int, whole: bool, punctuations: Punctuations) -> int:
        """The last batch to release of those that are `due`; `whole`: everything is at work, so checkpoints are taken."""
        reached = self.reached(horizon, punctuations.newest)
        if self._last is None and whole and horizon >= self.shown_by and not reached:
            newest_open = max(punctuations.open, default=0)
            self._last = newest_open if newest_open == horizon else horizon + 1
            if self._last != horizon:
                punctuations.demand(self._last)
            log.info("event=drain last=%d newest=%d", self._last, punctuations.newest)
        if self._last is None:
            return horizon if reached else due
        return self._last

    def holds(self, horizon: int, newest: int) -> bool:
        """Whether no batch is released any more, or the last one is chosen."""
        return self.asked and (self._last is not None or self.reached(horizon, newest))

    def reached(self, horizon: int, newest: int) -> bool:
        """Whether the newest checkpoint covers everything that may have been shown."""
        return newest >= max(horizon, self.shown_by)

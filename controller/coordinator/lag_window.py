"""How far behind the newest batch each query's output is while all is well: the yardstick by which it is back.

A lag is only noted while nothing is failed, paused or new: for `CALM_S` after each change of what is desired the partitions
still catch up.  A failure is noticed seconds after it has begun, and meanwhile lags grow; so the samples of the last
`DETECTION_S` are left aside where there are older ones, and of the others a high quantile counts, as a query that swings
between two and seven batches is back when it does so again.

Invariant: no failure becomes a yardstick.  A lag is only noted when every output has moved since the last one was, or has
shown all that there is: one that stands still is no measure for its recovery.  And a steady lag is never more than `MOST`: a
topology that is too slow for its input runs as far behind as batches are released ahead, and that is not well.

This is a memory of the process, like that of the statistics: a
coordinator that has just started knows no steady lag, and the floor of `reprise.scheduler.back` holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reprise.scheduler.incident import Incident
from reprise.scheduler.model import Desired, Progress
from reprise.scheduler.view import taken_over

CALM_S = 5.0
"""After a change of the desired state, before its lags are normal."""
DETECTION_S = 8.0
"""A session's timeout and some looks: as long as a failure may have lasted when it is noticed."""
EVERY_S = 1.0
"""Between two samples."""
SAMPLES = 32
"""As many are kept, of however long ago: between two incidents there may be little calm."""
QUANTILE = 0.9
MOST = 32
"""Batches: as many as a topology without a pace of its own may have in flight (`reprise.spark_jobs.state.release`)."""


@dataclass(slots=True)
class LagWindow:
    """Samples as numbers, as an operator keeps those of a thousand topologies."""

    _outputs: tuple[str, ...] = ()
    _samples: deque[tuple[float, npt.NDArray[np.int32]]] = field(
        default_factory=lambda: deque(maxlen=SAMPLES)
    )
    _shown: npt.NDArray[np.int64] | None = None
    """Positions of the outputs at the last sample, or when they were first seen."""
    _decided: tuple[str, int] | None = None
    """Driver and number of the desired state that the samples are of: a new driver's numbers say nothing of this one's."""
    _calm_from: float = 0.0

    def note(
        self,
        now: float,
        outputs: Sequence[str],
        progress: Progress | None,
        desired: Desired | None,
        incident: Incident | None,
    ) -> None:
        """The lags in a report, if all is well."""
        if self._outputs != tuple(outputs):
            self._outputs = tuple(outputs)
            self._samples.clear()
            self._shown = None
        decided = None if desired is None or incident is not None else (desired.driver, desired.seq)
        if desired is None or progress is None or decided is None or decided != self._decided:
            self._decided = decided
            self._calm_from, self._shown = now + CALM_S, None
            return
        if self._is_due(now) and self._is_normal(desired, progress):
            self._sample(now, progress)

    def _is_due(self, now: float) -> bool:
        """Whether all has been calm for long enough, since the last sample, too."""
        return now >= self._calm_from and (not self._samples or now >= self._samples[-1][0] + EVERY_S)

    def _is_normal(self, desired: Desired, progress: Progress) -> bool:
        """Whether a report says that everything that is desired is at work."""
        if desired.paused or progress.failed or progress.ended or not taken_over(desired, progress):
            return False
        return all(output in progress.positions for output in self._outputs)

    def _sample(self, now: float, progress: Progress) -> None:
        shown = np.array([progress.positions[output] for output in self._outputs], np.int64)
        if self._shown is None:
            self._shown = shown
        lags = np.maximum(progress.horizon - shown, 0)
        if np.all((lags == 0) | (shown > self._shown)):
            self._shown = shown
            self._samples.append((now, np.minimum(lags, MOST).astype(np.int32)))

    def steady(self, now: float) -> Mapping[str, int]:
        """Batches, by query; nothing where nothing was noted."""
        if not self._samples:
            return {}
        before = [lags for at, lags in self._samples if at <= now - DETECTION_S]
        quantile = QUANTILE if before else 0.5  # of those that may show the failure the middle one
        lags = np.quantile(before or [lags for _, lags in self._samples], quantile, axis=0, method="lower")
        return dict(zip(self._outputs, lags.astype(int).tolist(), strict=True))

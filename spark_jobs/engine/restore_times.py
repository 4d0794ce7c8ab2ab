"""What a recovery of each partition would have to do now, and how fast those before it went.

The rows that a partition would apply once more are those that it has applied behind the snapshot that it would be restored
from.  They fall to nothing with each new snapshot and then grow, so what counts is the most since the snapshot before.

Invariant: nothing here is less than it is.  Positions are known after each job and not for each batch, and of a long time
only some are kept; between two that are known the earlier one counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from reprise.algorithms.failure import FailureKind
from reprise.algorithms.positions import Positions
from reprise.algorithms.recovery_time import (
    DETECTION,
    DETECTION_S,
    INSTALL,
    LEAST_ROWS,
    PLAN,
    Aim,
    RestoreWork,
)
from reprise.spark_jobs.engine.origins import covered_now
from reprise.spark_jobs.node.command import Usage

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine

MOST_KNOWN = 64
"""Positions of one partition that are kept; every second one goes when there are more."""
SAME_LOSS_S = 1.0
"""Partitions that are lost within this time are planned for together."""
LOST = frozenset({FailureKind.NODE_LOST, FailureKind.STATE_LOST})


@dataclass(slots=True)
class _Known:
    """One installation of a partition."""

    installation: str
    behind: list[tuple[int, int]]
    """Position, and rows that it had applied since it was installed; the first is the newest not behind its snapshot."""
    most: int = 0
    """Rows behind its newest snapshot, the most that were."""
    most_before: int = 0
    """Of the snapshot before."""
    aim: Aim | None = None

    def at(self, position: int, rows: int, covered: int) -> None:
        """It has applied `rows` up to `position`, and would be restored from `covered`."""
        if self.behind[-1][0] < position:
            self.behind.append((position, rows))
        newer = next((k for k, (at, _) in enumerate(self.behind) if at > covered), len(self.behind)) - 1
        if newer > 0:
            del self.behind[:newer]
            self.most, self.most_before = 0, self.most
        if len(self.behind) > MOST_KNOWN:
            del self.behind[1:-1:2]
        self.most = max(self.most, rows - self.behind[0][1])


@dataclass(slots=True)
class RestoreTimes:
    """What one driver has seen in its life.  Times are of a monotonic clock, seconds."""

    detection_s: float = DETECTION_S
    """How long after its death the loss of a node is noticed."""
    _known: dict[str, _Known] = field(default_factory=dict)
    _rows_s: dict[str, float] = field(default_factory=dict)
    _bytes_s: dict[str, float] = field(default_factory=dict)
    _lost: dict[str, float] = field(default_factory=dict)
    """When partitions were lost that were not ordered to be restored since."""
    _planned: float = float("-inf")
    """When those were lost that a plan was made for last."""
    _plans: deque[float] = field(default_factory=lambda: deque(maxlen=9))
    _installs: deque[float] = field(default_factory=lambda: deque(maxlen=64))

    def loses(self, partition: str, kind: FailureKind, now: float) -> None:
        """A partition is not at work any more."""
        if kind in LOST:
            self._lost[partition] = now

    def installs(self, partition: str, now: float) -> None:
        """A partition is to be restored.  Of those that were lost together the first says how long planning took: others may
        have waited for a node."""
        lost = self._lost.pop(partition, None)
        if lost is not None and abs(lost - self._planned) > SAME_LOSS_S:
            self._planned = lost
            self._plans.append(now - lost)

    def installed(self, seconds: float, usage: Usage) -> None:
        """A partition is at work so many seconds after it was to be restored."""
        self._installs.append(max(0.0, seconds - usage.load_s))

    def look(self, engine: Engine) -> None:
        """Where an engine's partitions are after a job."""
        self.applied(engine.at_work, engine.usage, covered_now(engine), engine.installation)

    def applied(
        self,
        positions: Mapping[str, int],
        usage: Mapping[str, Usage],
        covered: Positions,
        installation: Mapping[str, str],
    ) -> None:
        """Where partitions are after a job, and what each has done since it was installed."""
        for partition, position in positions.items():
            done, current = usage.get(partition), installation[partition]
            if done is None:
                continue
            at, known = covered.of(partition), self._known.get(partition)
            if known is None or known.installation != current:
                # of what was applied before this was asked for the first time nobody knows where it began
                known = self._known[partition] = _Known(current, [(min(at, position), 0)])
            known.at(position, done.rows, at)
            known.aim = None if done.aim is None else Aim(*done.aim)
            if done.rows >= LEAST_ROWS and done.cpu_s > 0:
                self._rows_s[partition] = round(max(1.0, done.rows / done.cpu_s), 1)
            if done.load_bytes and done.load_s > 0:
                self._bytes_s[partition] = round(max(1.0, done.load_bytes / done.load_s), 1)

    def works(self) -> dict[str, RestoreWork]:
        """What each partition would have to do; from any thread."""
        return {
            partition: RestoreWork(
                max(known.most, known.most_before),
                self._rows_s.get(partition),
                self._bytes_s.get(partition),
                known.aim,
            )
            for partition, known in list(self._known.items())
        }

    def overhead(self) -> dict[str, float]:
        """Seconds of each part of a recovery that this driver has seen, of the middle one of the last; from any thread."""
        seen = ((PLAN, list(self._plans)), (INSTALL, list(self._installs)))
        measured = {part: round(median(seconds), 3) for part, seconds in seen if seconds}
        return {DETECTION: self.detection_s, **measured}

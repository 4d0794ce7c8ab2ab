"""How many seconds the recovery of a partition takes, from what is measured of it while it works.

A lost partition is noticed, planned for, and installed: that takes the same however much it has to do (`Overhead`).  Then it
reads its stored state, and applies the rows that came after it once more (`RestoreWork`).  The rates of both are measured
where it did so before; until then the rates here count, and `assumed` names what rests on them.

Not in it: waiting for a node, and catching up with what came in meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

DETECTION_S = 3.0
"""Session timeout of agents that are told no other: how long after its death a node's heartbeat goes."""
PLAN_S = 2.0
"""From the detection until the driver is told what to restore: the wait for the rest of a burst, a plan, one transaction."""
INSTALL_S = 2.0
"""From then until the partition is at work, without reading its state: a job, and an answer."""
BYTES_S = 5 * 2**20
"""Bytes of stored state that are read, decoded and taken in a second, where nobody has measured it."""
ROWS_S = 100_000
"""Rows that are applied in a second, where nobody has measured it."""
SLOTS_S = 100_000
"""Footprints of slots that are read back and taken in in a second, where nobody has measured it."""

LEAST_ROWS = 1_000
"""Fewer say nothing of how many are applied in a second."""

DETECTION, PLAN, INSTALL, LOAD, REPLAY = "detection", "plan", "install", "load", "replay"
"""Parts of a recovery."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds that each recovery takes, however much is restored.  `assumed`: parts that were not measured yet."""

    detection_s: float = DETECTION_S
    plan_s: float = PLAN_S
    install_s: float = INSTALL_S
    assumed: tuple[str, ...] = (PLAN, INSTALL)

    @property
    def seconds(self) -> float:
        """All of them."""
        return self.detection_s + self.plan_s + self.install_s

    @staticmethod
    def of(measured: Mapping[str, float]) -> Overhead:
        """What was measured of each part; the others are assumed."""
        assumed = tuple(part for part in (PLAN, INSTALL) if part not in measured)
        return Overhead(
            measured.get(DETECTION, DETECTION_S),
            measured.get(PLAN, PLAN_S),
            measured.get(INSTALL, INSTALL_S),
            assumed,
        )


@dataclass(frozen=True, slots=True)
class Aim:
    """How much a recovery of a partition that is stored slot by slot may have to do."""

    extent: int
    """Footprints and closings that it reads back (Q)."""
    replay: int
    """Rows behind the oldest footprint that is stored (U)."""
    least_s: float
    """Seconds that it takes at best: each open slot is read once, and what came since the log was stored is replayed."""
    within_s: float
    """Seconds in which it is to be done."""

    @property
    def holds(self) -> bool:
        """Whether it can be."""
        return self.least_s <= self.within_s


def derive(within_s: float, slots_s: float, rows_s: float, open_slots: int, rows_between: int) -> Aim:
    """Q and U such that load_s(Q) + replay_s(U) is at most `within_s`, where it can be; else the least of both.

    `slots_s`, `rows_s`: footprints read back and rows applied in a second.  `rows_between`: rows that come between two times
    that the log is stored, which are replayed beside those that U bounds.  What is left of the time beyond the least is
    halved between the two: more of one alone would let the other keep slots from getting old.
    """
    least_s = open_slots / slots_s + rows_between / rows_s
    spare_s = max(0.0, within_s - least_s) / 2
    extent, replay = open_slots + floor(spare_s * slots_s), floor(spare_s * rows_s)
    return Aim(max(1, extent), max(1, replay), least_s, within_s)


@dataclass(frozen=True, slots=True)
class RestoreWork:
    """What a partition would have to do if it were lost now, and how fast it was seen to do that."""

    rows: int
    """That it would apply once more, at most, since the snapshot before its newest."""
    rows_s: float | None = None
    """Rows a second that it applies while it works; None: not measured."""
    bytes_s: float | None = None
    """Bytes a second of its state that were read and taken in when it was restored last; None: it never was."""
    aim: Aim | None = None
    """How much it may have to do, where that follows from an objective."""

    def load_s(self, state_bytes: int) -> float:
        """Seconds to read a state of this size."""
        return state_bytes / (self.bytes_s or BYTES_S)

    @property
    def replay_s(self) -> float:
        """Seconds to apply the rows."""
        return self.rows / (self.rows_s or ROWS_S)

    def assumed(self, state_bytes: int) -> tuple[str, ...]:
        """Parts of its seconds that rest on no measurement."""
        load = () if self.bytes_s or not state_bytes else (LOAD,)
        return load if self.rows_s or not self.rows else (*load, REPLAY)

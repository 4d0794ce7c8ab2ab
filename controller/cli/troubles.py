"""What goes wrong in a run, told once: partitions that are set aside, and what the driver complains of.

The driver repeats a complaint as long as it holds, with other partitions and batch numbers in it; a full disk makes every
partition complain.  Invariant: one line for each kind of trouble, however often it is reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from reprise.controller.local.run.ending import aside
from reprise.controller.zookeeper.observation import Observation

_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_VARIES = re.compile(r"[\w.-]+\.\d+\b|\d+")
"""Partitions and numbers."""


@dataclass(slots=True)
class Troubles:
    """The troubles of one run."""

    _told: set[str] = field(default_factory=set)

    def new(self, seen: Observation) -> list[str]:
        """Lines that were not told before."""
        found = []
        for text in aside(seen.progress) if seen.progress else []:
            if self._first(text):
                found.append(f"set aside: {text}")
        for text in seen.problems:
            if _FULL.search(text):
                if self._first("full"):
                    found.append(f"problem: the disk is full; what waits goes on when there is room: {text}")
            elif self._first(_VARIES.sub("#", text)):
                found.append(f"problem: {text}")
        return found

    def _first(self, key: str) -> bool:
        fresh = key not in self._told
        self._told.add(key)
        return fresh

"""The processor time that the processes of a node get beside those of other nodes of one machine.

Linux schedules the processes of a session as a group (autogroup, sched(7)).  The owner of a session may lower its priority
and raise it again; only a privileged user may raise that of a process.  A container has groups of its own, so that these
levels have no effect there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NICE_STARTING, NICE_WORKING = 5, 0
"""Level 5 has a third of the weight of level 0.  With less, the heartbeat of a node that starts could be late."""
STARTING_S = 20.0
"""A node has the lower level for no longer than that."""


@dataclass(slots=True)
class SessionPriority:
    """That of this process's session."""

    file: Path = Path("/proc/self/autogroup")
    _level: int = NICE_WORKING

    def set(self, level: int) -> None:
        """Change the nice level.  Call it repeatedly: Linux allows all unprivileged users one change in 0.1 s."""
        if level == self._level:
            return
        try:
            self.file.write_text(str(level), encoding="utf-8")
        except OSError:  # too early, no file descriptor is left, or no such groups
            return
        self._level = level

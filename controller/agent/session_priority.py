"""The processor time that the processes of a node get beside those of other nodes of one machine.

Linux schedules the processes of a session as a group (autogroup, sched(7)), and the owner of the session may lower the
priority of that group and raise it again, which only a privileged user may do with that of a process.  Containers have
groups of their own, where this has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STARTING, WORKING = 5, 0
"""Nice levels.  A node that starts gets a third of what one gets whose partitions run; with less, its heartbeat could be
late."""


@dataclass(slots=True)
class SessionPriority:
    """That of this process's session."""

    file: Path = Path("/proc/self/autogroup")
    _level: int = WORKING

    def set(self, level: int) -> None:
        """Change the nice level; to be called again and again, as Linux refuses changes that follow each other closely."""
        if level == self._level:
            return
        try:
            self.file.write_text(str(level), encoding="utf-8")
        except BlockingIOError:
            return
        except OSError:
            pass  # this machine has no such groups
        self._level = level

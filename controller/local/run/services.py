"""Driver and coordinator as processes of a run: started, killed, started again when they end by themselves.

This is what Kubernetes does for a pod with `restartPolicy: Always`.  Both are leaders of sessions of their own (the
driver's JVM goes with it) and carry the mark of the cluster's reaper, so nothing is left however this process ends.
Invariant: one process of a service at a time; the old session is gone before a new one begins.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprise.controller.agent import processes
from reprise.controller.agent.processes import Session
from reprise.controller.local.cluster import launch
from reprise.controller.local.errors import ServiceError

QUICK_S = 10.0
"""A process that ends sooner than this after its start has failed to start."""
REFUSED = "refused: "
"""What the last line of a process begins with that cannot run with what it was given."""
QUICK_ENDS = 3
"""So many in a row and the service is given up: what is wrong will not go away."""


@dataclass(slots=True)
class Service:
    """One process with its command line."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    restarts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _session: Session | None = None
    _started: float = 0.0
    _quick_ends: int = 0
    _expected: bool = field(default=False)

    def start(self) -> None:
        """Raises EmbeddedError when the program is not there."""
        self._process, self._session = launch.spawn(self.command, self.environment, self.log)
        self._started = time.monotonic()
        self._expected = False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def revive(self) -> int | None:
        """Start again if it has ended; its exit status then.  ServiceError when it never stays."""
        if self._process is None or (status := self._process.poll()) is None:
            return None
        quick = not self._expected and time.monotonic() - self._started < QUICK_S
        self._quick_ends = self._quick_ends + 1 if quick else 0
        if self._quick_ends >= QUICK_ENDS:
            raise ServiceError(f"the {self.name} ends at every start (status {status}): {self._why()}")
        self._sweep()
        self.start()
        self.restarts += 1
        return status

    def _why(self) -> str:
        """The reason with which it has refused to start, or else the end of its log."""
        end = launch.tail(self.log)
        last = next(iter(reversed(end.splitlines())), "")
        return last.removeprefix(REFUSED) if last.startswith(REFUSED) else end

    def crash(self) -> None:
        """SIGKILL, with everything that it has started."""
        self._expected = True
        self._sweep()

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, then SIGKILL for what is left."""
        if self._process is not None and self.alive:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self._sweep()
        self._process = None

    def _sweep(self) -> None:
        if self._session is not None and self._process is not None:
            session = self._session
            processes.kill(lambda: processes.members([session]))
            self._process.wait()

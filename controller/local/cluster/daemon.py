"""A server process that is started, killed, frozen and started again with its data and port.

What ZooKeeper and Kafka servers of the embedded cluster have in common.  Invariant: data and port outlive the
process, so `restart` is what a restart is in production; the reaper that is given ends the process with its owner.
"""

import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from reprise.controller.agent import processes
from reprise.controller.agent.processes import Session
from reprise.controller.errors import StartError
from reprise.controller.local.cluster import launch
from reprise.controller.local.cluster.process_reaper import ProcessReaper

_STOP_TIMEOUT_S = 5.0


class Daemon(ABC):
    """One server process.  Subclasses say how it is started and when it is ready."""

    what: ClassVar[str]
    """Its name in messages."""
    stop_timeout_s: ClassVar[float] = _STOP_TIMEOUT_S

    def __init__(self, reaper: ProcessReaper, host: str, port: int, log: Path) -> None:
        self._reaper = reaper
        self.host, self.port = host, port
        self._log = log
        self._running: tuple[subprocess.Popen[bytes], Session] | None = None

    @abstractmethod
    def launch(self) -> None:
        """Start the process without waiting for it."""

    @abstractmethod
    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until it serves.  Raises StartError with the end of the log."""

    def _spawn(self, command: list[str], environment: dict[str, str]) -> None:
        self._running = launch.spawn(command, environment | self._reaper.environment(), self._log)

    def _wait_for_port(self, timeout_s: float) -> None:
        if self._running is None:
            raise StartError(f"{self.what} has not been started")
        launch.wait_until(
            lambda: launch.accepts(self.host, self.port),
            self.what,
            timeout_s,
            process=self._running[0],
            log=self._log,
        )

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._running is not None and self._running[0].poll() is None

    def start(self, timeout_s: float = 60.0) -> None:
        """Start and wait."""
        self.launch()
        self.wait_ready(timeout_s)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; data and port stay for the next start."""
        if self._running is not None and self.alive:
            self._running[0].terminate()
            try:
                self._running[0].wait(self.stop_timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        self._running = None

    def kill(self) -> None:
        """SIGKILL; data and port stay for the next start."""
        if self._running is not None:
            process, session = self._running
            processes.kill(lambda: processes.members([session]))
            process.wait()
        self._running = None

    def restart(self, timeout_s: float = 60.0) -> None:
        """Stop and start with the same data on the same port."""
        self.stop()
        self.start(timeout_s)

    def freeze(self) -> None:
        """SIGSTOP: the server is there but answers nobody."""
        if self._running is not None:
            session = self._running[1]
            processes.freeze(lambda: processes.members([session]))

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        if self._running is not None:
            session = self._running[1]
            processes.thaw(lambda: processes.members([session]))

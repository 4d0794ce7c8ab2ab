"""A partition host that the agent starts beside the executor's JVM: `reprise.spark_jobs.node.spare` says what for.

The agent has none of the data plane in its process, so names that both sides know are written here again; a test compares
them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

log = logging.getLogger("reprise.node_agent")

FOLDER = "REPRISE_SPARE_HOST"
"""Variable of the executor: folder where the host waits."""
STARTING = "spare-host.pid"
"""File in that folder: pid of the host, from its start until it is taken."""
MODULE = "reprise.spark_jobs.node.host_process"
ENVIRONMENT = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
"""What a host has beside the variables of its executor, and Spark sets for Python."""
WARM = "REPRISE_WARM_HOST"
"""Variable of an agent with a host that a fork server forked: its pid, and the descriptor that takes its folder and log."""
PAUSE_S = 5.0
"""Between two starts: one that cannot start is not tried again at once."""


@dataclass(slots=True)
class _Forked:
    """A child of this process that another one forked before the agent was this process."""

    pid: int
    _code: int | None = None

    def poll(self) -> int | None:
        return self._reaped(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reaped(0)

    def _reaped(self, options: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def _inherited() -> tuple[int, int] | None:
    """Pid and descriptor of a host that was forked for this agent, once; its executors do not see the variable."""
    pid, _, goes = os.environ.pop(WARM, "").partition(" ")
    return (int(pid), int(goes)) if goes else None


@dataclass(slots=True)
class SpareHost:
    """The host that waits, at most one, in the session of this process; from its executor's first task on it is that
    executor's host."""

    clock: Callable[[], float] = time.monotonic
    _warm: tuple[int, int] | None = field(default_factory=_inherited)
    _process: subprocess.Popen[bytes] | _Forked | None = None
    _environment: Mapping[str, str] | None = None
    _started: float = 0.0

    def start(self, environment: Mapping[str, str], output: Path | None = None) -> None:
        """Start one for an executor that has these variables, with the folder where the host waits among them; its output
        is added to the file `output`, or goes where the agent's goes."""
        self._environment, self._started = environment, self.clock()
        command = [sys.executable, "-m", MODULE, "--spare", environment[FOLDER], str(os.getpid())]
        self._process = None
        starting = Path(environment[FOLDER]) / STARTING
        with contextlib.ExitStack() as opened:
            out: IO[bytes] | None = None
            with contextlib.suppress(OSError):  # no file descriptor is left, for instance
                out = opened.enter_context(output.open("ab")) if output is not None else None
            try:
                starting.unlink(missing_ok=True)
                if self._forked(starting, output):
                    return
                self._process = subprocess.Popen(
                    command,
                    env={**environment, **ENVIRONMENT},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT if out is not None else None,
                )
                starting.write_text(str(self._process.pid), encoding="utf-8")
            except OSError as error:  # the executor's first task starts a host then
                log.warning("event=no-spare-host reason=%r", str(error))

    def _forked(self, starting: Path, output: Path | None) -> bool:
        """Send the host that was forked for this agent to its folder.  False: there is none, or it has ended."""
        warm, self._warm = self._warm, None
        if warm is None:
            return False
        self._process = _Forked(warm[0])
        starting.write_text(str(warm[0]), encoding="utf-8")  # first: a task may take the host at once
        try:
            with os.fdopen(warm[1], "w", encoding="utf-8") as goes:
                place = {"folder": str(starting.parent), "log": str(output or ""), "agent": os.getpid()}
                json.dump(place, goes)
        except OSError as error:
            log.warning("event=no-warm-host reason=%r", str(error))
            self._process.poll()
            return False
        return True

    @property
    def is_taken(self) -> bool:
        """Whether an executor has taken it just now, or none could be started."""
        return self._environment is not None and not (Path(self._environment[FOLDER]) / STARTING).exists()

    def keep(self, output: Path | None = None) -> None:
        """Start another one where the last has ended, with its executor: the executor that follows will want one.  Its
        output goes where that of `start` goes."""
        running = self._process is not None and self._process.poll() is None
        if self._environment is None or running or self.clock() - self._started < PAUSE_S:
            return
        self.start(self._environment, output)

    def ended(self) -> None:
        """It was killed with the rest of the session; reaps it."""
        if self._process is not None:
            self._process.wait()
        self._process = self._environment = None

"""A partition host that the agent starts beside the executor's JVM: `reprise.spark_jobs.node.spare` says what for.

The agent has none of the data plane in its process, so names that both sides know are written here again; a test compares
them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
PAUSE_S = 5.0
"""Between two starts: one that cannot start is not tried again at once."""


@dataclass(slots=True)
class SpareHost:
    """The host that waits, at most one, in the session of this process; from its executor's first task on it is that
    executor's host."""

    clock: Callable[[], float] = time.monotonic
    _process: subprocess.Popen[bytes] | None = None
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

"""The owner's side of the process that forks nodes (`reprise.spark_jobs.node.fork_server` says how)."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reprise.controller.agent.processes import Session
from reprise.controller.agent.spare_host import ENVIRONMENT, MODULE
from reprise.controller.errors import StartError
from reprise.controller.local.cluster import launch


class ForkServer:
    """Starts at once, and is ready when its imports are done: the first node waits for that.  Ends with its owner."""

    def __init__(self, environment: Mapping[str, str], log: Path, timeout_s: float = 60.0) -> None:
        """`environment`: what executors of all nodes have, on top of the owner's variables as they are now: an executor
        that has other ones does not take the host.  `timeout_s`: how long the answer to a request may take."""
        self._environment, self._log, self._timeout_s = launch.with_inherited(environment), log, timeout_s
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            with self._log.open("ab") as errors:
                return subprocess.Popen(
                    [sys.executable, "-m", MODULE, "--fork-server"],
                    env=self._environment | ENVIRONMENT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
        except OSError as error:
            raise StartError(f"the fork server does not start: {error}") from error

    def spawn(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Session:
        """Start an agent with a warm host, as leader of a new session; its outputs are appended to `log`.  A fork server
        that has ended is started again.  StartError."""
        if self._process.poll() is not None:
            self.close()
            self._process = self._started()
        request = {
            "command": list(command),
            "environment": self._environment | dict(environment),
            "log": str(log),
        }
        try:
            answer = self._asked(json.dumps(request).encode() + b"\n")
        except BaseException as error:
            self._process.kill()  # its next answer would be that to this request
            self._process.wait()  # else the next request may find it alive
            if not isinstance(error, OSError | ValueError):
                raise
            raise StartError(f"the fork server does not answer: {error}: {launch.tail(self._log)}") from error
        if "pid" not in answer:
            raise StartError(f"{command[0]} does not start: {answer['error']}")
        return Session(answer["pid"], answer["started"])

    def _asked(self, request: bytes) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(request)
        self._process.stdin.flush()
        answered = select.poll()
        answered.register(self._process.stdout, select.POLLIN)
        if not answered.poll(1000 * self._timeout_s):
            raise TimeoutError(f"nothing within {self._timeout_s:g} s")
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process; nodes live on."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()

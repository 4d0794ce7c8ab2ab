"""The owner's side of the process that forks nodes (`reprise.spark_jobs.node.fork_server` says how)."""

from __future__ import annotations

import json
import socket
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
        self._process, self._link = self._started()

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._log.open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", MODULE, "--fork-server"],
                    env=self._environment | ENVIRONMENT,
                    stdin=theirs.fileno(),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise StartError(f"the fork server does not start: {error}") from error
        return process, ours

    def spawn(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Session:
        """Start an agent with a warm host, as leader of a new session; its outputs are appended to `log`.  A fork server
        that has ended is started again.  StartError."""
        if self._process.poll() is not None:
            self.close()
            self._process, self._link = self._started()
        request = {
            "command": list(command),
            "environment": self._environment | dict(environment),
            "log": str(log),
        }
        try:
            answer = self._asked(json.dumps(request).encode() + b"\n")
        except BaseException as error:
            self.close()  # its next answer would be that to this request
            if not isinstance(error, OSError | ValueError):
                raise
            raise StartError(f"the fork server does not answer: {error}: {launch.tail(self._log)}") from error
        if "pid" not in answer:
            raise StartError(f"{command[0]} does not start: {answer['error']}")
        return Session(answer["pid"], answer["started"])

    def _asked(self, request: bytes) -> dict[str, Any]:
        self._link.settimeout(self._timeout_s)
        self._link.sendall(request)
        with self._link.makefile("rb") as answers:
            line = answers.readline()
        if not line:
            raise ConnectionError("it has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process; nodes live on."""
        self._process.kill()
        self._link.close()
        self._process.wait()

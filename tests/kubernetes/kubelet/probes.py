"""Startup, readiness and liveness probes: when to ask, what an answer means."""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from typing import Any

from tests.kubernetes.kubelet.container import Container


class Probe:
    """One probe of one container; `passing` is None until it has an opinion."""

    def __init__(self, spec: dict[str, Any], container: Container, ip: str) -> None:
        self._spec, self._container, self._ip = spec, container, ip
        self.restart()

    def restart(self) -> None:
        """The container was started (again)."""
        self.passing: bool | None = None
        self._next = time.monotonic() + float(self._spec.get("initialDelaySeconds", 0))
        self._good = self._bad = 0

    def look(self) -> None:
        """Ask when it is time to."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + float(self._spec.get("periodSeconds", 10))
        if self._ask():
            self._good, self._bad = self._good + 1, 0
            if self._good >= int(self._spec.get("successThreshold", 1)):
                self.passing = True
        else:
            self._good, self._bad = 0, self._bad + 1
            if self._bad >= int(self._spec.get("failureThreshold", 3)):
                self.passing = False

    def _ask(self) -> bool:
        timeout = float(self._spec.get("timeoutSeconds", 1)) + 2  # a busy machine is not a broken container
        try:
            if (how := self._spec.get("exec")) is not None:
                inside = ["nsenter", "--mount", "--target", str(self._container.pid)]
                done = subprocess.run(
                    [*inside, *how["command"]], env=self._container.environment, timeout=timeout,
                    capture_output=True, check=False,
                )  # fmt: skip
                return done.returncode == 0
            if (how := self._spec.get("httpGet")) is not None:
                connection = http.client.HTTPConnection(self._ip, self._port(how["port"]), timeout=timeout)
                connection.request("GET", how.get("path", "/"))
                return 200 <= connection.getresponse().status < 400
            with socket.create_connection(
                (self._ip, self._port(self._spec["tcpSocket"]["port"])), timeout=timeout
            ):
                return True
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired):
            return False

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        named = {p.get("name"): p["containerPort"] for p in self._container.spec.get("ports", [])}
        return int(named[port])

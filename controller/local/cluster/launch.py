"""Start a process of the cluster: own session, marked environment, log into a file; and wait for what it
offers."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from reprise.controller.agent.processes import Session
from reprise.controller.errors import StartError

POLL_S = 0.05
_TAIL = 2000


def spawn(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> tuple[subprocess.Popen[bytes], Session]:
    """Start `command` as leader of a new session; both its outputs are appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("ab") as out:
            process = subprocess.Popen(
                command,
                env=with_inherited(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise StartError(f"{command[0]} does not start: {error}") from error
    return process, Session.of(process.pid)


def with_inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` on top of the caller's, without Spark's and the JVM's own variables, which could redirect anything."""
    inherited = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("SPARK_", "_SPARK_", "PYSPARK_", "JAVA_TOOL", "JDK_JAVA"))
    }
    return inherited | dict(environment)


def tail(log: Path) -> str:
    """The end of a log, for an error message."""
    try:
        return log.read_text(encoding="utf-8", errors="replace")[-_TAIL:]
    except OSError:
        return ""


def wait_until(
    ready: Callable[[], bool],
    what: str,
    timeout_s: float,
    *,
    process: subprocess.Popen[bytes] | None = None,
    log: Path | None = None,
) -> None:
    """Poll `ready`. Raises StartError when `process` ends first, or the time is up."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        end = f": {tail(log)}" if log else ""
        if process is not None and process.poll() is not None:
            raise StartError(f"{what}: process ended with {process.returncode}{end}")
        if time.monotonic() > deadline:
            raise StartError(f"{what}: not ready after {timeout_s:g} s{end}")
        time.sleep(POLL_S)


def accepts(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False

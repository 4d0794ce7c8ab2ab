"""Starts the nodes of a local cluster, each with a partition host that need not import anything.

The imports of a host take a second of CPU.  The fork server has done them once.  For each node it forks the leader of a new
session.  The leader forks the host, and becomes the node's agent by exec: agent and host are in one session, and the host is
the agent's child, as where the agent starts a spare host itself (`reprise.spark_jobs.node.spare`).  The host waits for its
folder on a pipe whose other end the agent inherits.

Requests and answers are JSON lines on the socket that is standard input.  A request has `command`, `environment` and `log`
of an agent.  The answer has its pid and its start in clock ticks since boot, or the reason why it did not start.  The fork
server ends when its owner closes the socket.

Only one thread of this process may run Python: a fork has no other one.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

WARM = "REPRISE_WARM_HOST"
"""Variable of the agent: pid of its host, and the descriptor that takes the host's folder and log."""


def serve() -> tuple[Path, int]:
    """Fork a node for each request.  Returns in each host: the folder in which it is to wait, and the pid of its agent."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nodes that end leave no zombie
    gc.collect()
    gc.freeze()  # hosts share what was imported: their collectors do not write to it
    for line in sys.stdin.buffer:
        answer = _fork_node(json.loads(line))
        if isinstance(answer, int):
            return _folder(answer)
        os.write(0, json.dumps(answer).encode() + b"\n")
    os._exit(0)


def _fork_node(request: dict[str, Any]) -> dict[str, Any] | int:
    """The answer, once the agent runs; in the host the descriptor that it waits at."""
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        return _lead(request, tells)
    os.close(tells)
    with os.fdopen(told, encoding="utf-8") as lines:  # ends with the exec
        started, _, reason = lines.read().partition("\n")
    return (
        {"error": reason or "it has ended"}
        if reason or not started
        else {"pid": pid, "started": int(started)}
    )


def _lead(request: dict[str, Any], tells: int) -> int:
    """Be the leader of a node's session until it is the agent.  Returns in the host."""
    try:
        os.setsid()
        stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        os.write(tells, f"{stat.rpartition(')')[2].split()[19]}\n".encode())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for number, opened in enumerate((null, log, log)):
            os.dup2(opened, number)
        for opened in (null, log):
            os.close(opened)
        waiting, goes = os.pipe()
        host = os.fork()
        if host == 0:
            os.close(goes)
            os.close(tells)
            return waiting
        os.set_inheritable(goes, True)
        environment = {**request["environment"], WARM: f"{host} {goes}"}
        os.execve(request["command"][0], request["command"], environment)
    except BaseException as error:
        os.write(tells, str(error).encode() or b"unknown")
        os._exit(127)


def _folder(waiting: int) -> tuple[Path, int]:
    """Wait for what the agent sends; ends with the agent."""
    with os.fdopen(waiting, encoding="utf-8") as told:
        sent = told.read()
    if not sent:
        os._exit(0)
    place = json.loads(sent)
    with contextlib.suppress(OSError):  # its output stays in the agent's log then
        log = os.open(place["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for number in (1, 2):
            os.dup2(log, number)
        os.close(log)
    return Path(place["folder"]), int(place["agent"])

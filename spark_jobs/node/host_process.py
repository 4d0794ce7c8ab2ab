"""The host as a process: the first Spark task on a node has it started, and it serves the tasks that follow, one at a time.

It listens on a socket file in the executor's own folder (`reprise.spark_jobs.node.meeting`), and it ends when its
executor does: it watches the process that it was started for.  With `--spare` the node's agent starts it, beside the JVM,
and it waits until a task takes it for its executor (`reprise.spark_jobs.node.spare`): its imports are done by then.

Where messages travel by an exchange, the partitions move between requests, too (`reprise.spark_jobs.node.pump`).

Who connects proves in a thread of its own that it has the key, so that a stranger who says nothing holds up nobody.
Stages wait for their turn; the question what the host is busy with does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import traceback
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from reprise.spark_jobs.node import spare
from reprise.spark_jobs.node.command import Command, Report
from reprise.spark_jobs.node.host import Bundles, Host
from reprise.spark_jobs.node.links import Links
from reprise.spark_jobs.node.meeting import admit, announce, listen
from reprise.spark_jobs.node.pump import Pump, Turn, start
from reprise.spark_jobs.node.shim import BUSY, HANDSHAKE


def _watch(parent: int, created: float, folder: Path, meeting: Path) -> None:
    """End with the executor, however it ends; `created` guards against a reused pid."""
    while True:
        try:
            if psutil.Process(parent).create_time() != created:
                break
        except psutil.NoSuchProcess:
            break
        threading.Event().wait(1.0)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        meeting.unlink()
    os._exit(0)


class Service:
    """A host and who moves it."""

    def __init__(self, host: Host, home: Path) -> None:
        self.host, self._home = host, home
        self._turn = Turn()
        self._pump: Pump | None = None

    def answer(self, head: dict[str, Any], blobs: list[bytes]) -> tuple[Bundles, Report | None]:
        """One stage of a job, in turn; the first begins with its orders."""
        order = (int(head["epoch"]), int(head["job"]))
        with self._turn.request():
            if head["stage"] == 0:
                self._begin(self.host.orders.read(blobs.pop(0)))
            if self._pump is not None:
                self._pump.checked()
            return self.host.stage(order, head["stage"], blobs, head["last"])

    def _begin(self, command: Command) -> None:
        self.host.begin(command)
        if self._pump is None and command.link:
            self._pump = start(self.host, partial(Links, self._home), self._turn)
        if self._pump is not None:
            self._pump.begun(command)


def _serve(connection: Connection, service: Service) -> None:
    """One Spark worker's conversation: a JSON head, then its blobs; the answer has the same form."""
    while True:
        head = json.loads(connection.recv_bytes())
        if head.get("ask") == BUSY:
            connection.send_bytes(json.dumps({"busy": service.host.busy.describe()}).encode())
            continue
        blobs = [connection.recv_bytes() for _ in range(head["blobs"])]
        try:
            bundles, report = service.answer(head, blobs)
        except Exception as error:
            traceback.print_exc()
            connection.send_bytes(
                json.dumps({"error": f"{type(error).__name__}: {error}", "slots": []}).encode()
            )
            continue
        answer = [report.encode()] if report is not None else [b for _, b in bundles]
        connection.send_bytes(json.dumps({"slots": [s for s, _ in bundles], "blobs": len(answer)}).encode())
        for blob in answer:
            connection.send_bytes(blob)


def _converse(connection: Connection, key: bytes, service: Service) -> None:
    with connection, contextlib.suppress(EOFError, OSError):  # the worker ended, or its task was cancelled
        if admit(connection, key):
            _serve(connection, service)


def serve(listener: socket.socket, key: bytes, service: Service) -> None:
    """Converse with everybody who connects, each in a thread, until the listener is closed."""
    while True:
        try:
            accepted, _ = listener.accept()
        except OSError:
            if listener.fileno() < 0:
                return
            threading.Event().wait(0.1)  # no file descriptor is left, for instance
            continue
        connection = Connection(accepted.detach())
        threading.Thread(target=_converse, args=(connection, key, service), daemon=True).start()


def main() -> None:
    """`python -m reprise.spark_jobs.node.host_process EXECUTOR_FOLDER EXECUTOR_PID`, or `--spare FOLDER AGENT_PID`."""
    if sys.argv[1] == "--spare":
        home, parent = spare.wait_for_claim(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        home, parent = Path(sys.argv[1]), int(sys.argv[2])
    created = psutil.Process(parent).create_time()
    name = f"host-{os.getpid()}-{secrets.token_hex(4)}"
    key = secrets.token_bytes(32)
    spill = Path(tempfile.mkdtemp(prefix="spill-", dir=home))
    watched = (parent, created, spill, home / name)
    with listen(home, name) as listener:
        threading.Thread(target=_watch, args=watched, daemon=True).start()
        announce(home, HANDSHAKE, name, key)
        serve(listener, key, Service(Host(name, spill), home))


if __name__ == "__main__":
    main()

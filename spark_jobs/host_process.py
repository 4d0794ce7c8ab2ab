"""The host as a process: started by the first Spark task on a node, it serves the tasks that follow, one at a time.

It listens on an abstract Unix socket (nothing to clean up), which only holders of the key in the executor's own folder can
use, and it ends when its executor does: it watches the process that it was started for.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import threading
import traceback
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path

import psutil

from spark_jobs.command import Command
from spark_jobs.host import Host
from spark_jobs.shim import HANDSHAKE


def _watch(parent: int, created: float, folder: Path) -> None:
    """End with the executor, however it ends; `created` guards against a reused pid."""
    while True:
        try:
            if psutil.Process(parent).create_time() != created:
                break
        except psutil.NoSuchProcess:
            break
        threading.Event().wait(1.0)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _serve(connection: Connection, host: Host, turn: threading.Lock) -> None:
    """One Spark worker's conversation: a JSON head, then its blobs; the answer has the same form."""
    while True:
        head = json.loads(connection.recv_bytes())
        blobs = [connection.recv_bytes() for _ in range(head["blobs"])]
        try:
            with turn:
                if head["stage"] == 0:
                    host.begin(Command.decode(blobs.pop(0)))
                bundles, report = host.stage(head["stage"], blobs, head["last"])
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


def _converse(connection: Connection, host: Host, turn: threading.Lock) -> None:
    with connection, contextlib.suppress(EOFError, OSError):  # the worker ended, or its task was cancelled
        _serve(connection, host, turn)


def main() -> None:
    """`python -m spark_jobs.host_process EXECUTOR_FOLDER EXECUTOR_PID`."""
    home, parent = Path(sys.argv[1]), int(sys.argv[2])
    created = psutil.Process(parent).create_time()
    name = f"host-{os.getpid()}-{secrets.token_hex(4)}"
    key = secrets.token_bytes(32)
    spill = Path(tempfile.mkdtemp(prefix="spill-", dir=home))
    threading.Thread(target=_watch, args=(parent, created, spill), daemon=True).start()
    with Listener(f"\0reprise-{name}", "AF_UNIX", authkey=key) as listener:
        part = home / f".{HANDSHAKE}.{os.getpid()}"
        part.touch(mode=0o600)
        part.write_text(json.dumps({"name": name, "key": key.hex(), "pid": os.getpid()}))
        part.replace(home / HANDSHAKE)
        host, turn = Host(name, spill), threading.Lock()
        while True:
            try:
                connection = listener.accept()
            except (AuthenticationError, EOFError, OSError):
                continue
            threading.Thread(target=_converse, args=(connection, host, turn), daemon=True).start()


if __name__ == "__main__":
    main()

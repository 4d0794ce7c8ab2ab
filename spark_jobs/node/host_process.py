"""The host as a process: the first Spark task on a node has it started, and it serves the tasks that follow, one at a time.

It listens on a socket file in the executor's own folder (`reprise.spark_jobs.node.meeting`), and it ends when its
executor does: it watches the process that it was started for.  With `--spare` the node's agent starts it, beside the JVM,
and it waits until a task takes it for its executor (`reprise.spark_jobs.node.spare`): its imports are done by then.  Such a
host outlives its executor where the topology says for how long (`reprise.spark_jobs.node.outliving`).

Where messages travel by an exchange, the partitions move between requests, too (`reprise.spark_jobs.node.pump`).

Who connects proves in a thread of its own that it has the key, so that a stranger who says nothing holds up nobody.
Stages wait for their turn; the question what the host is busy with does not.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil

from reprise.spark_jobs.node import fork_server, spare
from reprise.spark_jobs.node.command import Command, Report
from reprise.spark_jobs.node.host import Bundles, Host
from reprise.spark_jobs.node.links import Links
from reprise.spark_jobs.node.meeting import admit, announce, listen
from reprise.spark_jobs.node.outliving import LOOK_S, Code, Place, digest, wait_for_next
from reprise.spark_jobs.node.pump import Heard, Turn, start
from reprise.spark_jobs.node.rounds import Kind, decode_question, encode_answer
from reprise.spark_jobs.node.shim import BUSY, HANDSHAKE

COLLECTED = 50_000
"""New objects after which Python looks for cycles.  A batch has an object for each message, and they are in none."""


def _lives(parent: int, created: float) -> bool:
    """Whether the executor does; `created` guards against a reused pid."""
    try:
        return psutil.Process(parent).create_time() == created
    except psutil.NoSuchProcess:
        return False


class Service:
    """A host and who moves it."""

    def __init__(self, host: Host, home: Path, code: Code) -> None:
        self.host, self._home = host, home
        self._turn = Turn()
        self._ordered = SimpleQueue[tuple[int, int, bytes]]()
        """Exchange, round and orders that came with it."""
        self.code = code
        self.stream = ""
        """Whose partitions it has, as `outliving.digest` says it."""
        self._sites: tuple[str, str, str, float] | None = None
        self._pump = start(host, self._connect, self._turn)
        threading.Thread(target=self._follow, name="orders", daemon=True).start()

    @property
    def grace_s(self) -> float:
        """Seconds for which it outlives its executor."""
        return self.host.grace_s

    def answer(self, head: dict[str, Any], blobs: list[bytes]) -> tuple[Bundles, Report | None]:
        """One stage of a job, in turn; the first begins with its orders."""
        order = (int(head["epoch"]), int(head["job"]))
        with self._turn.request():
            if head["stage"] == 0:
                self._begin(self.host.orders.read(blobs.pop(0)))
            self._pump.checked()
            return self.host.stage(order, head["stage"], blobs, head["last"])

    def _begin(self, command: Command) -> None:
        self.host.begin(command)
        if self.grace_s > 0:
            self._note(command)
        self._pump.begun(command)

    def _connect(self, heard: Heard) -> Links:
        self._links = Links(self._home, heard, self._asked)
        return self._links

    def _asked(self, exchange: int, question: bytes) -> None:
        """The driver asks, on the thread of an inlet: what holds this host up, or for a round, which has its turn."""
        number, order = decode_question(question)
        if order:
            self._ordered.put((exchange, number, order))
        else:
            self._say(exchange, number, Kind.BUSY, (self.host.busy.describe() or "").encode())

    def _say(self, exchange: int, number: int, kind: Kind, body: bytes) -> None:
        self._links.answer(exchange, encode_answer(number, kind, body))

    def _follow(self) -> None:
        """Carry out the rounds that come by an exchange, one after the other."""
        while True:
            exchange, number, order = self._ordered.get()
            try:
                kind, body = Kind.REPORT, self._round(order).encode()
            except BaseException as error:  # also of user code that would end its process
                traceback.print_exc()
                kind, body = Kind.ERROR, f"{type(error).__name__}: {error}".encode(errors="replace")
            self._say(exchange, number, kind, body)

    def _round(self, order: bytes) -> Report:
        with self._turn.request():
            command = self.host.orders.read(order)
            self._begin(command)
            self._pump.checked()
            _, report = self.host.stage(command.order, 0, [], True)
            assert report is not None
            return report

    def wait_for_next(self, place: Place) -> tuple[Path, int] | None:
        """Wait for a task of another executor, while nothing here moves; see `outliving.wait_for_next`."""
        self._pump.part()
        self.code.look()
        taken = wait_for_next(place, self.grace_s, self.stream, self.code)
        if taken is not None:
            self._home = taken[0]
            self._pump.meet(self._connect)
        return taken

    def _note(self, command: Command) -> None:
        """What must be the same for whoever takes this host with what it has."""
        self.code.look()
        if (sites := (command.topology, command.sink, command.checkpoints, command.stream)) != self._sites:
            self._sites, self.stream = sites, digest(*sites)


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
    """`python -m reprise.spark_jobs.node.host_process EXECUTOR_FOLDER EXECUTOR_PID`, or `--spare FOLDER AGENT_PID`, or
    `--fork-server`, which forks agents with spare hosts."""
    gc.set_threshold(COLLECTED)
    place: Place | None = None
    code = Code()
    if sys.argv[1] == "--spare":
        place = Place.here(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "--fork-server":
        code.look()  # what the fork server has imported, its hosts have
        place = Place.here(*fork_server.serve())
    if place is not None:
        home, parent = spare.wait_for_claim(place.folder, place.agent)
    else:
        home, parent = Path(sys.argv[1]), int(sys.argv[2])
    name = f"host-{os.getpid()}-{secrets.token_hex(4)}"
    spill = Path(tempfile.mkdtemp(prefix="spill-", dir=home))
    service = Service(Host(name, spill), home, code)
    try:
        _serve_executors(service, name, home, parent, place)
    finally:
        shutil.rmtree(spill, ignore_errors=True)
    if place is not None and service.grace_s > 0 and os.getppid() == place.agent:
        place.begins_anew()
    os._exit(0)


def _serve_executors(service: Service, name: str, home: Path, parent: int, place: Place | None) -> None:
    """Serve one executor after the other, for as long as it outlives them and is taken."""
    while True:
        if not _serve_executor(service, name, home, parent, place):
            print(
                "nobody can reach this host any more: a task starts another one", file=sys.stderr, flush=True
            )
            return
        if place is None or service.grace_s <= 0:
            return
        taken = service.wait_for_next(place)
        if taken is None:
            return
        home, parent = taken


def _serve_executor(service: Service, name: str, home: Path, parent: int, place: Place | None) -> bool:
    """Serve the tasks of one executor until it ends, however it ends.  False: nobody can be served any more."""
    reached = True
    with contextlib.suppress(psutil.NoSuchProcess):
        created = psutil.Process(parent).create_time()
        key, marked = secrets.token_bytes(32), False
        with listen(home, name) as listener:
            server = threading.Thread(target=serve, args=(listener, key, service), daemon=True)
            server.start()
            announce(home, HANDSHAKE, name, key)
            while (reached := server.is_alive()) and _lives(parent, created):
                stays = place is not None and service.grace_s > 0
                if place is not None and stays:
                    marked = marked or place.stays()
                time.sleep(LOOK_S if stays else 1.0)
            listener.shutdown(socket.SHUT_RDWR)  # else whoever waits in it goes on waiting
    with contextlib.suppress(OSError):
        (home / name).unlink()
    return reached


if __name__ == "__main__":
    main()

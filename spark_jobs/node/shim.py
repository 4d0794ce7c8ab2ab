"""What runs in Spark's Python worker: a thin task that takes a stage's messages to the node's
partition host and back.

Kept light on purpose (no Arrow, no operators): Spark may start and destroy its workers as it likes.  A task that Spark
put on another node than its slot's, because the slot's node is gone, raises at once instead of inventing an empty partition.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from reprise.spark_jobs.errors import DataPlaneError, HostBusyError, HostLostError, SlotMisplacedError
from reprise.spark_jobs.node import spare
from reprise.spark_jobs.node.meeting import announced
from reprise.spark_jobs.node.spare import LOG, ONE_THREAD
from reprise.spark_jobs.version import VERSION, require_same

HANDSHAKE = "partition-host.json"
"""File in the executor's folder: name, key and pid of its partition host."""

START_TIMEOUT_S = 60.0

BUSY = "busy"
"""The question that a host answers without waiting for its turn: what it is doing."""

ANSWER_S = 45.0
"""How long a task waits for its host's answer to a stage.  Below the driver's patience with a whole job
(`Engine.patience_s`, 60 s), which cancels tasks without asking them anything: so it is the task that ends first, and says
what its host is in."""

QUESTION_S = 5.0
"""How long it then waits for the answer to what the host is busy with, which waits for no turn."""

_connection: Connection | None = None


def node_host() -> str:
    """The address by which Spark knows this node."""
    for variable in ("SPARK_EXECUTOR_POD_IP", "SPARK_LOCAL_IP"):
        if value := os.environ.get(variable):
            return value
    raise DataPlaneError("neither SPARK_EXECUTOR_POD_IP nor SPARK_LOCAL_IP is set in this executor")


def _connect(home: Path) -> Connection | None:
    """Connect to the host that is there; None when there is none.  A host that does not answer is there: HostLostError."""
    try:
        return announced(home, HANDSHAKE)
    except TimeoutError as error:
        raise HostLostError(f"the partition host of this node does not answer: {error}") from error


def _executor_pid() -> int:
    """The JVM: parent of the Python daemon that is this worker's parent."""
    status = Path(f"/proc/{os.getppid()}/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))


def _start(home: Path, executor: int) -> None:
    with (home / LOG).open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", spare.MODULE, str(home), str(executor)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **ONE_THREAD},
        )


def _host() -> Connection:
    global _connection  # noqa: PLW0603 - one worker, one task at a time, one connection
    if _connection is not None and not _connection.closed:
        return _connection
    home = Path.cwd()
    _connection = _connect(home)
    if _connection is None:
        executor = _executor_pid()
        if not spare.claim(home, executor):
            _start(home, executor)
        deadline = time.monotonic() + START_TIMEOUT_S
        while (_connection := _connect(home)) is None:
            if time.monotonic() > deadline:
                raise HostLostError(f"the partition host did not start within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.05)
    return _connection


def _leave() -> None:
    """Close the connection to the host, so that the next request opens another one."""
    global _connection  # noqa: PLW0603
    if _connection is not None:
        _connection.close()
    _connection = None


def exchange(
    order: tuple[int, int], stage: int, blobs: list[bytes], last: bool
) -> tuple[list[int], list[bytes]]:
    """One request to the host: (target slots, bundles), or ([], [report]) for the last stage.

    `order`: epoch and job that the request belongs to.  HostBusyError: no answer within `ANSWER_S`.
    """
    head = {"epoch": order[0], "job": order[1], "stage": stage, "last": last, "blobs": len(blobs)}
    try:
        connection = _host()
        connection.send_bytes(json.dumps(head).encode())
        for blob in blobs:
            connection.send_bytes(blob)
        if not connection.poll(ANSWER_S):
            raise HostBusyError(_what_holds_it(Path.cwd()))
        answer = json.loads(connection.recv_bytes())
        if "error" in answer:
            raise DataPlaneError(answer["error"])
        return answer["slots"], [connection.recv_bytes() for _ in range(answer["blobs"])]
    except (EOFError, OSError, HostBusyError) as error:
        _leave()  # an answer that comes later must not be taken for another request's
        if isinstance(error, HostBusyError):
            raise
        raise HostLostError(f"the partition host of this node went away: {error}") from error


def _what_holds_it(home: Path) -> str:
    """Say in words what holds it, as the host itself tells over a second connection."""
    here = f"the partition host at {node_host()} has not answered for {ANSWER_S:.0f} s"
    try:
        connection = _connect(home)
        if connection is None:
            return f"{here}, and is gone"
        with connection:
            connection.send_bytes(json.dumps({"ask": BUSY}).encode())
            if not connection.poll(QUESTION_S):
                return f"{here}, nor to the question why"
            busy = json.loads(connection.recv_bytes())["busy"]
    except (OSError, EOFError, ValueError, DataPlaneError) as error:
        return f"{here}, nor to the question why: {error}"
    return f"{here}: it has been {busy}" if busy else f"{here}: it is between two pieces of work"


class Stage:
    """The function of one stage: rows are (slot, ("at", host)) of the slot itself, and (slot, bundle).  In the stage with
    which a chain begins the one row is that of the slot itself, with its orders: ((slot, ("at", host)), orders).

    `order`: epoch and job of the chain.
    """

    def __init__(self, order: tuple[int, int], number: int, last: bool) -> None:
        self.order = order
        self.number = number
        self.last = last
        self.version = VERSION

    def __call__(self, slot: int, rows: Iterable[tuple[Any, Any]]) -> Iterator[tuple[int, bytes]]:
        blobs: list[bytes] = []
        for key, value in rows:
            if not isinstance(value, bytes):
                _require(slot, value[1])
                continue
            if isinstance(key, tuple):
                _require(slot, key[1][1])
            blobs.append(value)
        try:
            _require_version(self)
            slots, answers = exchange(self.order, self.number, blobs, self.last)
        except DataPlaneError as error:
            raise type(error)(f"slot {slot}: {error}") from error
        if self.last:
            return iter([(slot, answers[0])])
        return iter(zip(slots, answers, strict=True))


def slot_of(text: str) -> tuple[str, int | None]:
    """What a task raised, out of the line that Spark made of it: without the exception's path, and the slot."""
    match = re.search(r"\bslot (\d+): ", text)
    return (text[match.end() :], int(match[1])) if match else (text, None)


class Anchor:
    """The anchor's function: a slot's own row, which keeps later stages of the slot on its node."""

    def __call__(self, slot: int, rows: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        for key, value in rows:
            _require(slot, value[1])
            yield key, value


class Warm:
    """Starts the node's partition host, if it is not there, and nothing else; gives when it began and when it reached the
    host, unix seconds.  VersionError: it is not of the driver's."""

    def __init__(self) -> None:
        self.version = VERSION

    def __call__(self, slot: int, rows: Iterable[tuple[int, Any]]) -> Iterator[tuple[float, float]]:
        _require_version(self)
        for _, value in rows:
            _require(slot, value[1])
            began = time.time()
            _leave()
            _host()
            yield began, time.time()


def _require_version(sent: Stage | Warm) -> None:
    """Here the class is the executor's, and its attributes are the driver's."""
    if (theirs := getattr(sent, "version", None)) != VERSION:
        require_same(theirs, "the driver", f"the executor at {node_host()}")


def _require(slot: int, host: str) -> None:
    here = node_host()
    if here != host:
        raise SlotMisplacedError(f"slot {slot} belongs to {host}, but Spark ran its task on {here}")

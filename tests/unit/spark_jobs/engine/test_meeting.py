"""Tasks and the partition host: who may connect, who cannot hold anybody up, and who says what a host is stuck in."""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Inbox, Operator
from reprise.spark_jobs.engine.chain import _first_line
from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.errors import DataPlaneError, HostBusyError, HostLostError, SlotMisplacedError
from reprise.spark_jobs.node import meeting, shim
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.host_process import Service, serve
from reprise.spark_jobs.node.meeting import listen, meet
from reprise.spark_jobs.node.outliving import Code
from reprise.spark_jobs.topology import load_text
from tools.testbed.local_engine import World, tick

STUCK = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: stuck}
spec:
  batch: {interval: 100ms}
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource",
        with: {rate: 100, interval: 100ms, batches: 20, tags: 9}}
  operators:
    - {name: slow, class: "tests.unit.spark_jobs.engine.test_meeting:Stuck", inputs: [{from: tweets}], output: {}}
  checkpoint: {everyBatches: 5}
  nodes: {count: 1}
"""


class Stuck(Operator):
    """Does not return from batch 7 before it is let go."""

    entered, free = threading.Event(), threading.Event()

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        if inbox.batch == 7:
            self.entered.set()
            assert self.free.wait(300)
        return state, inbox.table()


class Node:
    """A host that is served below a folder whose path is longer than a socket's may be."""

    def __init__(self, home: Path) -> None:
        self.home = home / ("x" * 100) / "executor"
        self.home.mkdir(parents=True)
        self.key, self.name = secrets.token_bytes(32), "host-1"
        self.host = Host(self.name, self.home / "spill")
        self.listener = listen(self.home, self.name)
        record = {"name": self.name, "key": self.key.hex(), "pid": os.getpid()}
        (self.home / shim.HANDSHAKE).write_text(json.dumps(record))
        self.thread = threading.Thread(
            target=serve, args=(self.listener, self.key, Service(self.host, self.home, Code())), daemon=True
        )
        self.thread.start()

    def stranger(self, name: str = "host-1") -> socket.socket:
        """Somebody of the same user, without the key, who is connected."""
        here, folder = socket.socket(socket.AF_UNIX), os.open(self.home, os.O_PATH)
        here.connect(f"/proc/self/fd/{folder}/{name}")
        os.close(folder)
        return here

    def end(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(300)
        assert not self.thread.is_alive()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(tmp_path)
    monkeypatch.chdir(node.home)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.1.13")
    monkeypatch.setattr(shim, "_connection", None)
    yield node
    if shim._connection is not None:
        shim._connection.close()
    node.end()


def test_only_this_user_may_connect_and_no_abstract_name_is_taken(node: Node) -> None:
    mode = (node.home / node.name).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    assert f"@{node.name}" not in Path("/proc/net/unix").read_text()
    assert len(str(node.home / node.name)) > 107


def test_a_stranger_who_says_nothing_holds_up_nobody(node: Node) -> None:
    strangers = [node.stranger() for _ in range(meeting.BACKLOG + 1)]
    connections = [shim._connect(node.home) for _ in range(3)]
    for connection in connections:
        assert connection is not None
        connection.send_bytes(json.dumps({"ask": shim.BUSY}).encode())
        assert json.loads(connection.recv_bytes()) == {"busy": None}
        connection.close()
    for stranger in strangers:
        stranger.close()


def test_a_stranger_is_let_go_after_a_while(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "PROOF_S", 0.05)
    stranger = node.stranger()
    stranger.settimeout(30)
    while stranger.recv(4096):  # the host's challenge, then the end
        pass
    stranger.close()


def test_a_wrong_key_is_served_nothing(node: Node) -> None:
    with pytest.raises((AuthenticationError, EOFError, OSError)):
        meet(node.home, node.name, b"x" * 32)
    assert shim._connect(node.home) is not None


def test_a_host_that_is_there_and_does_not_answer_is_not_taken_for_gone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a second host would be started beside it, and the state of all partitions be lost."""
    monkeypatch.setattr(meeting, "PROOF_S", 0.05)
    frozen = listen(node.home, "frozen")
    (node.home / shim.HANDSHAKE).write_text(json.dumps({"name": "frozen", "key": node.key.hex()}))
    with pytest.raises(HostLostError, match="does not answer"):
        shim._connect(node.home)
    waiting = [node.stranger("frozen") for _ in range(meeting.BACKLOG)]  # its queue is full now
    with pytest.raises(HostLostError, match="does not answer"):
        shim._connect(node.home)
    for stranger in waiting:
        stranger.close()
    frozen.close()
    assert shim._connect(node.home) is None  # a file that nobody listens at
    (node.home / shim.HANDSHAKE).unlink()
    assert shim._connect(node.home) is None


def test_a_step_that_never_returns_is_named_though_the_host_is_held(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stuck.entered.clear()
    Stuck.free.clear()
    world = World(load_text(STUCK), tmp_path, "w")
    world.nodes.hosts["a"] = node.host
    world.want(1, 0, world.spread("a"))
    world.engine.release.ahead = 3
    tick(world)  # starts the stream's clock
    world.engine.release.ahead = 20
    world.engine._open_batches()
    world.engine.jobs += 1
    (command,) = commands = world.engine._commands(["a"])
    (order,) = Dispatch(world.topology).orders(["a"], commands)

    def work() -> None:
        for stage in range(1000):  # each has a limited time
            shim.exchange(command.order, stage, [order] if stage == 0 else [], False)
            if Stuck.entered.is_set():
                return

    working = threading.Thread(target=work, daemon=True)
    working.start()
    try:
        assert Stuck.entered.wait(300)
        monkeypatch.setattr(shim, "_connection", None)  # the next task's own
        monkeypatch.setattr(shim, "ANSWER_S", 0.1)
        with pytest.raises(HostBusyError) as error:
            shim.exchange(command.order, 1000, [], False)
        said = str(error.value)
        assert said.startswith("the partition host at 127.0.1.13 has not answered")
        assert "it has been in operator slow, partition slow.0, batch 7 for" in said
        assert shim._connection is None  # the late answer is nobody else's
        text = f"Traceback\n  reprise.spark_jobs.errors.HostBusyError: {error.value}\nat org.apache"
        assert "batch 7" in _first_line(RuntimeError(text))
    finally:
        Stuck.free.set()
        working.join(300)


def test_a_late_request_reaches_the_task_as_an_error(node: Node) -> None:
    with pytest.raises(DataPlaneError, match="no job has begun on this host"):
        shim.exchange((1, 1), 1, [], False)


@pytest.mark.parametrize(
    "row",
    [((0, ("at", "127.0.1.99")), b"orders"), (0, ("at", "127.0.1.99"))],
    ids=["with orders", "in a later stage"],
)
def test_a_task_on_another_node_than_its_slot_s_hands_nothing_to_the_host_there(
    monkeypatch: pytest.MonkeyPatch, row: tuple[Any, Any]
) -> None:
    """Spark may run it anywhere once the slot's node is gone."""
    handed: list[object] = []
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.1.13")
    monkeypatch.delenv("SPARK_EXECUTOR_POD_IP", raising=False)
    monkeypatch.setattr(shim, "exchange", lambda *given: handed.append(given))
    stage = shim.Stage((1, 1), 0, False)
    with pytest.raises(SlotMisplacedError, match=r"slot 0 belongs to 127\.0\.1\.99"):
        stage(0, [row])
    assert not handed

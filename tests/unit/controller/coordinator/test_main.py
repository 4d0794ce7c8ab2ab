"""The coordinator's process: what its command line says reaches the store and the policy, and it ends when it is told to."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reprise.algorithms import compiled
from reprise.controller.coordinator import __main__ as program
from reprise.controller.coordinator.history import Kept
from reprise.controller.coordinator.store import Store
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import client as clients
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.node_record import SESSION_S, absence_counts_after_s
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler.model import Policy
from reprise.spark_jobs.topology import load_text, override
from tests.support.scripted import TEXT
from tests.support.stores import ready

ROOT = "/reprise/tests/scripted"
NEEDED = ["--zk", "zk1:2181", "--root", ROOT, "--topology", "topology.json"]


def test_what_is_not_said_has_the_default_of_the_policy() -> None:
    options = program._parser().parse_args(NEEDED)
    assert vars(options) == {
        "zk": "zk1:2181",
        "root": ROOT,
        "topology": Path("topology.json"),
        "python_path": "",
        "settle": Policy().settle_s,
        "driver_grace": Policy().driver_grace_s,
        "session_timeout": SESSION_S,
        "keep_records": 100,
        "keep_records_mi": 4,
        "log_format": None,
    }


@pytest.mark.parametrize("left_out", [0, 2, 4])
def test_what_must_be_said(left_out: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program._parser().parse_args(NEEDED[:left_out] + NEEDED[left_out + 2 :])
    assert f"required: {NEEDED[left_out]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--settle", "-1"),
        ("--settle", "inf"),
        ("--driver-grace", "-0.1"),
        ("--driver-grace", "nan"),
        ("--session-timeout", "soon"),
        ("--keep-records", "1.5"),
        ("--keep-records-mi", "x"),
        ("--log-format", "xml"),
    ],
)
def test_a_number_that_is_none_is_refused(wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program._parser().parse_args([*NEEDED, *wrong])
    said = capsys.readouterr().err
    assert f"argument {wrong[0]}: invalid" in said
    assert said.startswith("usage: python -m reprise.controller.coordinator ")


def test_no_time_is_a_time_that_can_be_waited() -> None:
    assert program.seconds("0") == 0.0
    assert program.seconds("2.5") == 2.5


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(action.help for action in program._parser()._actions)
    with pytest.raises(SystemExit):
        program._parser().parse_args(["--help"])
    assert "the coordinator of one topology" in capsys.readouterr().out


def test_the_store_and_the_policy_are_those_of_the_command_line_and_the_topology() -> None:
    resource = override(
        load_text(TEXT.replace("nodes: {count: 1}", "nodes: {count: 3}")), {"checkpoint.keep": 7}
    )
    client = ZooKeeperSession(MemoryServer().session())  # type: ignore[arg-type]
    options = program._parser().parse_args(
        [*NEEDED, "--settle", "2.5", "--driver-grace", "9", "--session-timeout", "30", "--keep-records", "12",
         "--keep-records-mi", "3"]
    )  # fmt: skip
    made = program._coordinator(options, resource, client)
    store = made.store
    assert (store.client, store.root, store.keep, store.paused) == (client, ROOT, 7, False)
    assert store.topology.name == "scripted"
    assert store.grace_s == absence_counts_after_s(30.0)
    assert store.clock is program.time.time
    assert (made.policy.settle_s, made.policy.driver_grace_s, made.policy.nodes_wanted) == (2.5, 9.0, 3)
    assert made.kept == Kept(12, 3 * 2**20)
    paused = load_text(TEXT.replace("  batch:", "  paused: true\n  batch:"))
    assert program._coordinator(options, paused, client).store.paused


@dataclass
class Process:
    """`main` with a ZooKeeper in memory, in a thread, as signals cannot be sent to a test."""

    monkeypatch: pytest.MonkeyPatch
    topology: Path
    server: MemoryServer = field(default_factory=MemoryServer)
    made: list[tuple[str, float]] = field(default_factory=list)
    handlers: dict[int, Callable[..., None]] = field(default_factory=dict)
    loaded: list[bool] = field(default_factory=list)
    code: int | None = None

    def __post_init__(self) -> None:
        patch = self.monkeypatch
        self.session = self.server.session()
        root = logging.getLogger()
        patch.setattr(root, "handlers", list(root.handlers))
        patch.setattr(root, "level", root.level)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(clients, "make_client", self._client)
        patch.setattr(signal, "signal", self.handlers.__setitem__)
        patch.setattr(compiled, "load_in_background", lambda: self.loaded.append(True))

    def _client(self, hosts: str, timeout: float, environment: Mapping[str, str]) -> ZooKeeperSession:
        self.made.append((hosts, timeout))
        return ZooKeeperSession(self.session)  # type: ignore[arg-type]

    def run(self, *more: str) -> None:
        self.monkeypatch.setattr(
            sys, "argv", ["coordinator", *NEEDED[:4], "--topology", str(self.topology), *more]
        )
        self.code = program.main()

    def others(self) -> Store:
        """What driver and agents would write with."""
        client = ZooKeeperSession(self.server.session())  # type: ignore[arg-type]
        resource = load_text(TEXT)
        return Store(client, ROOT, program.view_of(resource), lambda: 0.0)

    def has(self, name: str) -> bool:
        return f"{ROOT}/{name}" in self.server.records


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    topology = tmp_path / "topology.json"
    topology.write_text(load_text(TEXT).document, encoding="utf-8")
    before = logging.getLogger("kazoo").level
    yield Process(monkeypatch, topology)
    logging.getLogger("kazoo").setLevel(before)


def until(running: threading.Thread, reached: Callable[[], bool]) -> None:
    """Wait for what the process will do, unless it has ended."""
    pause = threading.Event()
    for _ in range(3000):
        if reached():
            return
        assert running.is_alive()
        pause.wait(0.01)
    raise AssertionError("not reached")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_places_a_topology_and_ends_with_a_signal(process: Process, number: int, tmp_path: Path) -> None:
    running = threading.Thread(
        target=process.run, args=("--session-timeout", "9", "--python-path", f"{tmp_path}:"), daemon=True
    )
    running.start()
    others = process.others()
    until(running, lambda: number in process.handlers and process.has(paths.COORDINATOR))
    ready(others, "n1")
    until(running, lambda: process.has(paths.DESIRED))
    process.handlers[number]()
    running.join(300)
    assert process.code == 0
    assert process.made == [("zk1:2181", 9.0)]
    assert process.loaded == [True]
    assert str(tmp_path) in sys.path
    assert "" not in sys.path[-1:]
    assert not process.session.connected, "the session has ended"
    assert logging.getLogger("kazoo").level == logging.WARNING


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_topology_that_cannot_be_read_is_said_and_nothing_is_begun(
    process: Process, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    process.topology.unlink() if text is None else process.topology.write_text(text)
    process.run("--log-format", "json")
    assert process.code == 2
    assert process.made == []
    said = capsys.readouterr().err
    assert '"event": "topology-unreadable"' in said
    assert str(process.topology) in said

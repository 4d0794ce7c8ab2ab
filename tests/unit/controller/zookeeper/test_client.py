"""The client on a real ZooKeeper that freezes, dies, comes back, forgets the session, or speaks TLS."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionClosedError

from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import ZOOKEEPER, Jvm
from reprise.controller.local.cluster import addresses, launch
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper import client as zk_client
from reprise.controller.zookeeper.access import TLS, client_options
from reprise.controller.zookeeper.client import kazoo_client
from tests.kafka.certificates import Authority
from tests.support.zookeeper import server_fixture
from tools.testbed.waiting import until

pytestmark = pytest.mark.slow
LARGE = 900_000
"""Bytes: nearly what a server takes, and more than a socket does."""
SECURE = """\
dataDir={folder}/data
secureClientPort={port}
secureClientPortAddress={host}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
admin.enableServer=false
ssl.keyStore.location={folder}/server-store.pem
ssl.trustStore.location={folder}/ca.pem
"""


server = pytest.fixture(scope="module")(server_fixture)


@contextmanager
def started(hosts: str, timeout_s: float = 30.0) -> Iterator[KazooClient]:
    client = kazoo_client(hosts, timeout_s)
    client.start(timeout=300)
    yield client
    client.stop()
    client.close()


class Askers:
    """Threads that ask ten things at a time, of which one is a write, for ever; failed requests are asked anew."""

    def __init__(self, client: KazooClient, count: int = 4) -> None:
        self._client, self._end = client, threading.Event()
        self.rounds, self.failures = [0] * count, 0
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(k,), daemon=True) for k in range(count)]
        for k in range(count):
            client.ensure_path(f"/asked/{k}")
            client.set(f"/asked/{k}", b"0")
        for thread in self._threads:
            thread.start()

    def _ask(self, k: int) -> None:
        path, kept, tried = f"/asked/{k}", 0, 0
        while not self._end.is_set():
            tried += 1
            written = self._client.set_async(path, str(tried).encode())
            reads = [self._client.get_async(path) for _ in range(9)]
            if not all(answer.wait(60) for answer in (written, *reads)):
                self.wrong.append(f"{path}: no answer to {tried}")
                return
            if not all(answer.successful() for answer in (written, *reads)):
                self.failures += 1
                self._end.wait(0.01)  # one who is told of a lost connection does not ask in a circle
                continue
            kept = tried
            self.rounds[k] += 1
            if any(int(answer.get()[0]) != kept for answer in reads):
                self.wrong.append(f"{path}: {[answer.get()[0] for answer in reads]} after {kept}")

    def go_on(self) -> None:
        """All have got answers from now on."""
        before = list(self.rounds)
        until(
            lambda: all(now >= b + 20 for now, b in zip(self.rounds, before, strict=True)),
            report=self._report,
        )
        assert not self.wrong

    def _report(self) -> object:
        return self.rounds, self.failures, self.wrong, self._client.client_state

    def end(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(300)
        assert not self.wrong and not any(thread.is_alive() for thread in self._threads)


def test_requests_in_flight_survive_a_frozen_a_killed_and_a_restarted_server(server: ZooKeeperServer) -> None:
    with started(server.hosts, 2.0) as client:
        askers = Askers(client)
        askers.go_on()
        server.freeze()
        until(lambda: client.state == KazooState.SUSPENDED)
        server.thaw()
        askers.go_on()
        server.kill()
        until(lambda: client.state == KazooState.SUSPENDED)
        server.start()
        askers.go_on()
        server.restart()
        askers.go_on()
        askers.end()
        assert askers.failures > 0


def test_a_session_that_expires_is_followed_by_a_new_one(server: ZooKeeperServer) -> None:
    with started(server.hosts) as client:
        askers = Askers(client)
        states: list[str] = []
        client.add_listener(states.append)
        session = client.client_id
        thief = KazooClient(server.hosts, client_id=session)
        thief.start(timeout=300)
        thief.stop()
        until(lambda: KazooState.LOST in states and client.connected)
        assert client.client_id != session
        askers.go_on()
        askers.end()


def test_the_end_of_a_client_reaches_the_server_and_it_can_start_anew(server: ZooKeeperServer) -> None:
    with started(server.hosts) as other, started(server.hosts, 60.0) as client:
        for _ in range(3):
            client.create("/passing", ephemeral=True)
            client.stop()
            assert other.exists("/passing") is None, "its session was closed, not left to expire"
            with pytest.raises(ConnectionClosedError):
                client.get("/")
            client.start(timeout=300)
        client.create("/passing", ephemeral=True)
        client.restart()
        assert client.exists("/passing") is None


def test_watches_and_what_is_larger_than_a_socket_takes(server: ZooKeeperServer) -> None:
    with started(server.hosts) as client:
        changed = threading.Event()
        client.create("/large", b"")
        client.get("/large", watch=lambda event: changed.set())
        answers = [client.set_async("/large", bytes([k]) * LARGE) for k in range(5)]
        reads = [client.get_async("/large") for _ in range(5)]
        assert [answer.get(timeout=300).version for answer in answers] == [1, 2, 3, 4, 5]
        assert {answer.get(timeout=300)[0] for answer in reads} == {bytes([4]) * LARGE}
        assert changed.wait(300)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[str]:
    """Address of a server that speaks TLS with those whom its authority has signed; credentials in `tmp_path`."""
    prefix, claimed = ProcessReaper.with_prefix()
    host = f"{prefix}.{addresses.HEAD}"
    authority = Authority(tmp_path)
    for name in ("server", "tls"):
        certificate, key = authority.issue(name, host)
        (tmp_path / f"{name}-store.pem").write_text(key.read_text() + certificate.read_text())
        (tmp_path / f"{name}.crt").write_text(certificate.read_text())
    (tmp_path / "ca.crt").write_text((tmp_path / "ca.pem").read_text())
    port = addresses.free_port(host)
    config = tmp_path / "zoo.cfg"
    config.write_text(SECURE.format(folder=tmp_path, host=host, port=port))
    with closing(claimed) as reaper:
        jvm = Jvm(find_java(reaper.scratch / "java"), reaper.scratch / "log4j2.properties")
        jvm.write_log_config()
        environment = jvm.environment(host) | reaper.environment()
        log = tmp_path / "log"
        process, _ = launch.spawn(jvm.command(ZOOKEEPER, str(config), heap_mb=128), environment, log)
        launch.wait_until(lambda: launch.accepts(host, port), "ZooKeeper", 300, process=process, log=log)
        yield f"{host}:{port}"


def test_a_client_speaks_tls(secure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zk_client, "client_options", lambda _: client_options({TLS: str(tmp_path)}))
    with started(secure) as client:
        client.create("/large", bytes(LARGE))
        reads = [client.get_async("/large") for _ in range(5)]
        assert {answer.get(timeout=300)[0] for answer in reads} == {bytes(LARGE)}
        askers = Askers(client)
        askers.go_on()
        askers.end()

"""A real ZooKeeper for tests that need no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import Jvm
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper.access import Access
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.session import ZooKeeperSession


@contextmanager
def zookeeper(users: bool = False, tls: Path | None = None) -> Iterator[ZooKeeperServer]:
    """A server of its own; it, its data, and whatever a test did to it, are gone afterwards.  With `users`, or with a folder
    of its certificates, it is closed to all but those of its `access`."""
    reaper = ProcessReaper()
    try:
        jvm = Jvm(find_java(reaper.scratch / "java"), reaper.scratch / "log4j2.properties")
        jvm.write_log_config()
        access = Access(reaper.scratch / "users", tls) if users or tls is not None else None
        if access is not None:
            access.write()
        server = ZooKeeperServer(jvm, reaper, access=access)
        server.start()
        yield server
    finally:
        reaper.close()


def server_fixture() -> Iterator[ZooKeeperServer]:
    """The body of a fixture: an open server of its own."""
    with zookeeper() as server:
        yield server


@contextmanager
def session(server: ZooKeeperServer, environment: Mapping[str, str]) -> Iterator[ZooKeeperSession]:
    """A session of the user that `environment` names."""
    with connected(server.hosts, 10.0, environment) as client:
        yield client

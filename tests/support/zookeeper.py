"""A real ZooKeeper for tests that need no cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import Jvm
from reprise.controller.local.cluster.warden import Warden
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper.access import Access


@contextmanager
def zookeeper(users: bool = False, tls: Path | None = None) -> Iterator[ZooKeeperServer]:
    """A server of its own; it, its data, and whatever a test did to it, are gone afterwards.  With `users`, or with a folder
    of its certificates, it is closed to all but those of its `access`."""
    warden = Warden()
    try:
        jvm = Jvm(find_java(warden.scratch / "java"), warden.scratch / "log4j2.properties")
        jvm.write_log_config()
        access = Access(warden.scratch / "users", tls) if users or tls is not None else None
        if access is not None:
            access.write()
        server = ZooKeeperServer(jvm, warden, access=access)
        server.start()
        yield server
    finally:
        warden.close()

"""A real ZooKeeper for tests that need no cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from controller.embedded.java import find_java
from controller.embedded.jvm import Jvm
from controller.embedded.warden import Warden
from controller.embedded.zookeeper import ZooKeeperServer


@contextmanager
def zookeeper() -> Iterator[ZooKeeperServer]:
    """A server of its own; it, its data, and whatever a test did to it, are gone afterwards."""
    warden = Warden()
    try:
        jvm = Jvm(find_java(warden.scratch / "java"), warden.scratch / "log4j2.properties")
        jvm.write_log_config()
        server = ZooKeeperServer(jvm, warden)
        server.start()
        yield server
    finally:
        warden.close()

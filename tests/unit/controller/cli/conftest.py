"""A ZooKeeper in memory, for commands that speak to one."""

from __future__ import annotations

from typing import Any, cast

import pytest

from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import client as clients
from reprise.controller.zookeeper import observer
from reprise.controller.zookeeper.session import ZooKeeperSession


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> MemoryServer:
    """A ZooKeeper that every session of this process is with."""
    found = MemoryServer()

    def make(*_: Any) -> ZooKeeperSession:
        return ZooKeeperSession(cast(Any, found.session()))

    for module in (clients, observer):
        monkeypatch.setattr(module, "make_client", make)
    return found

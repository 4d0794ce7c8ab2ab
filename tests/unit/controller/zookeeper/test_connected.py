"""A session ends with its block, however that ends, and holds nothing afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import client as clients
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.errors import SessionError
from reprise.controller.zookeeper.session import ZooKeeperSession


@pytest.mark.parametrize("raises", [False, True])
def test_what_it_has_made_for_its_life_is_gone_after_the_block(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    server = MemoryServer()
    other = server.session()

    def make(*_: Any) -> ZooKeeperSession:
        return ZooKeeperSession(cast(Any, server.session()))

    monkeypatch.setattr(clients, "make_client", make)
    try:
        with connected("z:1", 10.0) as session:
            session.create("/mine", b"", ephemeral=True)
            assert other.exists("/mine") is not None
            if raises:
                raise KeyError("somebody's own")
    except KeyError:
        assert raises
    assert other.exists("/mine") is None


def test_a_session_that_cannot_begin_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ZooKeeperSession] = []
    closed: list[ZooKeeperSession] = []

    class Unanswered(ZooKeeperSession):
        def close(self) -> None:
            super().close()
            closed.append(self)

    def make(hosts: str, session_s: float, environment: Mapping[str, str]) -> ZooKeeperSession:
        made.append(Unanswered(clients.kazoo_client(hosts, session_s, environment)))
        return made[-1]

    monkeypatch.setattr(clients, "make_client", make)
    with pytest.raises(SessionError), connected("127.0.0.1:1", 0.2, {}, 0.1):
        pytest.fail("nobody has answered")
    assert closed == made != []

"""When absence means something: by a clock that nobody sets."""

from __future__ import annotations

from typing import Any, cast

from reprise.controller.coordinator.store import Store
from reprise.controller.zookeeper.session import SessionState, ZooKeeperSession
from reprise.scheduler.model import TopologyView


class Client:
    """Connected, and of no further use."""

    state = SessionState.CONNECTED

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


def test_a_clock_that_is_set_back_does_not_lengthen_the_time_after_a_reconnection() -> None:
    wall, elapsed = [1_000_000.0], [50.0]
    store = Store(
        cast(ZooKeeperSession, Client()), "/r", TopologyView("t", (), ()), lambda: wall[0],
        grace_s=1.0, elapsed=lambda: elapsed[0],
    )  # fmt: skip
    assert store.trusted_for_s > 0, "nothing has been lost yet"
    store._listen(SessionState.CONNECTED)
    assert store.trusted_for_s == -1.0
    assert not store.read().snapshot.session
    wall[0] -= 3600.0
    elapsed[0] += 1.5
    assert store.trusted_for_s == 0.5

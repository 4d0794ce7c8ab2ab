"""The driver's view of its nodes on a real ZooKeeper that sleeps, and forgets every session over it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from reprise.controller.driver.channel import Channel
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.node_record import NodeRecord, absence_counts_after_s, encode_node
from reprise.controller.zookeeper.session import ZooKeeperSession
from tests.support.zookeeper import server_fixture
from tools.testbed.waiting import until

pytestmark = pytest.mark.slow
ROOT = "/reprise/test/channel"
NODES = ("n1", "n2")


class Time:
    """The channel's clock; moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


server = pytest.fixture(server_fixture)


@pytest.fixture
def agents(server: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    """One session that stands for those of all agents."""
    client = make_client(server.hosts, 60.0)
    client.start(timeout=300)
    for name in NODES:
        register(client, name)
    yield client
    client.close()


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def channel(server: ZooKeeperServer, agents: ZooKeeperSession, clock: Time) -> Iterator[Channel]:
    """Open, and aware of both nodes."""
    channel = Channel(server.hosts, ROOT, clock)
    channel.open()
    clock.now = 100.0
    assert sorted(channel.read_nodes()) == ["n1#1", "n2#1"]
    yield channel
    channel.close()


def register(client: ZooKeeperSession, name: str) -> None:
    record = NodeRecord(
        node=name, host="127.0.0.1", incarnation=1, pid=os.getpid(), cpu_milli=1000, started=0.0
    )
    client.create(f"{ROOT}/nodes/{name}", encode_node(record), ephemeral=True, makepath=True)


def leave(client: ZooKeeperSession, name: str) -> None:
    client.delete(f"{ROOT}/nodes/{name}")


def test_a_server_that_slept_costs_no_node_its_place(
    server: ZooKeeperServer, agents: ZooKeeperSession, channel: Channel, clock: Time
) -> None:
    states: list[str] = []
    channel._zk.add_listener(lambda state: states.append(str(state)))
    server.freeze()
    until(lambda: "SUSPENDED" in states, "the driver sees the outage")
    assert sorted(channel.read_nodes()) == ["n1#1", "n2#1"]
    server.thaw()
    until(lambda: states[-1] == "CONNECTED", "it is back")
    until(lambda: agents.connected, "for the agents, too")
    for name in NODES:
        leave(agents, name)
    until(lambda: channel._nodes_stale, "the channel hears of it")
    assert sorted(channel.read_nodes()) == ["n1#1", "n2#1"], "their absence means nothing yet"
    register(agents, "n1")
    clock.now += absence_counts_after_s()
    channel.changed.clear()
    assert sorted(channel.read_nodes()) == ["n1#1"], "who has not come by then is lost"
    assert channel.changed.is_set()


def test_a_node_that_goes_while_the_server_is_there_is_gone_at_once(
    agents: ZooKeeperSession, channel: Channel
) -> None:
    leave(agents, "n2")
    until(lambda: sorted(channel.read_nodes()) == ["n1#1"], "the other one is there, alone")

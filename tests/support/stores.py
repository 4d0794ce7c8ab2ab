"""Stores with records as drivers and agents would write them, on a real ZooKeeper or on one in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from reprise.controller.coordinator.store import Store
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.controller.zookeeper.records import encode_progress
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler import Decision, Outcome, Progress, Step
from tests.support.record_samples import TOPOLOGY, replace


class Connect(Protocol):
    """A store with a session of its own."""

    def __call__(self, session_s: float = 2.0) -> Store: ...


NewSession = Callable[[float], ZooKeeperSession]
"""A session that has begun, with a timeout in seconds."""


def sessions_with(server: ZooKeeperServer) -> NewSession:
    """Sessions with a real ZooKeeper."""

    def new(session_s: float) -> ZooKeeperSession:
        client = make_client(server.hosts, session_s)
        client.start(timeout=300)
        return client

    return new


@contextmanager
def stores(new_session: NewSession, root: str) -> Iterator[Connect]:
    """Stores of the topology at `root`, whose sessions end with it."""
    clients: list[ZooKeeperSession] = []

    def new(session_s: float = 2.0) -> Store:
        clients.append(new_session(session_s))
        store = Store(clients[-1], root, TOPOLOGY, time.time, grace_s=0.2)
        store.open()
        return store

    yield new
    for client in clients:
        client.close()


def put(store: Store, name: str, data: bytes, ephemeral: bool = False) -> None:
    path = f"{store.root}/{name}"
    if store.client.exists(path):
        store.client.set(path, data)
    else:
        store.client.create(path, data, ephemeral=ephemeral, makepath=True)


def add_node(store: Store, name: str, incarnation: int = 1) -> None:
    put(store, f"nodes/{name}", encode_node(NodeRecord(name, "127.0.0.1", incarnation, 1, 1000, 0.0)), True)


def report(store: Store, **fields: object) -> None:
    put(store, paths.PROGRESS, encode_progress(replace(Progress("1"), **fields)))


def ready(store: Store, *nodes: str) -> None:
    for node in nodes:
        add_node(store, node)
    report(store, nodes=frozenset(f"{node}#1" for node in nodes))


def acts(*steps: Step) -> Decision:
    return Decision(Outcome.ACT, "test", "because", steps)


def nodes(store: Store) -> list[str]:
    return [node.id for node in store.read().snapshot.nodes]

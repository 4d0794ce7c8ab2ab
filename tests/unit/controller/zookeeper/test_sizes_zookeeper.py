"""10,000 partitions and 1,000 queries on a real ZooKeeper with its own limits: a new driver gets everything back.

`pytest -s` prints what every record weighs; the figures in docs/decisions/0013-record-sizes.md are from here.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.coordinator.store import Store
from reprise.controller.coordinator.transaction import Versions, operations
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.controller.zookeeper.observer import Observer
from reprise.controller.zookeeper.records import encode_progress, encode_stats, parse_desired
from reprise.controller.zookeeper.znode import LIMIT_BYTES, pack, unpack
from reprise.scheduler import Decision, Desired, PartitionStats, Progress, TopologyView
from tests.support.recorded_sizes import CHECKPOINT, HORIZON, Sizes, node_names, resource
from tests.support.zookeeper import zookeeper
from tools.testbed.waiting import HANGS_S

NODES = 200
pytestmark = [pytest.mark.slow, pytest.mark.wide]


class Driver:
    """Says what a driver would say, with records as it writes them; and gives nodes that stay."""

    def __init__(self, store: Store, view: TopologyView) -> None:
        self._store, self._view = store, view
        names = node_names(NODES)
        for name in names:
            self._put(f"nodes/{name}", encode_node(NodeRecord(name, "127.0.0.1", 1, 1, 8000, 0.0)))
        self.progress = Progress("1", nodes=frozenset(f"{name}#1" for name in names))
        draw = random.Random(7)
        load = {
            p.id: PartitionStats(round(draw.uniform(5, 20), 3), draw.randrange(0, 10_000_000))
            for p in view.partitions
        }
        self._put(paths.STATS, pack(encode_stats(load)))

    def says(self, desired: Desired | None = None, **changes: object) -> None:
        if desired is not None:
            positions = {p: HORIZON - k % 3 for k, p in enumerate(desired.assignment)}
            changes |= {"seq": desired.seq, "generation": desired.generation, "positions": positions}
        self.progress = replace(self.progress, horizon=HORIZON, **changes)
        self._put(paths.PROGRESS, pack(encode_progress(self.progress)))

    def _put(self, name: str, data: bytes) -> None:
        path = f"{self._store.root}/{name}"
        if self._store.client.exists(path):
            self._store.client.set(path, data)
        else:
            self._store.client.create(path, data, makepath=True)


def follow(coordinator: Coordinator, driver: Driver, until_rule: str) -> list[Decision]:
    """Look and carry out, until a rule has been applied."""
    found: list[Decision] = []
    end = time.monotonic() + HANGS_S
    while time.monotonic() < end:
        decision = coordinator.turn()
        assert not coordinator.problem
        if decision is None:
            continue
        found.append(decision)
        if decision.desired is not None:
            driver.says(decision.desired)
        if decision.rule == until_rule:
            return found
        coordinator.store.changed.wait(0.2)
    raise AssertionError(f"no {until_rule}: {[decision.rule for decision in found]}")


def weights(store: Store) -> Mapping[str, tuple[int, int]]:
    """Bytes of every record of more than a kilobyte: as JSON, and in ZooKeeper."""
    found = {}
    names = [paths.PROGRESS, paths.STATS, paths.DESIRED, paths.INCIDENT]
    names += [
        f"{f}/{n}"
        for f in (paths.PLANS, paths.INCIDENTS)
        for n in store.client.get_children(f"{store.root}/{f}")
    ]
    for name in names:
        if store.client.exists(f"{store.root}/{name}"):
            raw = store.client.get(f"{store.root}/{name}")[0]
            found[name] = (len(unpack(raw)), len(raw))
    return found


def test_a_driver_that_starts_anew_gets_ten_thousand_partitions_back() -> None:
    spec = resource(stages=9, parallelism=1000, nodes=NODES, outputs=1000)
    view = view_of(spec)
    assert (len(view.partitions), len(view.queries)) == (10_000, 1000)
    with zookeeper() as server:
        client = make_client(server.hosts, 60.0)
        client.start(timeout=300)
        states: list[str] = []
        try:
            client.add_listener(lambda state: states.append(str(state)))
            store = Store(client, "/reprise/test/large", view, time.time, grace_s=0.0)
            store.open()
            driver = Driver(store, view)
            driver.says()
            coordinator = Coordinator(store, policy_of(spec, 0.2, 5.0))
            follow(coordinator, driver, "start")
            driver.says(driver="2", positions={}, seq=0, checkpoint=CHECKPOINT)
            began = time.monotonic()
            done = follow(coordinator, driver, "restored")
            seconds = time.monotonic() - began
            (planned,) = [decision for decision in done if decision.plan is not None]
            plan, transaction = planned.plan, Sizes()
            assert plan is not None
            for operation in operations(store.root, Versions(1, 1), planned):
                operation(transaction)
            assert len(plan.added) == 10_000
            open_ = weights(store)
            further = dict.fromkeys(driver.progress.positions, HORIZON + 10)
            driver.says(checkpoint=HORIZON + 8, positions=further)
            follow(coordinator, driver, "closed")
            desired = parse_desired(unpack(client.get(f"{store.root}/desired")[0]))
            assert len(desired.assignment) == 10_000
            observer = Observer(server.hosts, store.root, client)
            seen = observer.read()
            (closed,) = seen.closed.values()
            assert len(closed.queries) == 1000
            assert seen.plans[plan.id] == plan
            assert "SUSPENDED" not in states
        finally:
            client.close()
    said = {name: {"json": plain, "znode": packed} for name, (plain, packed) in open_.items()}
    print(json.dumps({"seconds": round(seconds, 1), "transaction": transaction.bytes, **said}, indent=1))
    assert 0 < transaction.bytes < LIMIT_BYTES / 2
    assert sum(packed for _, packed in open_.values()) < LIMIT_BYTES / 2

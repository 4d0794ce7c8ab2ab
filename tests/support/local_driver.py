"""A driver without Spark: the loop, the channel and the engine are the real ones; nodes and ZooKeeper are in here."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from reprise.controller.driver.channel import Channel
from reprise.controller.driver.loop import Loop
from reprise.controller.driver.node_starts import NodeStarts
from reprise.controller.driver.output_events import OutputEvents
from reprise.controller.observability.metrics.driver import DriverMetrics
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer, MemorySession
from reprise.controller.zookeeper.records import encode_desired
from reprise.scheduler.model import Desired
from reprise.spark_jobs.state.revision import Revisions, revision_of
from reprise.spark_jobs.topology import StreamTopology
from tools.testbed.local_engine import World

ROOT = "/reprise/test/loop"


class LocalCluster:
    """The nodes of a world as Spark would show them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.there = True
        self.say: Callable[[str], None] = print
        self.tell: Callable[[], None] = lambda: None
        self.starts = NodeStarts()

    def usable(self) -> Mapping[str, str]:
        return {f"{node}#1": host for node, host in self.world.nodes.living().items()}

    def doubt(self, nodes: Collection[str]) -> None:
        """They stay usable."""

    def registered(self, host: str) -> bool:
        return host in self.world.nodes.living()

    def alive(self) -> bool:
        return self.there


class LocalDriver:
    """One driver's life in `world`; a second one of the same world is its successor."""

    def __init__(self, world: World, tree: MemoryServer, events: Path | None = None) -> None:
        self.world, self.tree = world, tree
        self.zk = MemorySession(tree)
        for folder in ("nodes", "checkpoints"):  # as `Channel.open` does
            self.zk.ensure_path(f"{ROOT}/{folder}")
        self.channel = Channel("", ROOT, session=self.zk)
        self.engine = world.driver(self.channel.next_epoch)
        location, resource = str(world.checkpoints), world.resource
        self.revisions = Revisions(location, revision_of(resource), world.fence)
        newest = max(self.engine.store.positions(), default=0)
        replay, ages = resource.upgrade == "replay", self.engine.store.of_many_ages
        said = self.revisions.begin(newest, self.engine.ledger.released, replay, ages)
        self.engine.problems += [said] if said else []
        self.engine.releases = self.revisions.releases
        self.engine.begin(newest)
        self.cluster = LocalCluster(world)
        self.stop = threading.Event()
        self.events = OutputEvents(events)
        metrics = DriverMetrics(self.engine, lambda: "connected")
        self.loop = Loop(
            self.engine, self.channel, self.cluster, metrics, self.events, self.revisions, self.stop
        )

    def want(
        self,
        generation: int,
        checkpoint: int,
        assignment: Mapping[str, str],
        seq: int = 1,
        standbys: Mapping[str, str] | None = None,
    ) -> None:
        """What the coordinator would write; a node without an incarnation is its first."""
        nodes, others = (
            {partition: node if "#" in node else f"{node}#1" for partition, node in placed.items()}
            for placed in (assignment, standbys or {})
        )
        driver = str(self.engine.epoch)
        desired = Desired(seq, generation, checkpoint, driver, nodes, standbys=others)
        self.tree.put(f"{ROOT}/desired", encode_desired(desired))

    def turn(self) -> None:
        """As the loop does it, without waiting."""
        self.loop._guarded_turn()

    def record(self, name: str = "progress") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.tree.records[f"{ROOT}/{name}"][0])
        return found


def world_of(resource: StreamTopology, folder: Path) -> World:
    world = World(resource, folder, "w")
    world.nodes.start("a", "b")
    return world

"""One topology in the world: its machines, its drivers and coordinators, and the supervisor that starts others where
they end.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.coordinator.settings import SettingsFollower
from reprise.controller.coordinator.store import Store as RecordStore
from reprise.controller.driver.node_starts import NodeStarts
from reprise.controller.driver.process import Driver, DriverConfig
from reprise.controller.simulated_world.core import Process, World
from reprise.controller.simulated_world.exchange import Link, Severed
from reprise.controller.simulated_world.nodes import Machine
from reprise.controller.simulated_world.placements import near_although_there_is_room
from reprise.controller.simulated_world.sessions import Ensemble
from reprise.controller.simulated_world.spark import Application, WorldNodes
from reprise.controller.simulated_world.stores import Store
from reprise.controller.simulated_world.twins import Twins
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper.node_record import ROOTS, root_name
from reprise.controller.zookeeper.paths import root_of
from reprise.controller.zookeeper.session import patiently
from reprise.scheduler import Decision, Snapshot
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.topology import StreamTopology

COORDINATOR_SESSION_S, DRIVER_SESSION_S = 6.0, 10.0
SUPERVISES_S = (0.5, 3.0)
"""Until another process is started in place of one that has ended."""
SETTLE_S, DRIVER_GRACE_S = 1.0, 8.0


class Cluster:
    """Everything of one topology.  `coordinators`: how many run at once, of which one leads."""

    def __init__(self, world: World, resource: StreamTopology, coordinators: int = 1) -> None:
        self.world, self.resource = world, resource
        self.root = root_of(resource.namespace, resource.name)
        self.ensemble, self.store = Ensemble(world), Store(world)
        self.broken: list[tuple[str, str]] = []
        """What hosts have done, or a coordinator has decided, that must not be: the invariant, and what does not hold."""
        self.twins = Twins(resource, self.breaks)
        self.scratch = Path(tempfile.mkdtemp(prefix="simulated-world-"))
        self.machines: dict[str, Machine] = {}
        self.applications: list[Application] = []
        self.severed: dict[Link, Severed] = {}
        """Machines, by name, between which nothing travels."""
        self._exchanges = itertools.count(1)
        self.drivers: list[Process] = []
        self.coordinators: dict[int, Process] = {}
        self.leading: dict[Process, Coordinator] = {}
        self.supervised = True
        self.ensemble.tree.put(f"{ROOTS}/{root_name(self.root)}", b"")
        for number in range(coordinators):
            self._coordinate(number)
        self.begin_driver()

    def breaks(self, invariant: str, detail: str) -> None:
        """Something does not hold."""
        self.broken.append((invariant, detail))

    def close(self) -> None:
        """End every thread, and remove what was written."""
        self.world.close()
        self.store.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    # -- machines ----------------------------------------------------------------------------------------------------

    def add(self, name: str, rack: int = 0) -> Machine:
        """Boot a machine, new or again."""
        machine = self.machines.get(name) or Machine(self.world, self.ensemble, self, name, rack)
        self.machines[name] = machine
        machine.boot(round(self.resource.nodes.cpu_cores * 1000))
        return machine

    def starts_executors(self, machine: Machine) -> None:
        """One of every application."""
        for application in self.applications:
            application.offer(machine)

    # -- processes ---------------------------------------------------------------------------------------------------

    def second_coordinator(self) -> None:
        """Have another one beside the first from now on."""
        if len(self.coordinators) < 2:
            self._coordinate(len(self.coordinators))

    def begin_driver(self) -> None:
        """Start the next driver's process."""
        process = self.world.process(f"driver-{len(self.drivers) + 1}")
        self.drivers.append(process)
        folder = self.scratch / process.name
        grace_s = self.resource.recovery.driver_grace_s
        numbers = self._exchanges if self.resource.spark.exchange == "auto" else None
        application = Application(self.world, process, folder, self.twins, self.severed, numbers, grace_s)
        self.applications.append(application)
        driver = WorldDriver(self, process, application)
        process.on_death.append(self._driver_ended)

        def run() -> None:
            try:
                driver.run()
            finally:
                if not self.world.closed:
                    self.world.kill(process)

        self.world.begin(process, run, "driver")
        for machine in self.machines.values():
            if machine.has_executors(machine.round):
                application.offer(machine)

    def _driver_ended(self) -> None:
        self.ensemble.look()
        if self.supervised and all(not process.alive for process in self.drivers):
            self.world.call(self.world.between(*SUPERVISES_S), self._driver_again)

    def _driver_again(self) -> None:
        if self.supervised and all(not process.alive for process in self.drivers):
            self.begin_driver()

    def _coordinate(self, number: int) -> None:
        process = self.world.process(f"coordinator-{number + 1}")
        self.coordinators[number] = process
        platform = self.world.platform(process)
        session = self.ensemble.session(process, COORDINATOR_SESSION_S)

        def decides(snapshot: Snapshot, decision: Decision) -> tuple[()]:
            for detail in near_although_there_is_room(snapshot, coordinator.policy, decision):
                self.breaks("apart", detail)
            return ()

        store = RecordStore(
            client=session, root=self.root, topology=view_of(self.resource), clock=platform.wall, also=decides,
            keep=self.resource.checkpoint.keep, elapsed=platform.elapsed, changed=platform.event(), after=platform.after,
        )  # fmt: skip
        policy = policy_of(self.resource, SETTLE_S, DRIVER_GRACE_S)
        coordinator = Coordinator(
            store, policy, clock=platform.elapsed, stop=platform.event(), _ahead=platform.lock()
        )
        coordinator.refresh = SettingsFollower(coordinator, self.resource).refresh
        self.leading[process] = coordinator

        def run() -> None:
            session.start(timeout=60)
            patiently(store.open, platform.elapsed, platform.sleep)
            coordinator.run()

        def again() -> None:
            if self.supervised:
                self._coordinate(number)

        process.on_death.append(lambda: self.world.call(self.world.between(*SUPERVISES_S), again))
        self.world.begin(process, run, "coordinator")

    # -- what can be seen from outside -----------------------------------------------------------------------------------

    def record(self, name: str) -> dict[str, object] | None:
        """A record below the root, as it is now."""
        from reprise.controller.zookeeper.znode import unpack

        found = self.ensemble.tree.znodes.get(f"{self.root}/{name}")
        return None if found is None or not found.data else json.loads(unpack(found.data))

    def output(self) -> dict[str, bytes]:
        """Files of the sinks."""
        return self.store.below("sink")


class WorldDriver(Driver):
    """The real driver's process, with the modelled Spark in place of its own."""

    def __init__(self, cluster: Cluster, process: Process, application: Application) -> None:
        config = DriverConfig(
            zk="", root=cluster.root, master="", sink=f"{cluster.store.url}/sink",
            checkpoints=f"{cluster.store.url}/checkpoints", events=None, java_options="", driver_host="", python_path="",
            adopts=True,
        )  # fmt: skip
        world = cluster.world
        session = cluster.ensemble.session(process, DRIVER_SESSION_S)
        super().__init__(cluster.resource, config, world.platform(process), session)
        self._world, self._modelled = world, application
        self._connect = application.connect  # type: ignore[method-assign]

    def _application(self, engine: Engine, ends: ExitStack) -> WorldNodes:
        starts = NodeStarts(self.platform.wall)
        self._modelled.changed = self.channel.changed.set
        return WorldNodes(self._world, self._modelled, self.channel, starts, self.platform)


__all__ = ["Cluster", "WorldDriver"]

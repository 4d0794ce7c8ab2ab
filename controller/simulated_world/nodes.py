"""Modelled machines: each has the real agent of a node, and modelled executors below it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from reprise.controller.agent.agent import NodeAgent
from reprise.controller.simulated_world.core import EPOCH, Process, World
from reprise.controller.simulated_world.sessions import Ensemble, WorldSession
from reprise.controller.zookeeper.node_record import SESSION_S

if TYPE_CHECKING:
    from reprise.controller.simulated_world.cluster import Cluster
    from reprise.controller.simulated_world.spark import Executor

STARTS_S = (0.3, 1.2)
"""Until the agent has started its executors."""
RACK = "rack"
"""The label of a machine that says in which rack it is."""
GRACE_S = 4.0
"""How long a machine that is told to leave works on."""


class Machine:
    """A node's machine and all that runs there.  It is also what its agent leads
    (`reprise.controller.agent.executors`)."""

    def __init__(self, world: World, ensemble: Ensemble, cluster: Cluster, name: str, rack: int) -> None:
        self.world, self.ensemble, self.cluster = world, ensemble, cluster
        self.name, self.rack = name, rack
        self.alive = self.stopped = False
        self.agent: Process = world.process(f"agent-{name}")
        self.agent.alive = False
        self.session: WorldSession | None = None
        self.node_agent: NodeAgent | None = None
        """What runs in `agent`, once it has begun."""
        self.executors: list[Process] = []
        """Processes below the agent, of whichever driver."""
        self.left: Executor | None = None
        """Whose host waits here for the executor of another driver."""
        self.round, self._started = 0, False
        """How often executors were started or ended here, and whether they may run now."""
        self.disk_full = False
        self._held = False
        """Whether the agent has stopped what runs below it."""

    # -- what happens to it ------------------------------------------------------------------------------------------

    def boot(self, cpu_milli: int) -> None:
        """Its agent starts, and all that follows."""
        self.alive, self.stopped = True, False
        self.agent = self.world.process(f"agent-{self.name}")
        self.session = self.ensemble.session(self.agent, SESSION_S)
        options = argparse.Namespace(
            node=self.name, host=self.name, zk="", cpu_milli=cpu_milli, session_timeout_ms=SESSION_S * 1000,
            requested=EPOCH + self.world.now, label=[f"{RACK}={self.rack}"], grace=GRACE_S,
        )  # fmt: skip
        platform, session = self.world.platform(self.agent), self.session

        def run() -> None:
            self.node_agent = NodeAgent(options, self, platform, session)
            self.node_agent._run()

        self.node_agent = None
        self.world.begin(self.agent, run, "agent")
        self.world.note(f"{self.name} boots")

    def die(self) -> None:
        """The machine is gone with all that it runs."""
        self.alive = False
        self.world.kill(self.agent)
        self._end_below()

    def leave(self) -> bool:
        """SIGTERM to the agent, and the end when its grace is over; whether there is anything that it could hand over."""
        agent = self.agent
        if not self.alive or self.stopped or self.node_agent is None:
            return False
        try:
            self.node_agent._told_to_leave()
        except SystemExit:
            return False
        self.world.note(f"{self.name} is told to leave")
        self.world.call(GRACE_S, lambda: self.die() if self.agent is agent and self.alive else None)
        return True

    def freeze_all(self) -> None:
        """SIGSTOP to everything."""
        self.stopped = True
        self.world.note(f"{self.name} is stopped")
        for process in (self.agent, *self.executors):
            self.world.stop(process)
        self.ensemble.look()

    def fill_disk(self, full: bool = True) -> None:
        """There is no room on its disk for new files, or there is again."""
        if full != self.disk_full:
            self.disk_full = full
            self.world.note(
                f"the disk of {self.name} is full" if full else f"{self.name} has room on its disk"
            )
        for process in self.executors:
            process.disk_full = full

    def thaw_all(self) -> None:
        if not self.stopped:
            return
        self.stopped = False
        self.world.note(f"{self.name} goes on")
        self.world.go_on(self.agent)
        for process in self.executors if not self._held else ():
            self.world.go_on(process)
        self.ensemble.look()

    def _end_below(self) -> None:
        self.round, self._started = self.round + 1, False
        for process in self.executors:
            self.world.kill(process)
        self.executors = []

    # -- executors, as the agent sees them -----------------------------------------------------------------------------

    def has_executors(self, number: int) -> bool:
        """Whether those of that round may run."""
        return self.alive and self.round == number and self._started

    def start(self) -> None:
        self._held = False
        number = self.round = self.round + 1

        def begin() -> None:
            if self.alive and self.round == number:
                self._started = True
                self.cluster.starts_executors(self)

        self.world.call(self.world.between(*STARTS_S), begin)

    def keep(self) -> None:
        """Applications start executors here."""

    def freeze(self) -> None:
        self._held = True
        for process in self.executors:
            self.world.stop(process)

    def thaw(self) -> None:
        self._held = False
        for process in self.executors if not self.stopped else ():
            self.world.go_on(process)

    def end_all(self) -> None:
        self._end_below()

"""What an agent leads and asks, in memory: executors that it is told to start and to end, and a session that may go."""

from __future__ import annotations

import argparse

import pytest

from reprise.controller.agent import agent as agent_module
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer, MemorySession
from reprise.controller.zookeeper.session import SessionState
from reprise.spark_jobs.platform import Platform

SESSION_S = 3.0


class FakeExecutors:
    """As an agent sees them; `said` is what happened to them, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.kept = 0
        """How often they were to be kept running."""
        self.alive = False

    def start(self) -> None:
        self.said.append("start")
        self.alive = True

    def end_all(self) -> None:
        self.said.append("end")
        self.alive = False

    def keep(self) -> None:
        self.kept += 1

    def freeze(self) -> None:
        self.said.append("freeze")

    def thaw(self) -> None:
        self.said.append("thaw")


class AgentScene:
    """An agent whose threads do not run: the test is its queue of events, its ticker and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tree: MemoryServer | None = None) -> None:
        self.tree = tree or MemoryServer()
        self.zk = MemorySession(self.tree)
        self.executors = FakeExecutors()
        self.now = 1000.0
        monkeypatch.setattr(agent_module, "make_client", lambda *_: self.zk)
        self.platform = Platform(elapsed=lambda: self.now)
        self.options = argparse.Namespace(
            node="n1",
            host="127.0.1.1",
            zk="zk",
            cpu_milli=500,
            label=[],
            session_timeout_ms=SESSION_S * 1000,
            requested=1000.0,
        )

    def begin(self, agent: agent_module.NodeAgent) -> None:
        """As far as it goes before it waits for its first event."""
        self.agent = agent
        self.executors.start()
        self.zk.add_listener(agent._listen)

    def turn(self) -> None:
        """It takes one event after the other, and looks around when there is none."""
        while not self.agent._events.empty():
            self.agent._handle(self.agent._events.get())
        self.agent._look_around()

    def lives(self, seconds: float) -> None:
        """Its ticker runs."""
        for _ in range(round(seconds / agent_module.TICK_S)):
            self.now += agent_module.TICK_S
            self.agent._life.tick(self.now)

    def is_frozen(self, seconds: float) -> None:
        """Nothing of the node runs; then its ticker finds out."""
        self.now += seconds
        if self.agent._life.tick(self.now):
            self.executors.freeze()
            self.agent._events.put("woke")

    def outage(self, seconds: float, new_session: int) -> None:
        """ZooKeeper is away for so long, and forgets the session meanwhile; the agent lives."""
        self.zk.becomes(SessionState.SUSPENDED)
        self.turn()
        self.lives(seconds)
        self.expire(new_session)

    def expire(self, new_session: int) -> None:
        """The session has expired; a new one begins."""
        self.tree.end(self.zk.id)
        self.zk.becomes(SessionState.LOST)
        self.zk.client.client_id = (new_session, b"")
        self.zk.becomes(SessionState.CONNECTED)

    def record(self, root: str, node: str = "n1") -> bytes | None:
        found = self.tree.records.get(f"{root}/nodes/{node}")
        return found and found[0]

"""The agent of an executor's pod: the container's first process, Spark's executor below it, its heartbeat in ZooKeeper.

Invariants, beside those of `reprise.controller.agent.agent`, whose heartbeat this is, and in place of its second
- A pod that was given up (`membership`) ends itself as soon as it learns of it, and never registers again.
- Without an executor there is no agent and without an agent no executor: the one ends the other, and the pod fails, which
  makes Spark ask for another one.
- ZooKeeper that does not answer ends nothing: the executor works on.
- A session that expired ends nothing either: others have seen the heartbeat go, but only the membership record says that
  they have given the pod up.  An agent that was frozen or starved for so long stops the executor's processes, and either
  registers again and lets them go on, or is refused and ends them.
- SIGTERM (eviction, drain, deletion) takes the heartbeat away before the executor goes: the loss is seen at once and
  not when the session expires.  With a grace it is a notice first: the pod ends when what it has is assigned elsewhere, and
  at the latest when the grace is over.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from reprise.controller import logs
from reprise.controller.agent.agent import LEFT, NodeAgent
from reprise.controller.agent.executor import ExecutorProcess
from reprise.controller.zookeeper import membership, paths
from reprise.controller.zookeeper.errors import (
    BadVersionError,
    ClientError,
    NodeExistsError,
    NoNodeError,
    RecordError,
    RolledBackError,
)
from reprise.controller.zookeeper.fields import as_text, loads
from reprise.controller.zookeeper.node_record import SESSION_S
from reprise.controller.zookeeper.session import Stat, ZooKeeperSession
from reprise.controller.zookeeper.znode import unpack
from reprise.spark_jobs.platform import PLATFORM, Platform

log = logging.getLogger("reprise.node_agent")
FENCED, EXECUTOR_ENDED = 3, 1
EMPTY_LOOK_S = 1.0
ALIVE = "alive"
"""File that is touched by the deciding thread: the probe asks for its age, and for nothing outside of the pod."""
_NO_MEMBER = (BadVersionError, NoNodeError)


class PodEnds(SystemExit):
    """The pod has nothing left to do; carries the exit code."""


class ExecutorAgent(NodeAgent):
    """One deciding thread, as its base; ends by PodEnds."""

    def __init__(
        self,
        options: argparse.Namespace,
        executor: ExecutorProcess,
        root: str,
        alive: Path,
        platform: Platform = PLATFORM,
        session: ZooKeeperSession | None = None,
    ) -> None:
        super().__init__(options, executor, platform, session)
        self._executor = executor
        self._root, self._alive = root, alive
        self._joined = False
        self._asked = float("-inf")
        """When it was asked last whether anything is assigned to this pod."""

    def _run(self) -> None:
        self._incarnation = 1
        self._executors.start()
        self._zk.add_listener(self._listen)
        self._zk.start_async()
        self._platform.begin(self._tick_forever, "ticker")
        while True:
            self._alive.touch()
            self._next_event()
            self._leave_in_time()

    def _handle(self, event: str) -> None:
        if event == "leaving" and not self._grace_s:
            self._leave()
        if event == "fenced":
            self._fenced("membership record rewritten")
        super()._handle(event)

    def _leave(self) -> None:
        log.info("event=leaving node=%s", self._node)
        if self._zk.connected:
            with contextlib.suppress(ClientError):
                self._erase(self._root)
        raise PodEnds(LEFT)

    def _leave_in_time(self) -> None:
        if self._leaves_at is not None and (self._platform.wall() >= self._leaves_at or self._empty()):
            self._leave()

    def _empty(self) -> bool:
        """Whether everything is assigned elsewhere; asked once a second."""
        now = self._platform.elapsed()
        if not self._zk.connected or now - self._asked < EMPTY_LOOK_S:
            return False
        self._asked = now
        try:
            raw, _ = self._wait(self._zk.get_async(f"{self._root}/{paths.DESIRED}"))
            assigned = loads(unpack(raw), paths.DESIRED).mapping("assignment", as_text, {})
        except (ClientError, RecordError):
            return False
        return f"{self._node}#{self._incarnation}" not in assigned.values()

    def _look_around(self) -> None:
        if not self._executor.alive:
            log.warning("event=executor-ended node=%s", self._node)
            raise PodEnds(EXECUTOR_ENDED)
        super()._look_around()

    def _seen_leaving(self) -> None:
        """The executor stands still until it is known whether the pod was given up."""
        self._executors.freeze()
        self._held = True

    def _confirm(self) -> None:
        """Returns when the pod is registered in this very session and was not given up; ends it if it was."""
        if not self._registered_in:
            self._bring_up_to_date()
        found = self._wait(self._zk.exists_async(membership.path_of(self._root, self._node)))
        if found is None or found.version != membership.JOINED_VERSION:
            self._fenced("membership record rewritten")

    def _fenced(self, why: str) -> None:
        log.warning("event=fenced node=%s reason=%r", self._node, why)
        self._executors.end_all()
        raise PodEnds(FENCED)

    def _bring_up_to_date(self) -> None:
        if not self._joined:
            self._join()
        super()._bring_up_to_date()

    def _join(self) -> None:
        path = membership.path_of(self._root, self._node)
        self._zk.ensure_path(f"{self._root}/{membership.FOLDER}")
        with contextlib.suppress(NodeExistsError):
            self._wait(self._zk.create_async(path, membership.joined()))
        self._zk.watch_data(path, self._see_membership)
        self._joined = True

    def _see_membership(self, stat: Stat | None) -> None:
        if stat is None or stat.version != membership.JOINED_VERSION:
            self._events.put("fenced")

    def _served(self) -> frozenset[str]:
        return frozenset({self._root})

    def _store_incarnation(self) -> None:
        """A pod has one."""

    def _create(self, path: str) -> None:
        """Registers, if the pod is still a member: both in one transaction."""
        transaction = self._zk.transaction()
        transaction.check(membership.path_of(self._root, self._node), membership.JOINED_VERSION)
        transaction.create(path, self._record(), ephemeral=True)
        refusals = transaction.commit(self._timeout)
        checked = refusals[0]  # a NoNodeError of the other may speak of the folder
        if isinstance(checked, _NO_MEMBER):
            self._fenced("not a member any more")
        for refused in refusals:
            if refused is not None and not isinstance(refused, RolledBackError):
                raise refused


def main(environment: Mapping[str, str]) -> None:
    """Run until the pod ends.  REPRISE_ZK, REPRISE_ROOT and REPRISE_CPU_MILLI come from the pod's template, the rest
    from Spark."""
    logs.setup(level=logging.WARNING)
    log.setLevel(logging.INFO)
    if os.getsid(0) != os.getpid():
        os.setsid()
    scratch = Path(environment.get("REPRISE_SCRATCH", "/tmp/reprise"))
    scratch.mkdir(parents=True, exist_ok=True)
    executor = ExecutorProcess.of(environment, scratch)
    ExecutorAgent(options_of(environment), executor, environment["REPRISE_ROOT"], scratch / ALIVE).run()


def options_of(environment: Mapping[str, str]) -> argparse.Namespace:
    """What an agent is told on its command line elsewhere."""
    return argparse.Namespace(
        node=environment["SPARK_EXECUTOR_POD_NAME"],
        host=environment["SPARK_EXECUTOR_POD_IP"],
        zk=environment["REPRISE_ZK"],
        cpu_milli=int(environment["REPRISE_CPU_MILLI"]),
        label=[],  # the operator knows the labels of the pod's machine
        grace=float(environment.get("REPRISE_GRACE_S", 0)),
        session_timeout_ms=int(environment.get("REPRISE_SESSION_TIMEOUT_MS", SESSION_S * 1000)),
    )

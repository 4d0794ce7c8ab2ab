"""What all handlers of one operator process share: its connections, its controllers, its switches."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from reprise.controller.crd.convert import TOPOLOGY_LABEL
from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.errors import OperatorError
from reprise.controller.kubernetes.informer import WATCH_S, Informer
from reprise.controller.kubernetes.pods import ROLE_LABEL, kubernetes_node, pod_view
from reprise.controller.observability.metrics.look import Look
from reprise.controller.observability.metrics.process import session_of
from reprise.controller.operator.loop.burst_gate import BurstGate
from reprise.controller.operator.loop.poll_rate import PollRate
from reprise.controller.operator.loop.priority_executor import PriorityExecutor
from reprise.controller.operator.loop.topology import TopologyController
from reprise.controller.operator.pods.capacity import load_view
from reprise.controller.operator.pods.cluster_view import Cluster, ClusterView, Key
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.web import Board
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.users import keep_server_closed

log = logging.getLogger("reprise.operator")
DECIDING, RECONCILING = 12, 6
"""Looks that may run at once: enough that one decides while others wait for answers; more only take turns."""
SWITCHES_S = 5.0
STUCK_S = 60.0
"""An event loop that has not turned for so long does not turn any more."""
WATCH_STUCK_S = 3 * WATCH_S
"""A watch ends after WATCH_S, and one that gets no answer some seconds later."""


@dataclass(frozen=True, slots=True)
class Switches:
    """Cluster-wide switches from the ConfigMap."""

    paused: bool = False
    recommend: bool = False


@dataclass
class Runtime:
    """One operator process."""

    settings: OperatorSettings
    api: Api
    client: ZooKeeperSession
    deciding: PriorityExecutor = field(default_factory=lambda: PriorityExecutor(DECIDING))
    reconciling: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(RECONCILING, "reconcile")
    )
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(RECONCILING))
    """As many as `reconciling` has threads: who waits for one waits here, where it can still be told to wait longer."""
    poll_rate: PollRate = field(default_factory=PollRate)
    burst: BurstGate = field(default_factory=BurstGate)
    cluster: Cluster = field(init=False)
    board: Board = field(default_factory=Board)
    controllers: dict[str, TopologyController] = field(default_factory=dict)
    """By uid."""
    wakers: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
    """By namespace and name."""
    loop: asyncio.AbstractEventLoop | None = None
    """Set when handlers may run."""
    ending: threading.Event = field(default_factory=threading.Event)
    beat: float = field(default_factory=time.monotonic)
    """When the event loop was last seen to turn."""
    _switches: Switches = field(default_factory=Switches)
    _switches_read: float = 0.0

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.wake)
        self._informers: list[Informer[Any]] = []

    @classmethod
    def start(cls, settings: OperatorSettings, api: Api, board: Board) -> Runtime:
        """ZooKeeper is connected to in the background: an operator without it still looks after pods."""
        client = make_client(settings.zk, settings.session_s)
        client.start_async()
        found = cls(settings, api, client, board=board)
        if settings.zk_own and settings.zk_keys is not None:
            keep = threading.Thread(
                target=keep_server_closed,
                args=(client, settings.zk_keys, found.ending),
                daemon=True,
                name="close",
            )
            keep.start()
        return found

    def watch(self) -> None:
        """Begin to read pods and machines; `known` tells when all of them have been read."""
        self.loop = asyncio.get_running_loop()
        mine = f"{TOPOLOGY_LABEL},{ROLE_LABEL}"
        for namespace in self.settings.watch or ("",):
            path = collection(namespace, "pods")
            self._informers.append(
                Informer(self.api, path, pod_view, self.cluster.pod_changed, labelSelector=mine)
            )
        if self.settings.nodes:
            nodes = Informer(self.api, collection("", "nodes"), kubernetes_node, self.cluster.machine_changed)
            self._informers.append(nodes)
        if self.settings.capacity:
            loads = Informer(self.api, collection("", "pods"), load_view, self.cluster.load_changed)
            self._informers.append(loads)
        for number, informer in enumerate(self._informers):
            threading.Thread(
                target=informer.run, args=(self.ending,), daemon=True, name=f"watch-{number}"
            ).start()

    @property
    def known(self) -> bool:
        return bool(self._informers) and all(informer.synced.is_set() for informer in self._informers)

    def turns_well(self) -> bool:
        """Whether the event loop and the threads that watch make progress, whoever answers them or does not."""
        now = time.monotonic()
        return now - self.beat < STUCK_S and all(now - i.turned < WATCH_STUCK_S for i in self._informers)

    def sees(self) -> bool:
        """Whether what is known of pods and machines is of late."""
        return all(age < WATCH_STUCK_S for age in self.answer_ages().values())

    def answer_ages(self) -> dict[str, float]:
        """Seconds since the API server's last answer to each watch, by its path."""
        now = time.monotonic()
        return {informer.path: now - informer.answered for informer in self._informers}

    def cluster_view(self, namespace: str, name: str) -> ClusterView:
        """What a step of this topology sees."""
        switches = self.switches()
        machines = self.cluster.machines if self.settings.nodes else None
        used = self.cluster.used if self.settings.capacity else None
        pods = self.cluster.pods((namespace, name))
        return ClusterView(pods, machines, switches.paused, switches.recommend, used)

    def stop(self) -> None:
        self.ending.set()
        for pool in (self.deciding, self.reconciling):
            pool.shutdown(wait=True, cancel_futures=True)
        for controller in self.controllers.values():
            controller.end()
        self.client.close()

    @property
    def session(self) -> str:
        """The state of the ZooKeeper session, in the words of the metrics."""
        return session_of(self.client.state)

    def looks(self) -> list[Look]:
        """What was last seen of each topology."""
        found = (controller.seen for controller in list(self.controllers.values()))
        return [look for look in found if look is not None]

    def specs(self) -> dict[str, bool]:
        """Whether the newest spec of each topology (namespace/name) is refused."""
        return {
            controller.name: bool(controller.state.invalid) for controller in list(self.controllers.values())
        }

    def controller(self, body: Mapping[str, Any]) -> TopologyController:
        """The one of this object, made when it is not there."""
        meta = body["metadata"]
        found = self.controllers.get(meta["uid"])
        if found is None:
            key = meta["namespace"], meta["name"]
            self.wakers.setdefault(key, asyncio.Event())
            found = TopologyController(
                self.api, self.client, self.settings, body, lambda: self.wake(key), self.poll_rate, self.board
            )
            self.controllers[meta["uid"]] = found
        return found

    def wake(self, topology: Key) -> None:
        """Something has happened that concerns this topology; from any thread."""
        event, loop = self.wakers.get(topology), self.loop
        if event is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    def forget(self, uid: str, namespace: str, name: str) -> None:
        self.controllers.pop(uid, None)
        self.wakers.pop((namespace, name), None)
        self.board.forget(namespace, name)

    def switches(self) -> Switches:
        """The switches of the ConfigMap, read every few seconds; the last known ones while it cannot be read."""
        settings, now = self.settings, time.monotonic()
        if not settings.switches or now - self._switches_read < SWITCHES_S:
            return self._switches
        self._switches_read = now
        try:
            found = self.api.find(f"{collection(settings.namespace, 'configmaps')}/{settings.switches}") or {}
        except OperatorError as error:
            log.warning("event=switches-not-read reason=%r", str(error))
            return self._switches
        data = found.get("data") or {}
        self._switches = Switches(data.get("paused") == "true", data.get("recommend") == "true")
        return self._switches

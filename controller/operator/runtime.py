"""What all handlers of one operator process share: its connections, its controllers, its switches."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient

from controller.embedded.zk_client import make_client
from controller.metrics.control import Look
from controller.metrics.process import session_of
from controller.operator.api import Api, collection
from controller.operator.errors import OperatorError
from controller.operator.pace import Pace
from controller.operator.settings import OperatorSettings
from controller.operator.topology import TopologyController

log = logging.getLogger("reprise.operator")
DECIDING, FOLLOWING = 16, 6
"""Looks that may run at once.  Few follow, so that in a storm most of the interpreter's time goes to decisions."""
SWITCHES_S = 5.0


@dataclass(frozen=True, slots=True)
class Switches:
    """For all topologies at once."""

    paused: bool = False
    recommend: bool = False


@dataclass(slots=True)
class Runtime:
    """One operator process."""

    settings: OperatorSettings
    api: Api
    client: KazooClient
    deciding: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(DECIDING, "decide"))
    following: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(FOLLOWING, "follow"))
    pace: Pace = field(default_factory=Pace)
    controllers: dict[str, TopologyController] = field(default_factory=dict)
    """By uid."""
    wakers: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)
    """By namespace and name."""
    beat: float = field(default_factory=time.monotonic)
    """When the event loop was last seen to turn."""
    _switches: Switches = field(default_factory=Switches)
    _switches_read: float = 0.0

    @classmethod
    def start(cls, settings: OperatorSettings, api: Api) -> Runtime:
        """ZooKeeper is connected to in the background: an operator without it still looks after pods."""
        client = make_client(settings.zk, settings.session_s)
        client.start_async()
        return cls(settings, api, client)

    def stop(self) -> None:
        for pool in (self.deciding, self.following):
            pool.shutdown(wait=True, cancel_futures=True)
        for controller in self.controllers.values():
            controller.end()
        self.client.stop()
        self.client.close()

    @property
    def session(self) -> str:
        """Of ZooKeeper, in the words of the metrics."""
        return session_of(str(self.client.state))

    def looks(self) -> list[Look]:
        """What was last seen of each topology."""
        found = (controller.seen for controller in list(self.controllers.values()))
        return [look for look in found if look is not None]

    def controller(self, body: Mapping[str, Any]) -> TopologyController:
        """The one of this object, made when it is not there."""
        meta = body["metadata"]
        found = self.controllers.get(meta["uid"])
        if found is None:
            wake = self._waker(meta["namespace"], meta["name"])
            found = TopologyController(self.api, self.client, self.settings, body, wake, self.pace)
            self.controllers[meta["uid"]] = found
        return found

    def _waker(self, namespace: str, name: str) -> Any:
        loop = asyncio.get_running_loop()
        event = self.wakers.setdefault((namespace, name), asyncio.Event())

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        return wake

    def wake(self, namespace: str, name: str) -> None:
        """Something has happened to a pod of this topology."""
        if (event := self.wakers.get((namespace, name))) is not None:
            event.set()

    def forget(self, uid: str, namespace: str, name: str) -> None:
        self.controllers.pop(uid, None)
        self.wakers.pop((namespace, name), None)

    def switches(self) -> Switches:
        """From the ConfigMap, read every few seconds; the last known ones while it cannot be read."""
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

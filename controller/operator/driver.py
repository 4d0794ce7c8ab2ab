"""Keeps one driver pod alive for a topology: created when there is none, created anew when it has ended, moved when its
machine is gone, restarted when the spec asks for another one, but never in the middle of a recovery.

The pod has a fixed name, so the API server itself refuses a second one; and a driver that lives on where nobody sees
it finds out by the epoch in ZooKeeper that it was replaced.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.operator import manifests
from controller.operator.api import Api, collection
from controller.operator.errors import ConflictError
from controller.operator.events import Events
from controller.operator.pods import Machine, PodView
from controller.operator.settings import OperatorSettings
from spark_jobs.topology import StreamTopology

LONGEST_PAUSE_S = 60.0
STABLE_S = 120.0
"""A driver that has run for so long has not failed to start."""


@dataclass(slots=True)
class DriverKeeper:
    """Of one topology."""

    api: Api
    settings: OperatorSettings
    owner: Mapping[str, Any]
    events: Events
    problem: str = ""
    """Why there is no driver that works; empty when there is one."""
    _ends: int = 0
    _not_before: float = 0.0
    _created: float = field(default=0.0)
    _wanted: tuple[StreamTopology, str] | None = None

    def look(
        self,
        resource: StreamTopology,
        pod: PodView | None,
        machines: Mapping[str, Machine] | None,
        recovering: bool,
    ) -> None:
        """One step towards a driver of the right kind."""
        if pod is None:
            self._create(resource)
        elif pod.ended:
            self._ended(resource, pod)
        elif (why := _lost(pod, machines)) is not None:
            self._move(resource, pod, why)
        elif pod.deleted_at is not None:
            self.problem = "the driver is ending"
        elif pod.annotations.get(manifests.REVISION) != self._revision(resource):
            self._renew(resource, pod, recovering)
        else:
            self.problem = "" if pod.phase == "Running" else f"the driver's pod is {pod.phase}: {pod.reason}"

    def remove(self, resource_name: str, namespace: str) -> bool:
        """Delete the pod, and with it its executors; whether it is gone."""
        path = f"{collection(namespace, 'pods')}/{manifests.driver_name(resource_name)}"
        if self.api.find(path) is None:
            return True
        self.api.delete(path)
        return False

    def _revision(self, resource: StreamTopology) -> str:
        """Of the driver that is wanted; computed once for each spec."""
        if self._wanted is None or self._wanted[0] is not resource:
            self._wanted = resource, manifests.revision(resource, self.settings)
        return self._wanted[1]

    def _create(self, resource: StreamTopology) -> None:
        if (wait := self._not_before - time.monotonic()) > 0:
            self.problem = f"the driver has ended {self._ends} times; again in {wait:.0f} s"
            return
        settings, folder = self.settings, collection(resource.namespace, "configmaps")
        config = manifests.config_map(resource, settings, self.owner)
        self.api.apply(f"{folder}/{config['metadata']['name']}", config)
        prefix = f"{resource.name}-{secrets.token_hex(3)}"
        pod = manifests.driver_pod(resource, settings, self.owner, prefix)
        try:
            self.api.create(collection(resource.namespace, "pods"), pod)
        except ConflictError:  # the watch has not told us yet
            return
        self._created = time.monotonic()
        self._not_before = self._created + 2.0  # the watch tells of it before that, or we ask in vain
        self.problem = "the driver is starting"
        self.events.say("DriverCreated", f"pod {pod['metadata']['name']}, executors {prefix}-exec-*")

    def _ended(self, resource: StreamTopology, pod: PodView) -> None:
        if self._created and time.monotonic() - self._created > STABLE_S:
            self._ends = 0
        pause = min(LONGEST_PAUSE_S, 2.0**self._ends)
        self._ends += 1
        self._not_before = time.monotonic() + pause
        self.problem = f"the driver has ended: {pod.reason or pod.phase}"
        self.events.say("DriverEnded", f"{pod.reason or pod.phase}; a new one in {pause:.0f} s", warning=True)
        self._delete(resource, pod, grace_s=None)

    def _move(self, resource: StreamTopology, pod: PodView, why: str) -> None:
        self.problem = f"the driver is lost: {why}"
        self.events.say("DriverLost", why, warning=True)
        self._delete(resource, pod, grace_s=0)

    def _renew(self, resource: StreamTopology, pod: PodView, recovering: bool) -> None:
        if recovering:
            self.events.say(
                "SpecChangePostponed", "the driver is restarted with the new spec when the incident is closed"
            )
            return
        self.events.say("DriverRestarted", "the spec has changed")
        self._delete(resource, pod, grace_s=None)

    def _delete(self, resource: StreamTopology, pod: PodView, grace_s: int | None) -> None:
        path = f"{collection(resource.namespace, 'pods')}/{pod.name}"
        self.api.delete(path, uid=pod.uid, grace_s=grace_s)


def _lost(pod: PodView, machines: Mapping[str, Machine] | None) -> str | None:
    """A pod on a machine that is not reachable is lost when Kubernetes has given up on it as well: it marks such pods
    for deletion after the time that their tolerations give."""
    if machines is None or not pod.machine:
        return None
    machine = machines.get(pod.machine)
    if machine is None:
        return f"machine {pod.machine} is gone"
    if not machine.reachable and pod.deleted_at is not None:
        return f"machine {pod.machine} is not ready"
    return None

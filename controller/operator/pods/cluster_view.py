"""Pods and machines as the watches have told them, and who is woken when one changes.

Machines change every few seconds by their heartbeats, which are no news; what is (reachable or not, room or not) matters
to the topologies that have pods there.  Read from any thread, written by the watches' threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.pods.capacity import Load

Key = tuple[str, str]
"""Namespace and name of a topology."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one step sees besides the object itself."""

    pods: Mapping[str, PodView]
    """Of this topology, by name."""
    machines: Mapping[str, KubernetesNode] | None
    """None: Node objects may not be read."""
    paused: bool = False
    recommend: bool = False
    used: Mapping[str, int] | None = None
    """CPU promised to all pods of each machine, milli; None: they may not be read."""


@dataclass(slots=True)
class Cluster:
    """`wake` is called with each topology to which something has happened."""

    wake: Callable[[Key], None]
    machines: dict[str, KubernetesNode] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    """CPU promised to all pods of each machine, milli; filled by `load_changed` alone."""
    _pods: dict[Key, dict[str, PodView]] = field(default_factory=dict)
    _residents: dict[str, dict[str, Key]] = field(default_factory=dict)
    """Topology by pod, by machine."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pods(self, topology: Key) -> dict[str, PodView]:
        """The pods of a topology by name; a copy."""
        with self._lock:
            return dict(self._pods.get(topology, {}))

    def pod_changed(self, before: PodView | None, now: PodView | None) -> None:
        """One of them is None for a pod that is new or gone."""
        with self._lock:
            if before is not None:
                self._remove(before)
            if now is not None:
                self._add(now)
        touched = {(pod.namespace, pod.topology) for pod in (before, now) if pod is not None}
        for key in touched:
            self.wake(key)

    def machine_changed(self, before: KubernetesNode | None, now: KubernetesNode | None) -> None:
        if before is not None and (now is None or now.name != before.name):
            self.machines.pop(before.name, None)
        if now is not None:
            self.machines[now.name] = now
        if before is None:  # nobody has pods on it yet, or has looked at these before it was known
            return
        with self._lock:
            residents = set(self._residents.get(before.name, {}).values())
        for key in residents:
            self.wake(key)

    def load_changed(self, before: Load | None, now: Load | None) -> None:
        """Whosever pods these are: nobody is woken, the next look sees it."""
        for load, sign in ((before, -1), (now, 1)):
            if load is not None and load.machine:
                total = self.used.get(load.machine, 0) + sign * load.cpu_milli
                self.used[load.machine] = total
                if total <= 0:
                    del self.used[load.machine]

    def _add(self, pod: PodView) -> None:
        key = (pod.namespace, pod.topology)
        self._pods.setdefault(key, {})[pod.name] = pod
        if pod.machine:
            self._residents.setdefault(pod.machine, {})[pod.uid] = key

    def _remove(self, pod: PodView) -> None:
        key = (pod.namespace, pod.topology)
        mine = self._pods.get(key, {})
        if mine.get(pod.name) is not None and mine[pod.name].uid == pod.uid:  # else another one of that name
            del mine[pod.name]
            if not mine:
                self._pods.pop(key, None)
        there = self._residents.get(pod.machine, {})
        there.pop(pod.uid, None)
        if not there:
            self._residents.pop(pod.machine, None)

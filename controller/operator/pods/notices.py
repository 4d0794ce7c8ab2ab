"""Which executor pods are to be emptied: those that a person has named, and those whose machine will be taken away.

A machine that is cordoned, or has a taint or a condition by whoever takes machines away (an autoscaler, a handler of spot
interruptions), still works: what is on it moves while it does.  Some of these say how long that will be.  The time of a
taint counts from when this operator saw it first, so one that starts meanwhile counts anew; that of a condition from when
it became True, by its own word, and never from later than when it was seen.  What has not moved by the end is an ordinary
loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from reprise.controller.crd.convert import drained_by_hand
from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.scheduler.model import Leaving

CORDONED = "node.kubernetes.io/unschedulable"


@dataclass(slots=True)
class Notices:
    """Notices of one topology.  `taints`, `conditions`: key, or type -> seconds until such a machine is gone, None where
    nobody says."""

    taints: Mapping[str, float | None]
    conditions: Mapping[str, float | None] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each notice of a machine was seen first."""

    def of(
        self,
        annotations: Mapping[str, str],
        pods: Mapping[str, PodView],
        machines: Mapping[str, KubernetesNode] | None,
    ) -> dict[str, Leaving]:
        """Notices by the name of the pod; `pods`: executors by name; `machines` None: Node objects may not be read."""
        found = dict.fromkeys(drained_by_hand(annotations), Leaving("reprise drain"))
        seen: dict[tuple[str, str], float] = {}
        for pod in pods.values():
            if (machine := (machines or {}).get(pod.machine)) is None:
                continue
            for said, since, lasts in self._said_of(machine):
                key = (machine.name, said)
                first = seen.setdefault(key, self._since.get(key, self.clock()))
                by = None if lasts is None else min(first, first if since is None else since) + lasts
                before = found.get(pod.name)
                if before is None or (by is not None and (before.by is None or by < before.by)):
                    found[pod.name] = Leaving(f"Kubernetes node {machine.name}: {said}", by)
        self._since = seen
        return found

    def _said_of(self, machine: KubernetesNode) -> Iterator[tuple[str, float | None, float | None]]:
        """Each notice of a machine in words, in a fixed order, with since when it is there by its own word, and for how
        many seconds the machine stays from then on."""
        taints = {*machine.taints, *(() if machine.schedulable else (CORDONED,))}
        for key in sorted(taints & self.taints.keys()):
            yield key, None, self.taints[key]
        for kind in sorted(machine.conditions.keys() & self.conditions.keys()):
            yield f"condition {kind}", machine.conditions[kind], self.conditions[kind]

"""Which executor pods are to be emptied: those that a person has named, and those whose machine will be taken away.

A machine that is cordoned or tainted by whoever takes machines away (an autoscaler, a handler of spot interruptions) still
works: what is on it moves while it does.  Some of these taints say how long that will be.  The time counts from when this
operator saw the taint first; one that starts meanwhile counts anew, and what has not moved by the end is an ordinary loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reprise.controller.crd.convert import drained_by_hand
from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.scheduler.model import Leaving

CORDONED = "node.kubernetes.io/unschedulable"


@dataclass(slots=True)
class Notices:
    """Notices of one topology.  `taints`: key -> seconds until such a machine is gone, None where nobody says."""

    taints: Mapping[str, float | None]
    clock: Callable[[], float] = time.time
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a taint of a machine was seen first."""

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
            machine = (machines or {}).get(pod.machine)
            keys = () if machine is None else machine.taints
            if machine is not None and not machine.schedulable:
                keys = (*keys, CORDONED)
            for key in sorted({key for key in keys if key in self.taints}):
                since = seen.setdefault((pod.machine, key), self._since.get((pod.machine, key), self.clock()))
                lasts = self.taints[key]
                by = None if lasts is None else since + lasts
                before = found.get(pod.name)
                if before is None or (by is not None and (before.by is None or by < before.by)):
                    found[pod.name] = Leaving(f"machine {pod.machine}: {key}", by)
        self._since = seen
        return found

"""Keeps the capacity forecast of one topology: asks for Events only while pods wait for machines, and not at every look."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reprise.algorithms.cpu import milli_cpu
from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.errors import OperatorError
from reprise.controller.kubernetes.pods import PodView
from reprise.controller.operator.pods.capacity import (
    NOTHING_KNOWN,
    CapacityForecast,
    Demand,
    Said,
    expected_of,
    room_for,
    said_of,
)
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.spark_jobs.topology import StreamTopology

log = logging.getLogger("reprise.operator")
ASK_S = 15.0
"""Between two questions for Events; autoscalers repeat themselves about as often."""
_SELECTORS = ("spark.kubernetes.node.selector.", "spark.kubernetes.executor.node.selector.")


@dataclass(slots=True)
class CapacityForecaster:
    """The capacity forecast of one topology."""

    api: Api
    namespace: str
    forecast: CapacityForecast = NOTHING_KNOWN
    """Of the last look."""
    _asked: float = 0.0
    _said: Mapping[str, Said] = field(default_factory=dict)

    def look(self, resource: StreamTopology, view: ClusterView, here: frozenset[str]) -> None:
        """`here`: executor pods that have come, whatever became of them."""
        self.forecast = self._forecast(resource, view, here)

    def _forecast(
        self, resource: StreamTopology, view: ClusterView, here: frozenset[str]
    ) -> CapacityForecast:
        pods = [pod for pod in view.pods.values() if pod.role == "executor"]
        waiting = [pod for pod in pods if pod.name not in here and not pod.ended]
        if not waiting:
            return NOTHING_KNOWN
        room = None
        if view.machines is not None and view.used is not None and not _by_more_than_labels(resource):
            taken = frozenset(pod.machine for pod in pods if pod.machine and not pod.ended)
            room = room_for(demand_of(resource), list(view.machines.values()), view.used, taken)
        return CapacityForecast(room, expected_of(pods, here, self._heard(waiting), room, time.time()))

    def _heard(self, waiting: Iterable[PodView]) -> Mapping[str, Said]:
        """What autoscalers say; what was known stands while nobody answers."""
        if all(pod.machine for pod in waiting) or time.monotonic() - self._asked < ASK_S:
            return self._said
        self._asked = time.monotonic()
        try:
            found = self.api.list(
                collection(self.namespace, "events"), fieldSelector="involvedObject.kind=Pod"
            )
            self._said = said_of(found)
        except OperatorError as error:
            log.warning("event=events-not-read namespace=%s reason=%r", self.namespace, str(error))
        return self._said


def _by_more_than_labels(resource: StreamTopology) -> bool:
    """Whether an affinity or a spread keeps executors off machines: how many these take is not reckoned here."""
    executor = resource.kubernetes.executor
    required = "requiredDuringSchedulingIgnoredDuringExecution" in executor.affinity.get("nodeAffinity", {})
    return required or any(c["whenUnsatisfiable"] == "DoNotSchedule" for c in executor.spread_constraints)


def demand_of(resource: StreamTopology) -> Demand:
    """The requests of one executor: what the topology says, and what its Spark settings say on top."""
    kubernetes = resource.kubernetes
    tolerated = frozenset(t.key or "*" for t in kubernetes.executor.tolerations)
    labels = dict(kubernetes.executor.node_selector)
    for prefix in _SELECTORS:
        labels |= {k.removeprefix(prefix): v for k, v in resource.spark.conf.items() if k.startswith(prefix)}
    return Demand(milli_cpu(resource.nodes.cpu_cores), labels, tolerated, kubernetes.spread == "required")

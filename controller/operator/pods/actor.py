"""What follows from a decision for the pods of a topology: lost executors end, and the driver is looked after.  Whether
waiting for nodes will help is found out here, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprise.controller.kubernetes.api import Api
from reprise.controller.kubernetes.events import Events
from reprise.controller.kubernetes.pods import PodView
from reprise.controller.operator.pods.capacity_forecaster import CapacityForecaster
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.controller.operator.pods.driver import DriverKeeper
from reprise.controller.operator.pods.executors import evict_lost
from reprise.controller.operator.pods.manifests import driver_name
from reprise.controller.operator.pods.witness import PodVerdicts
from reprise.controller.operator.records import Records
from reprise.spark_jobs.topology import StreamTopology


def executors_of(pods: Mapping[str, PodView]) -> dict[str, PodView]:
    """The executors among the pods of a topology, by name."""
    return {name: pod for name, pod in pods.items() if pod.role == "executor"}


@dataclass(slots=True)
class Actor:
    """Acts on the pods of one topology."""

    api: Api
    events: Events
    records: Records
    driver: DriverKeeper
    forecaster: CapacityForecaster

    def act(
        self,
        resource: StreamTopology,
        cluster: ClusterView,
        findings: PodVerdicts,
        recovering: bool,
    ) -> None:
        """The forecast of the look before stands while ZooKeeper is away.  Raises OperatorError and CoordinationError, with
        nothing half-done that the next look would not go on with."""
        executors = executors_of(cluster.pods)
        evict_lost(self.api, self.events, executors, findings)
        if self.records.connected:
            self.forecaster.look(resource, cluster, findings.here)
        self.driver.pods_wait = any(pod.phase == "Pending" for pod in executors.values())
        driver = cluster.pods.get(driver_name(resource.name))
        self.driver.look(resource, driver, cluster.machines, recovering, self.records.last)

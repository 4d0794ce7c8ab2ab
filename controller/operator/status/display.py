"""Shows one topology: on the web page what was observed, on Kubernetes the status, Events, Incidents and RecoveryPlans."""

from __future__ import annotations

from dataclasses import dataclass

from reprise.controller.operator.status.reporter import StatusReporter
from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.web import Board
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import StreamTopology


@dataclass(slots=True)
class TopologyDisplay:
    """`board`: where the web page finds what was seen; None where there is no page."""

    reporter: StatusReporter
    board: Board | None = None

    def page(self, resource: StreamTopology, seen: Observation) -> None:
        """An assignment, so it is done at each look."""
        if self.board is not None:
            self.board.show(resource.namespace, resource.name, resource, seen)

    def refused(self, namespace: str, name: str, why: str) -> None:
        """Its newest spec is not taken, or is (`why` is empty)."""
        if self.board is not None:
            self.board.refuse(namespace, name, why)

    def tell(self, state: TopologyState) -> None:
        """Write what is new to the API server, as far as there are writes to spare."""
        self.reporter.tell(state)

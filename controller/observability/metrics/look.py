"""What the metrics of one topology are made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from reprise.algorithms.cpu import milli_cpu
from reprise.controller.observability.metrics.totals import Totals
from reprise.controller.status.query_state import RunState
from reprise.scheduler.model import Policy, TopologyView
from reprise.spark_jobs.topology import StreamTopology


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of one topology."""

    resource: StreamTopology
    topology: TopologyView
    state: RunState
    since: float
    """Unix seconds: when this process saw the topology for the first time."""
    totals: Totals = field(default_factory=Totals)
    """What this process has counted since."""

    @property
    def policy(self) -> Policy:
        """What plans make of a node's CPU."""
        nodes, recovery = self.resource.nodes, self.resource.recovery
        return Policy(cpu_cap=recovery.cpu_cap, node_cpu_milli=milli_cpu(nodes.cpu_cores))

    @property
    def name(self) -> str:
        """The value of the label `topology`."""
        return f"{self.resource.namespace}/{self.resource.name}"

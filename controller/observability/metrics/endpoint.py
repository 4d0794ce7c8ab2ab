"""The controller's endpoint: of the operator with all its topologies, or of a run with its one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from reprise.controller.observability.metrics import catalogue
from reprise.controller.observability.metrics.collect import serve
from reprise.controller.observability.metrics.control import topology_samples
from reprise.controller.observability.metrics.look import Look
from reprise.controller.observability.metrics.metric import Sample
from reprise.controller.observability.metrics.process import own_samples, registry_of
from reprise.controller.observability.metrics.totals import Totals
from reprise.controller.status.query_state import RunState
from reprise.controller.topology_view import view_of
from reprise.scheduler.model import TopologyView
from reprise.spark_jobs.topology import StreamTopology


def controller_registry(
    component: str,
    looks: Callable[[], Iterable[Look]],
    session: Callable[[], str],
    refused: Callable[[], Mapping[str, int]] = dict,
    leading: Callable[[], bool] = lambda: True,
    specs: Callable[[], Mapping[str, bool]] = dict,
) -> CollectorRegistry:
    """`session`: one of the catalogue's SESSIONS.  `refused`: failed requests to the API server, by reason.
    `specs`: of each topology (namespace/name) whether its newest spec is refused.
    One that does not lead has no session yet, and nothing to say of topologies."""

    def samples() -> Iterator[Sample]:
        now = time.time()
        yield from own_samples(component, session() if leading() else None)
        yield Sample("reprise_leader", {"component": component}, leading())
        counts = refused()
        for reason in catalogue.REFUSALS:
            yield Sample("reprise_api_errors_total", {"reason": reason}, counts.get(reason, 0))
        for topology, is_refused in specs().items():
            yield Sample("reprise_spec_refused", {"topology": topology}, is_refused)
        for look in looks():
            yield from topology_samples(look, now)

    return registry_of(samples)


@dataclass(slots=True)
class RunMetrics:
    """The metrics of `reprise run`: it is shown the run's state several times a second, and answers with the last one."""

    resource: StreamTopology
    since: float = field(default_factory=time.time)
    _seen: tuple[StreamTopology, TopologyView, RunState] | None = None
    """The last state with the topology that it is of; one value, as another thread reads it."""
    _topology: TopologyView = field(init=False)
    _totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        self._topology = view_of(self.resource)

    def watch(self, state: RunState) -> None:
        self._seen = self.resource, self._topology, state

    def follow(self, resource: StreamTopology) -> None:
        """The states to come are of this topology."""
        self.resource, self._topology = resource, view_of(resource)

    def looks(self) -> list[Look]:
        if (seen := self._seen) is None:
            return []
        resource, topology, state = seen
        return [Look(resource, topology, state, self.since, self._totals)]

    def specs(self) -> dict[str, bool]:
        """A run whose topology is refused never begins."""
        return {f"{self.resource.namespace}/{self.resource.name}": False}

    @property
    def session(self) -> str:
        """A run does not give up: it is connected, or waits for ZooKeeper to come back."""
        return "connected" if self._seen is not None and self._seen[2].observation.connected else "suspended"

    @contextlib.contextmanager
    def served(self, port: int) -> Iterator[None]:
        """Serve at `port` of 127.0.0.1; nowhere for 0.  Raises ServeError."""
        end = None
        if port:
            end = serve(
                "127.0.0.1",
                port,
                controller_registry("run", self.looks, lambda: self.session, specs=self.specs),
            )
        try:
            yield
        finally:
            if end is not None:
                end()

"""What every process says of itself: its version and its ZooKeeper session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

from reprise.controller.observability.metrics import catalogue
from reprise.controller.observability.metrics.collect import SampleCollector
from reprise.controller.observability.metrics.metric import Sample
from reprise.spark_jobs.version import product


def own_samples(component: str, session: str | None) -> Iterator[Sample]:
    """`session`: one of the catalogue's SESSIONS; None for a process that keeps none."""
    yield Sample("reprise_build_info", {"version": product(), "component": component}, 1)
    for state in catalogue.SESSIONS if session is not None else ():
        yield Sample("reprise_zookeeper_session", {"component": component, "state": state}, state == session)


def registry_of(samples: Callable[[], Iterable[Sample]]) -> CollectorRegistry:
    """The registry of these samples, with the process' own CPU, memory and garbage collection beside them."""
    registry = CollectorRegistry()
    registry.register(SampleCollector(samples))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def session_of(state: str) -> str:
    """The state of a session with ZooKeeper as the catalogue has it."""
    return {"CONNECTED": "connected", "SUSPENDED": "suspended"}.get(state, "lost")

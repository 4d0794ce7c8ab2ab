"""The driver's metrics: the data plane's figures, which only this process has.

Histograms are fed on the driver's own thread after each job, a few additions a job; everything else is read from the engine
when somebody scrapes.  The engine's dictionaries are copied first, as jobs go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Histogram

from reprise.controller.observability.metrics import catalogue
from reprise.controller.observability.metrics.collect import histogram
from reprise.controller.observability.metrics.metric import Sample
from reprise.controller.observability.metrics.process import own_samples, registry_of
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.figures import JobTimes
from reprise.spark_jobs.topology import Topology


@dataclass(slots=True)
class DriverMetrics:
    """The metrics of one driver process.  `session`: one of the catalogue's SESSIONS."""

    engine: Engine
    session: Callable[[], str]
    registry: CollectorRegistry = field(init=False)
    _name: str = field(init=False)
    _latency: Histogram = field(init=False)
    _steps: Histogram = field(init=False)
    _query_label: dict[str, str] = field(init=False)
    _written: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        resource = self.engine.resource
        self._name = f"{resource.namespace}/{resource.name}"
        self.registry = registry_of(self._samples)
        self._latency = histogram("reprise_latency_seconds", self.registry)
        self._steps = histogram("reprise_superstep_seconds", self.registry)
        self._query_label = query_labels(self.engine.topology)

    def take(self, written: Iterable[tuple[str, int, float, float]]) -> None:
        """After a job.  `written`: query, batch, when it was written and when it was due, unix seconds.  What is written
        again after a rollback is no news: its reader has had it."""
        while self.engine.figures.jobs:
            self._observe(self.engine.figures.jobs.popleft())
        for query, batch, at, due in written:
            if batch > self._written.get(query, 0):
                self._written[query] = batch
                self._latency.labels(self._name, self._query_label[query]).observe(max(0.0, at - due))

    def _observe(self, job: JobTimes) -> None:
        times = (job.prepare_s, job.compute_s, job.exchange_s, job.settle_s)
        for step, seconds in zip(catalogue.STEPS, times, strict=True):
            self._steps.labels(self._name, step).observe(seconds)

    def _samples(self) -> Iterator[Sample]:
        yield from own_samples("driver", self.session())
        for name, value in self._values():
            yield Sample(name, {"topology": self._name}, value)
        buffers = list(self.engine.buffers.values())
        for index, medium in enumerate(("memory", "disk")):
            labels = {"topology": self._name, "medium": medium}
            yield Sample("reprise_buffer_bytes", labels, sum(node[index] for node in buffers))
            limited = sum(node.state_disk if medium == "disk" else node.state_memory for node in buffers)
            yield Sample("reprise_limited_state_bytes", labels, limited)
        figures = self.engine.figures
        for origin, states in (("node", figures.states_here), ("store", figures.states_there)):
            yield Sample("reprise_restored_states_total", {"topology": self._name, "origin": origin}, states)
        lines = self.engine.lines
        for cause, count in (("local", lines.taken - lines.forced), ("forced", lines.forced)):
            yield Sample("reprise_snapshots_total", {"topology": self._name, "cause": cause}, count)
        for operator, counted in self.engine.progress.counters.items():
            for counter, value in counted.items():
                labels = {"topology": self._name, "operator": operator, "counter": counter}
                yield Sample("reprise_operator_counters", labels, value)

    def _values(self) -> Iterator[tuple[str, float]]:
        engine, figures = self.engine, self.engine.figures
        policy = engine.resource.recovery
        limit = policy.buffer_memory_bytes + policy.buffer_disk_bytes
        fullest = max((held.memory + held.disk for held in list(engine.buffers.values())), default=0)
        yield "reprise_buffer_fill_ratio", fullest / limit if limit else float(fullest > 0)
        yield "reprise_spilled_bytes_total", figures.spilled_bytes
        yield "reprise_restore_bytes_total", figures.restore_bytes
        yield "reprise_restore_seconds_total", figures.restore_s
        yield "reprise_restored_partitions_total", figures.restored
        yield "reprise_message_header_bytes_total", figures.header_bytes
        yield "reprise_message_bytes_total", figures.message_bytes
        yield "reprise_standby_bytes_total", figures.standby_bytes
        yield "reprise_acknowledgement_bytes_total", figures.acknowledgement_bytes
        yield "reprise_snapshot_bytes_total", engine.lines.bytes_taken
        yield "reprise_snapshots_skipped_total", engine.lines.skipped
        yield "reprise_snapshot_files_total", figures.files_stored
        yield "reprise_snapshot_pause_seconds_total", figures.pause_s
        yield "reprise_snapshot_store_seconds_total", figures.store_s
        yield "reprise_footprints_total", engine.lines.footprints
        yield "reprise_replay_bytes_total", figures.replay_bytes
        yield "reprise_replay_seconds_total", figures.replay_s
        yield "reprise_failed_jobs_total", figures.failed_jobs
        yield "reprise_state_bytes", sum(list(engine.state_bytes.values()))


def query_labels(topology: Topology) -> dict[str, str]:
    """The label value of each query: its own for the most valuable, `other` for the rest."""
    ranked = sorted(topology.queries.values(), key=lambda query: (-query.priority, query.id))
    named = {query.id for query in ranked[: catalogue.QUERY_LABELS]}
    return {query: query if query in named else "other" for query in topology.queries}

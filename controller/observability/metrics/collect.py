"""Gives samples to prometheus-client: one collector that asks for values when somebody scrapes, and at no other time.

Why not instruments that the code counts up as it goes: nearly everything that is worth a metric is in the records already,
which are immutable and survive a restart; what is derived from them costs nothing between two scrapes and cannot say
something else than the records do.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from reprise.controller.observability.metrics.catalogue import BY_NAME
from reprise.controller.observability.metrics.errors import CatalogueError, ServeError
from reprise.controller.observability.metrics.metric import Kind, Metric, Sample

log = logging.getLogger("reprise.metrics")
Source = Callable[[], Iterable[Sample]]


class SampleCollector(Collector):
    """Serves what `source` says at each scrape.  A source that fails serves nothing and says why in the log: an endpoint
    that answers without a value is seen by alerts, one that breaks the process is worse than none."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def describe(self) -> Iterator[Family]:
        """Nothing beforehand: registering must not ask the source, which may not be ready."""
        return iter(())

    def collect(self) -> Iterator[Family]:
        found: dict[str, list[Sample]] = {}
        try:
            for sample in self._source():
                found.setdefault(sample.metric, []).append(sample)
            families = [_family(_metric(name), samples) for name, samples in found.items()]
        except Exception:
            log.exception("event=not-collected")
            return
        yield from families


def histogram(name: str, registry: CollectorRegistry) -> Histogram:
    """An instrument for what happens too often to be kept and asked for."""
    metric = _metric(name)
    return Histogram(name, metric.help, metric.label_names, buckets=metric.buckets, registry=registry)


def serve(host: str, port: int, registry: CollectorRegistry) -> Callable[[], None]:
    """Answer scrapers at `host`:`port` in a thread; returns what ends it.  Raises ServeError."""
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise ServeError(f"metrics cannot be served at {host}:{port}: {error.strerror}") from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


def _metric(name: str) -> Metric:
    if name not in BY_NAME:
        raise CatalogueError(f"{name} is not in the catalogue")
    return BY_NAME[name]


def _family(metric: Metric, samples: list[Sample]) -> Family:
    rows = [(_values(metric, sample), sample) for sample in samples]
    if metric.kind is Kind.HISTOGRAM:
        spread = HistogramMetricFamily(metric.name, metric.help, labels=metric.label_names)
        for values, sample in rows:
            spread.add_metric(values, _buckets(metric, sample.observations), sum(sample.observations))
        return spread
    make = GaugeMetricFamily if metric.kind is Kind.GAUGE else CounterMetricFamily
    family = make(metric.name, metric.help, labels=metric.label_names)
    for values, sample in rows:
        family.add_metric(values, sample.value)
    return family


def _values(metric: Metric, sample: Sample) -> list[str]:
    if set(sample.labels) != set(metric.label_names):
        raise CatalogueError(f"{metric.name}: has labels {metric.label_names}, not {tuple(sample.labels)}")
    for label in metric.labels:
        if not label.allows(sample.labels[label.name]):
            raise CatalogueError(f"{metric.name}: {label.name} cannot be {sample.labels[label.name]!r}")
    return [sample.labels[name] for name in metric.label_names]


def _buckets(metric: Metric, observations: Iterable[float]) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus wants them; a value on a bound belongs below it."""
    counts = [0.0] * (len(metric.buckets) + 1)
    for value in observations:
        counts[bisect_left(metric.buckets, value)] += 1
    bounds = [*(str(float(bound)) for bound in metric.buckets), "+Inf"]
    return list(zip(bounds, accumulate(counts), strict=True))

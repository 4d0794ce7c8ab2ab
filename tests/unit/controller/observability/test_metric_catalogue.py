"""The catalogue keeps its own rules, and nothing outside of it can be served."""

from __future__ import annotations

import re
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from reprise.controller.local.cluster.addresses import free_port
from reprise.controller.observability.metrics.catalogue import BY_NAME, METRICS, priority_class
from reprise.controller.observability.metrics.collect import SampleCollector, serve
from reprise.controller.observability.metrics.errors import CatalogueError, ServeError
from reprise.controller.observability.metrics.metric import PREFIX, Kind, Metric, Sample
from tests.support.ports import own_host
from tools.metrics_reference import reference

BASE_UNITS = {"": "", "seconds": "_seconds", "bytes": "_bytes", "cores": "_cores"}


def exposition(samples: list[Sample]) -> str:
    registry = CollectorRegistry()
    registry.register(SampleCollector(lambda: samples))
    return generate_latest(registry).decode()


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_names_units_and_labels_keep_to_the_rules(metric: Metric) -> None:
    stem = metric.name.removesuffix("_total")
    assert re.fullmatch(rf"{PREFIX}[a-z]+(_[a-z]+)*", metric.name)
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert stem.endswith(BASE_UNITS[metric.unit])
    assert metric.help and metric.places
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(metric.buckets)
    assert all(bool(label.values) != bool(label.bound) for label in metric.labels)
    assert not {"partition", "node", "namespace", "pod", "instance"} & set(metric.label_names)


def test_every_metric_is_on_the_page_once_for_each_place() -> None:
    page = reference()
    for metric in METRICS:
        assert page.count(f"| `{metric.name}` |") == len(metric.places)
    assert len(BY_NAME) == len(METRICS)


def test_samples_become_what_prometheus_reads() -> None:
    spread = Sample("reprise_planning_seconds", {"topology": "a/b"}, observations=(0.001, 0.002, 50.0))
    text = exposition([spread, Sample("reprise_nodes_wanted", {"topology": "a/b"}, 4)])
    found = {
        (s.name, s.labels.get("le", "")): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert found["reprise_nodes_wanted", ""] == 4
    assert found["reprise_planning_seconds_bucket", "0.001"] == 1  # a value on the bound is below it
    assert found["reprise_planning_seconds_bucket", "0.003"] == 2
    assert found["reprise_planning_seconds_bucket", "10.0"] == 2
    assert found["reprise_planning_seconds_bucket", "+Inf"] == 3
    assert found["reprise_planning_seconds_sum", ""] == pytest.approx(50.003)


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (Sample("reprise_unheard_of", {}), "not in the catalogue"),
        (Sample("reprise_nodes_wanted", {}), "has labels"),
        (Sample("reprise_nodes_wanted", {"topology": "t", "node": "n1"}), "has labels"),
        (Sample("reprise_nodes", {"topology": "t", "state": "asleep"}), "cannot be 'asleep'"),
    ],
)
def test_what_the_catalogue_does_not_know_is_not_served_and_is_logged(
    sample: Sample, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert exposition([sample]) == ""
    error = caplog.records[-1].exc_info
    assert error is not None and isinstance(error[1], CatalogueError)
    assert reason in str(error[1])


def test_the_endpoint_answers_and_a_port_that_is_taken_is_named() -> None:
    with own_host() as host:
        answers(host, free_port(host))


def answers(host: str, port: int) -> None:
    registry = CollectorRegistry()
    registry.register(SampleCollector(lambda: [Sample("reprise_nodes_wanted", {"topology": "a/b"}, 4)]))
    end = serve(host, port, registry)
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics") as answer:
            assert b'reprise_nodes_wanted{topology="a/b"} 4.0' in answer.read()
        with pytest.raises(ServeError, match=f"{host}:{port}"):
            serve(host, port, registry)
    finally:
        end()


@pytest.mark.parametrize(
    ("priority", "name"), [(10, "high"), (8, "high"), (7, "medium"), (4, "medium"), (1, "low")]
)
def test_priority_classes(priority: int, name: str) -> None:
    assert priority_class(priority) == name

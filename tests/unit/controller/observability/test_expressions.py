"""Alerts and dashboards ask for what there is: a label or a value that no metric has would match nothing, for ever, in
silence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from reprise.controller.observability.alerts import ALERTS
from reprise.controller.observability.metrics.catalogue import METRICS
from reprise.controller.observability.metrics.collect import SampleCollector
from reprise.controller.observability.metrics.metric import Sample

ROOT = Path(__file__).parents[4]
SERIES = {series: metric for metric in METRICS for series in metric.series}
SELECTED = re.compile(r"\b(reprise_[a-z_]+)\s*(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
ADDED = {"namespace", "pod", "job", "instance", "container", "service", "le"}
"""By who scrapes, or by Prometheus itself."""


def expressions(node: Any) -> Iterator[str]:
    """Of a dashboard."""
    if isinstance(node, dict):
        yield from (
            value for key, value in node.items() if key in ("expr", "query") and isinstance(value, str)
        )
        for value in node.values():
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


ASKED = [(alert.name, alert.expr) for alert in ALERTS]
for path in sorted((ROOT / "charts/reprise/dashboards").glob("*.json")):
    ASKED += [(path.stem, text) for text in expressions(json.loads(path.read_text())) if "reprise_" in text]


def unknown(text: str) -> Iterator[str]:
    for name, matchers in SELECTED.findall(text):
        if name not in SERIES:
            yield name
            continue
        labels = {label.name: label for label in SERIES[name].labels}
        for label, how, value in MATCHER.findall(matchers):
            if label not in labels and label not in ADDED:
                yield f"{name} has no label {label}"
            elif label in labels and "$" not in value and value:
                words = value.split("|") if how in ("=~", "!~") else [value]
                yield from (
                    f"{name}: {label} is never {w}"
                    for w in words
                    if not labels[label].allows(w) and ".*" not in w
                )


@pytest.mark.parametrize(("where", "text"), ASKED, ids=[f"{k}-{where}" for k, (where, _) in enumerate(ASKED)])
def test_every_metric_label_and_value_that_is_asked_for_exists(where: str, text: str) -> None:
    assert list(unknown(text)) == [], where


@pytest.mark.parametrize(("where", "text"), ASKED, ids=[f"{k}-{where}" for k, (where, _) in enumerate(ASKED)])
def test_what_is_grouped_by_is_a_label_of_something_in_it(where: str, text: str) -> None:
    known = {label for name, _ in SELECTED.findall(text) for label in SERIES[name].label_names} | ADDED
    for words in re.findall(r"\b(?:by|on|group_left|group_right|ignoring|without)\s*\(([^)]*)\)", text):
        assert {word.strip() for word in words.split(",") if word.strip()} <= known, where


def test_the_check_sees_what_is_wrong() -> None:
    assert list(unknown('reprise_nodes{state="asleep"}')) == ["reprise_nodes: state is never asleep"]
    assert list(unknown('reprise_nodes{colour="red"}')) == ["reprise_nodes has no label colour"]
    assert list(unknown("reprise_nodez > 1")) == ["reprise_nodez"]
    assert list(unknown('reprise_nodes{state=~"ready|asleep"}')) == ["reprise_nodes: state is never asleep"]
    assert len(ASKED) > 30


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a{b}", "ä/b", 'x"} 7\nreprise_leader 1'])
def test_a_label_of_any_text_reads_back_as_it_was(name: str) -> None:
    registry = CollectorRegistry()
    registry.register(SampleCollector(lambda: [Sample("reprise_nodes_wanted", {"topology": name}, 4)]))
    (family,) = text_string_to_metric_families(generate_latest(registry).decode())
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"topology": name}, 4)

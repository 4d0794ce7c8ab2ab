"""Dashboards against Grafana's own models, and against the metrics that there are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from reprise.controller.observability.dashboards import DASHBOARDS, files
from reprise.controller.observability.metrics.catalogue import METRICS

FILES = files()
EMPTY: tuple[Any, ...] = ({}, [], None)
register_default_plugins()


def lost(ours: Any, theirs: Any, path: str = "$") -> list[str]:
    """What is in a file and not in what Grafana's models make of it: fields that they do not know."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [p for key, value in ours.items() for p in lost(value, theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [p for i, (one, other) in pairs for p in lost(one, other, f"{path}[{i}]")]
    return [] if ours == theirs or (ours in EMPTY and theirs in EMPTY) else [path]


def expressions(text: str) -> list[str]:
    dashboard = json.loads(text)
    return [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]] + [
        a["expr"] for a in dashboard["annotations"]["list"]
    ]


@pytest.mark.parametrize("name", FILES)
def test_grafana_s_models_know_every_field(name: str) -> None:
    ours = json.loads(FILES[name])
    theirs = json.loads(json.dumps(Dashboard.from_json(ours), cls=JSONEncoder))
    assert lost(ours, theirs) == []


@pytest.mark.parametrize("name", FILES)
def test_the_layout_has_no_overlap_and_ids_are_unique(name: str) -> None:
    panels = json.loads(FILES[name])["panels"]
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        mine = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not mine & cells
        assert all(x < 24 for x, _ in mine)
        cells |= mine
        assert panel["title"] and panel["description"] and panel["targets"]
        assert panel["datasource"]["uid"] == "${datasource}"
    assert len({p["id"] for p in panels}) == len({p["title"] for p in panels}) == len(panels)


def test_uids_never_change_and_every_metric_but_a_few_is_shown() -> None:
    assert [d.uid for d in DASHBOARDS] == ["reprise-overview", "reprise-incident", "reprise-data-plane"]
    shown = {
        s for text in FILES.values() for e in expressions(text) for s in re.findall(r"\breprise_[a-z_]+", e)
    }
    assert shown <= {series for metric in METRICS for series in metric.series}
    unseen = {m.name for m in METRICS if not set(m.series) & shown}
    # the first is a constant, the others stand behind alerts or are counted over months
    assert unseen == {
        "reprise_nodes_wanted", "reprise_coordinator_present", "reprise_plan_infeasible", "reprise_incidents_total",
        "reprise_jobs_failing",
    }  # fmt: skip

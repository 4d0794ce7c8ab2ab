"""Makes of panels as data a dashboard as Grafana reads it.

Every dashboard has a stable uid, so that links and bookmarks outlive an upgrade, and takes its data source and topology from
variables, so that the same file serves every Grafana.  Field names are those of Grafana's published dashboard schema; a test
reads the files with Grafana's own models.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 39
WIDTH = 24
"""Columns of Grafana's grid."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TOPOLOGY = 'topology=~"$topology"'
"""Selector for the chosen topologies."""
_GREEN, _RED = "green", "red"


@dataclass(frozen=True, slots=True)
class Query:
    """`legend`: with labels in double braces."""

    expr: str
    legend: str = "{{topology}}"


@dataclass(frozen=True, slots=True)
class Panel:
    """`kind`: stat | timeseries | state-timeline.  `bad`: the value from which it is red; below it for `low_is_bad`."""

    title: str
    text: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    bad: float | None = None
    low_is_bad: bool = False
    stacked: bool = False

    @property
    def height(self) -> int:
        return 4 if self.kind == "stat" else 8


@dataclass(frozen=True, slots=True)
class Dashboard:
    """`uid` never changes."""

    uid: str
    title: str
    text: str
    panels: tuple[Panel, ...]


def to_json(dashboard: Dashboard, others: Sequence[Dashboard]) -> str:
    """The file; `others` are linked to."""
    links = [_link(other) for other in others if other.uid != dashboard.uid]
    body = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["reprise"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": links,
        "templating": {"list": [_source_variable(), _topology_variable()]},
        "annotations": {"list": [_annotation()]},
        "panels": list(_panels(dashboard.panels)),
    }
    return json.dumps(body, indent=2) + "\n"


def _panels(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Left to right, row by row; a row is as high as its highest panel."""
    x = y = row = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y, row = 0, y + row, 0
        yield _panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": panel.height})
        x, row = x + panel.width, max(row, panel.height)


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": _thresholds(panel)}
    if panel.kind == "stat":
        defaults["color"] = {"mode": "thresholds"}
    if panel.kind == "timeseries":
        style = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
        stacking = {"mode": "normal", "group": "A"} if panel.stacked else {"mode": "none"}
        defaults["custom"] = {**style, "stacking": stacking}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [_target(query, letter) for query, letter in zip(panel.queries, "ABCDEF", strict=False)],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "textMode": "auto",
        "orientation": "auto",
    },
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "state-timeline": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none"},
        "showValue": "never",
        "rowHeight": 0.9,
        "mergeValues": True,
    },
}


def _thresholds(panel: Panel) -> dict[str, Any]:
    if panel.bad is None:
        return {"mode": "absolute", "steps": [{"color": _GREEN, "value": None}]}
    first, second = (_RED, _GREEN) if panel.low_is_bad else (_GREEN, _RED)
    return {
        "mode": "absolute",
        "steps": [{"color": first, "value": None}, {"color": second, "value": panel.bad}],
    }


def _target(query: Query, letter: str) -> dict[str, Any]:
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "range": True,
        "instant": False,
        "editorMode": "code",
    }


def _source_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
    }


def _topology_variable() -> dict[str, Any]:
    return {
        "name": "topology",
        "label": "Topology",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(reprise_nodes_wanted, topology)", "refId": "topology"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
    }


def _annotation() -> dict[str, Any]:
    """The time in which a correlated failure is open, behind every graph."""
    return {
        "name": "Correlated failure",
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "datasource": SOURCE,
        "expr": f'reprise_incident_open{{kind="correlated", {TOPOLOGY}}} == 1',
    }


def _link(other: Dashboard) -> dict[str, Any]:
    return {
        "title": other.title,
        "type": "link",
        "icon": "dashboard",
        "tooltip": other.text,
        "url": f"/d/{other.uid}",
        "tags": [],
        "asDropdown": False,
        "targetBlank": False,
        "includeVars": True,
        "keepTime": True,
    }

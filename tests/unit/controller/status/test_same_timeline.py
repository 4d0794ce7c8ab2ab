"""An incident is told once: the document, a run's report, a post-mortem and the logs have the same lines and times."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace

from reprise.controller import logs
from reprise.controller.analysis.from_logs import incidents_in
from reprise.controller.analysis.postmortem.markdown import markdown
from reprise.controller.analysis.postmortem.story import make_story
from reprise.controller.coordinator.incident_log import log_changes
from reprise.controller.status import document
from reprise.controller.status.timeline import incident_entry, timeline
from reprise.scheduler import Incident, PlanRecord
from reprise.scheduler.node_start import NodeStart, StartPhase
from tests.support import oncall

SEEN = oncall.after_the_burst()


def the_incident() -> tuple[Incident, list[PlanRecord]]:
    (incident,) = SEEN.incidents
    return incident, SEEN.plans_of(incident)


def logged(incident: Incident, plans: list[PlanRecord]) -> list[tuple[float, str, str]]:
    logger, stream = logging.getLogger("reprise.coordinator"), io.StringIO()
    handler, level = logging.StreamHandler(stream), logger.level
    handler.setFormatter(logs.JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        log_changes(None, incident, plans)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return incidents_in(stream.getvalue().splitlines())[incident.id]


def test_the_lines_of_an_incident_are_the_same_wherever_they_are_read() -> None:
    incident, plans = the_incident()
    view = document(oncall.TOPOLOGY, SEEN).incident or document(oncall.TOPOLOGY, SEEN).last_incident
    assert view is not None
    lines = [(e.time, e.name, e.detail) for e in view.events]
    assert any(name == "plan" for _, name, _ in lines)
    assert [
        (line["time"], line["what"], line["detail"]) for line in timeline([], [incident], plans, 0.0)
    ] == lines
    assert logged(incident, plans) == lines
    page = markdown(make_story(oncall.TOPOLOGY, incident, plans, SEEN.time), None, [])
    rows = [f"| {at - incident.opened_at:.2f} s | {name} |" for at, name, _ in lines]
    told = page[page.index("## Time line") :]
    assert [told.index(row) for row in rows] == sorted(told.index(row) for row in rows)


def test_how_long_a_query_was_down_is_the_same_wherever_it_is_said() -> None:
    """Also of a query that is not back yet, and of one that was back in between."""
    incident, plans = the_incident()
    first, second, *_ = incident.queries
    times = dict(incident.queries)
    times[first] = replace(times[first], caught_up_at=None, up_s=1.5, relapses=1)
    incident = replace(incident, queries=times, closed_at=None)
    seen = replace(SEEN, incident=incident, closed={})
    view = document(oncall.TOPOLOGY, seen).incident
    assert view is not None
    story = make_story(oncall.TOPOLOGY, incident, plans, seen.time)
    assert story.downtimes == view.queries
    priorities = {query.id: query.priority for query in oncall.TOPOLOGY.queries.values()}
    entry = incident_entry(incident, {}, priorities, 0.0, seen.time)
    shown = {
        q.query: (round(q.down_s, 3) if q.measured else None, None if q.measured else round(q.down_s, 3))
        for q in view.queries
    }
    assert {q: (e["recovery_s"], e["at_least_s"]) for q, e in entry["queries"].items()} == shown
    assert list(entry["queries"]) == list(shown)
    assert shown[first][0] is None
    assert json.dumps(entry["queries"][second])


def test_how_nodes_started_is_the_same_wherever_it_is_said() -> None:
    incident, plans = the_incident()
    starts = {
        "n8#1": NodeStart({StartPhase.REQUESTED: 10.0, StartPhase.HEARTBEAT: 12.5}),
        "n7#1": NodeStart({StartPhase.READY: 11.0}),
    }
    incident = replace(incident, starts=starts)
    seen = replace(SEEN, incident=incident)
    view = document(oncall.TOPOLOGY, seen).incident
    assert view is not None
    assert [(s.node, s.ended, s.seconds) for s in view.starts] == [
        ("n8#1", {"requested": 10.0, "heartbeat": 12.5}, {"heartbeat": 2.5}),
        ("n7#1", {"ready": 11.0}, {}),
    ]
    entry = incident_entry(incident, {p.id: p for p in plans}, {}, 4.0, SEEN.time)
    assert entry["node_starts"] == {
        "n8#1": {"ended": {"requested": 6.0, "heartbeat": 8.5}, "seconds": {"heartbeat": 2.5}},
        "n7#1": {"ended": {"ready": 7.0}, "seconds": {}},
    }

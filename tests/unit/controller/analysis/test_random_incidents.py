"""Incidents of any course, as the coordinator's own rules play them: what is told of each is possible, and whoever tells it
says the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.analysis.explain import explain
from reprise.controller.analysis.measured import measured
from reprise.controller.analysis.postmortem.markdown import markdown
from reprise.controller.analysis.postmortem.story import make_story
from reprise.controller.crd.convert import incident_status
from reprise.controller.observability.metrics.control import topology_samples
from reprise.controller.observability.metrics.look import Look
from reprise.controller.status import document, observation, plain, records
from reprise.controller.status.model import StatusDocument
from reprise.controller.status.query_state import Status, run_state
from reprise.controller.status.timeline import incident_entry
from reprise.controller.topology_view import view_of
from reprise.controller.web.board import Board
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.simulation.run import Change
from tests.support import oncall
from tests.support.examples import examples

PRIORITIES = {query.id: query.priority for query in oncall.TOPOLOGY.queries.values()}
MOMENTS = st.sampled_from([0.0, 1.0, 2.0, 5.0, 20.0, 40.0])
LOSSES = st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=3, unique=True)


@st.composite
def courses(draw: st.DrawFn) -> Observation:
    """Nodes are lost, each once, and others come, at any moments."""
    lost = draw(LOSSES)
    changes = [Change(draw(MOMENTS), lose=(node,)) for node in lost]
    changes += [
        Change(draw(MOMENTS) + 3.0, arrive=draw(st.integers(1, 2))) for _ in range(draw(st.integers(0, 3)))
    ]
    seen = oncall.played_until(sorted(changes, key=lambda change: change.at))
    told = [event.time for incident in seen.incidents for event in incident.events]
    return replace(seen, time=max([seen.time, *told]) + 1.0)


def read_back(seen: Observation) -> Observation:
    """As somebody has it who got the records over the wire."""
    return observation(json.dumps(records(seen)).encode(), "test")


def check_curve(found: StatusDocument) -> None:
    points = found.availability.points
    assert all(a.time <= b.time for a, b in pairwise(points)), "in the order of time"
    for point in points:
        assert 0.0 <= point.share <= 1.0
        assert 0 <= point.available <= found.queries.total
        assert point.bound is None or -1e-9 <= point.bound <= 1.0 + 1e-9
    assert (points[-1].share, points[-1].available) == (found.queries.share, found.queries.available)


def check_curve_against_downtimes(found: StatusDocument, seen: Observation) -> None:
    """Between two changes exactly those are down that were lost before and are back later."""
    times = [t for incident in seen.incidents for t in incident.queries.items()]
    if any(t.losses > 1 or t.relapses for _, t in times):
        return
    for point in found.availability.points[:-1]:
        down = {
            query for query, t in times
            if t.lost_at <= point.time and (t.caught_up_at is None or t.caught_up_at > point.time)
        }  # fmt: skip
        missing = sum(PRIORITIES[query] for query in down)
        assert point.share == pytest.approx(1.0 - missing / sum(PRIORITIES.values())), point
        assert point.available == len(PRIORITIES) - len(down)


def check_incidents(found: StatusDocument) -> None:
    for incident in (found.incident, found.last_incident):
        if incident is None:
            continue
        end = incident.closed_at if incident.closed_at is not None else found.time
        assert [event.time for event in incident.events] == sorted(event.time for event in incident.events)
        assert incident.opened_at <= end
        assert incident.queries_back == sum(query.measured for query in incident.queries)
        assert incident.queries_lost == len(incident.queries)
        for query in incident.queries:
            assert 0.0 <= query.down_s <= end - query.lost_at + 1e-6
            known = [t for t in (query.lost_at, query.restored_at, query.caught_up_at) if t is not None]
            assert known == sorted(known)
            assert query.losses >= 1
            assert query.measured or incident.closed_at is not None or query.caught_up_at is None
    times = measured(found)
    for sample in (times.restore, times.catch_up, times.gaps):
        assert all(s >= 0.0 for s in (*sample.seconds, *sample.at_least))


@examples(30)
@given(courses())
def test_what_is_told_of_an_incident_is_possible(seen: Observation) -> None:
    found = document(oncall.TOPOLOGY, seen)
    check_curve(found)
    check_curve_against_downtimes(found, seen)
    check_incidents(found)
    assert plain(document(oncall.TOPOLOGY, read_back(seen))) == plain(found)


@examples(20)
@given(courses())
def test_document_page_explanation_and_metrics_say_the_same(seen: Observation) -> None:
    found = document(oncall.TOPOLOGY, seen)
    board = Board()
    board.show("default", "oncall", oncall.resource(), seen)
    shown = board.document(("default", "oncall"))
    assert shown is not None
    page = json.loads(shown.body)
    assert page == json.loads(json.dumps(plain(found)))
    (listed,) = json.loads(board.listing().body)["items"]
    assert listed["queries"]["share"] == page["queries"]["share"]
    counts = Counter(query.state for query in found.queries.items)
    for state in Status:
        assert counts[state] == page["queries"][state.value] == listed["queries"][state.value]
    share = sum(q.priority for q in found.queries.items if q.state is Status.AVAILABLE) / sum(
        PRIORITIES.values()
    )
    assert found.queries.share == pytest.approx(share)

    view = view_of(oncall.resource())
    look = Look(oncall.resource(), view, run_state(oncall.TOPOLOGY, seen), oncall.START)
    samples = list(topology_samples(look, seen.time))
    value = {s.metric: s.value for s in samples if len(s.labels) == 1}
    assert value["reprise_availability_ratio"] == pytest.approx(share)
    assert value["reprise_incident_age_seconds"] == (
        seen.time - found.incident.opened_at if found.incident else 0.0
    )
    assert value["reprise_incident_lost_nodes"] == (len(found.incident.lost) if found.incident else 0)
    by_state = Counter[str]()
    for sample in samples:
        if sample.metric == "reprise_queries":
            by_state[sample.labels["status"]] += int(sample.value)
    assert by_state == Counter({state.value: counts[state] for state in Status})
    in_partitions = sum(s.value for s in samples if s.metric == "reprise_partitions")
    assert in_partitions == len(found.partitions) == len(oncall.TOPOLOGY.partitions)

    for query in found.queries.items:
        told = explain(found, query.id)
        assert (told.state, told.lag, told.priority) == (query.state, query.lag, query.priority)
        assert len(told.missing) == query.missing_total
        assert query.state is not Status.AVAILABLE or not told.missing
        assert bool(query.reason) == (query.state is not Status.AVAILABLE)
        expected = told.expected
        if expected is not None and expected.low is not None:
            assert expected.low >= 0.0
            assert expected.high is None or expected.high >= expected.low


@examples(20)
@given(courses())
def test_report_post_mortem_and_resource_say_the_same_of_each_incident(seen: Observation) -> None:
    found = document(oncall.TOPOLOGY, seen)
    views = {view.id: view for view in (found.incident, found.last_incident) if view is not None}
    for incident in seen.incidents:
        story = make_story(oncall.TOPOLOGY, incident, list(seen.plans.values()), seen.time)
        entry = incident_entry(incident, seen.plans, PRIORITIES, oncall.START, seen.time)
        text = markdown(story, None, [])
        assert ("still down" in text) <= (incident.closed_at is None)
        assert 0.0 <= story.lost_s <= story.end - incident.opened_at + 1e-6 or not story.downtimes
        downtimes = {d.query: d for d in story.downtimes}
        for query, said in entry["queries"].items():
            seconds = said["recovery_s"] if said["at_least_s"] is None else said["at_least_s"]
            assert seconds == pytest.approx(downtimes[query].down_s, abs=1e-3)
            assert (said["recovery_s"] is not None) == downtimes[query].measured
        assert entry["plans"] == [p for p in entry["plans"] if p["id"] in incident.plans]
        plan = seen.plans[incident.plans[-1]] if incident.plans else None
        told = incident_status(incident, "oncall", plan, PRIORITIES)
        affected = told["queries"]
        assert affected["affected"] == len(downtimes)
        assert affected["caughtUp"] == sum(d.caught_up_at is not None for d in downtimes.values())
        assert affected["restored"] == sum(d.restored_at is not None for d in downtimes.values())
        assert affected.get("recovery", entry["recovery"]) == entry["recovery"]
        assert told["lost"]["count"] == len(entry["lost_nodes"])
        assert told["waitingTotal"] == (len(plan.left_out) if plan else 0)
        if incident.id in views:
            view = views[incident.id]
            assert view.queries == story.downtimes
            assert view.recovery == entry["recovery"]
            assert view.recovery in text
            assert {n.node for n in view.lost} == {n["node"] for n in entry["lost_nodes"]}

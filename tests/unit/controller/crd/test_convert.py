"""Records become objects of bounded size that say the same, whatever the records hold."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost, plan_to_json, solve
from reprise.controller.crd.base import MAX_LISTED, TopologyReference
from reprise.controller.crd.conditions import ConditionReason, ConditionUpdate, Truth, merged
from reprise.controller.crd.convert import cut, incident_object, incident_status, plan_object, rfc3339
from reprise.controller.crd.incident import IncidentSpec, IncidentStatus
from reprise.controller.crd.plan import PlanSpec
from reprise.scheduler.incident import (
    Candidate,
    Event,
    Incident,
    Kind,
    LostNode,
    Phase,
    PlanRecord,
    QueryTimeline,
    Trigger,
)

TOPOLOGY = TopologyReference(name="flights", uid="u-1")
INCIDENT = Incident(
    id="inc-000012",
    kind=Kind.CORRELATED,
    phase=Phase.WAITING,
    opened_at=1_760_000_100.25,
    checkpoint=400,
    generation=3,
    nodes_before=10,
    settle_until=1_760_000_101.25,
    lost=(LostNode("n1#1", 1_760_000_100.25), LostNode("n2#1", 1_760_000_100.5)),
    plans=("inc-000012-p1", "inc-000012-p2"),
    queries={"a.0": QueryTimeline(1.0, 2.0, 3.0), "b.0": QueryTimeline(1.0, 2.0), "c.0": QueryTimeline(1.0)},
    events=(Event.of(1_760_000_100.25, "opened", "desired seq 11"),),
)
INSTANCE = Instance(
    capacity=100,
    partitions=(PartitionCost("a.0", 60), PartitionCost("b.0", 70)),
    queries=(FailedQuery("a.0", 9, ("a.0",)), FailedQuery("b.0", 5, ("b.0",))),
    nodes=(NodeCapacity("n3#1", 100),),
)
ANSWER = solve(INSTANCE, "auto", 1.0)
PLAN = PlanRecord(
    id="inc-000012-p1",
    incident="inc-000012",
    time=1_760_000_101.5,
    trigger=Trigger.FIRST,
    rollback=True,
    checkpoint=400,
    generation=3,
    free={"n3#1": 100},
    candidates=(Candidate("a.0", 9, 60), Candidate("b.0", 5, 70)),
    plan=plan_to_json(ANSWER),
    added={"a.0": "n3#1"},
    seconds=0.0021,
    left_out={e.query: e.reason for e in ANSWER.excluded},
)
PRIORITIES = {"a.0": 9, "b.0": 5}


def test_an_incident_object_holds_what_was_known_when_it_opened() -> None:
    found = incident_object(INCIDENT, TOPOLOGY, "prod")
    assert found["metadata"] == {
        "name": "flights-inc-000012",
        "namespace": "prod",
        "labels": {"reprise.dev/topology": "flights"},
    }
    assert found["spec"] == {
        "topology": {"name": "flights", "uid": "u-1"},
        "id": "inc-000012",
        "openedAt": "2025-10-09T08:55:00.250000Z",
        "nodesBefore": 10,
    }


def test_the_spec_of_an_incident_does_not_change_with_its_record() -> None:
    later = replace(INCIDENT, kind=Kind.DRIVER, phase=Phase.CLOSED, closed_at=1_760_000_200.0, checkpoint=1)
    assert incident_object(later, TOPOLOGY, "x") == incident_object(INCIDENT, TOPOLOGY, "x")


def test_the_status_of_an_incident_counts_and_names() -> None:
    found = incident_status(INCIDENT, "flights", PLAN, PRIORITIES)
    assert (found["kind"], found["phase"], found["lost"]["count"]) == ("correlated", "waiting", 2)
    assert found["queries"] == {"affected": 3, "restored": 2, "caughtUp": 1, "summary": "2/3"}
    assert found["plans"] == {"count": 2, "last": "flights-inc-000012-p2"}
    assert [(w["query"], w["priority"]) for w in found["waiting"]] == [("b.0", 5)]
    assert "closedAt" not in found
    closed = incident_status(replace(INCIDENT, closed_at=1_760_000_200.0), "flights", None, {})
    assert closed["closedAt"].endswith(":40.000000Z") and closed["waiting"] == []
    assert closed["queries"]["recovery"].startswith("1 of 3 back, down for ")
    assert "2 not measured (at least " in closed["queries"]["recovery"]


def test_a_plan_object_says_what_comes_back_and_why_the_rest_waits() -> None:
    found = plan_object(PLAN, TOPOLOGY, "prod", PRIORITIES)
    spec = found["spec"]
    assert (spec["summary"], spec["value"], spec["optimal"], spec["micros"]) == ("1/2", 9, True, 2100)
    assert (spec["costMilliCpu"], spec["capacityMilliCpu"], spec["partitions"]) == (60, 100, 1)
    assert [c["query"] for c in spec["chosen"]] == ["a.0"]
    (left,) = spec["leftOut"]
    assert (left["query"], left["code"], left["missingMilliCpu"]) == ("b.0", "outbid", 30)
    assert spec["nodes"] == [{"node": "n3#1", "freeMilliCpu": 100, "partitions": 1}]
    assert found["metadata"]["labels"]["reprise.dev/incident"] == spec["incident"] == "flights-inc-000012"


@pytest.mark.long
def test_objects_of_a_large_topology_stay_small() -> None:
    names = [f"operator-with-a-long-name.{i}" for i in range(20_000)]
    huge = replace(
        PLAN,
        candidates=tuple(Candidate(n, 1, 1) for n in names),
        added=dict.fromkeys(names, "n3#1"),
        left_out=dict.fromkeys(names, "because " * 200),
        free={f"n{i}#1": 10 for i in range(5000)},
    )
    wide = replace(
        INCIDENT,
        lost=tuple(LostNode(f"n{i}#1", 5.0) for i in range(5000)),
        queries={n: QueryTimeline(1.0) for n in names},
        events=INCIDENT.events * 300,
        marked=dict.fromkeys(names, tuple((10**9 + 10 * k, 10**9 + 10 * k + 5) for k in range(200))),
    )
    plan, status = plan_object(huge, TOPOLOGY, "x", {}), incident_status(wide, "flights", huge, {})
    assert len(json.dumps(plan)) < 64_000 and len(json.dumps(status)) < 64_000
    spec = plan["spec"]
    assert (len(spec["leftOut"]), spec["leftOutTotal"], spec["nodesTotal"]) == (50, 20_000, 5000)
    assert (len(status["gaps"]), status["gapsTotal"], status["gapBatches"]) == (50, 20_000, 20_000 * 200 * 6)
    assert (len(status["waiting"]), status["waitingTotal"], status["timelineTotal"]) == (50, 20_000, 300)
    assert plan["spec"]["partitions"] == 20_000 and status["lost"]["count"] == 5000
    assert len(plan["spec"]["leftOut"]) == len(status["lost"]["latest"]) == MAX_LISTED


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=600),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["value", "bound", "cost", "chosen", "excluded", "algorithm", "why", "optimal"])


@given(st.dictionaries(KEYS, json_values), st.text(max_size=900), st.floats(0, 1e6))
def test_any_record_gives_a_valid_object(answer: dict[str, Any], text: str, seconds: float) -> None:
    odd = replace(PLAN, plan=answer, note=text, seconds=seconds, left_out={"q.0": text})
    PlanSpec.model_validate(plan_object(odd, TOPOLOGY, "x", {})["spec"], by_alias=True)
    incident = replace(INCIDENT, events=(Event.of(seconds, text, text),))
    IncidentStatus.model_validate(incident_status(incident, "flights", odd, {}), by_alias=True)
    IncidentSpec.model_validate(incident_object(incident, TOPOLOGY, "x")["spec"], by_alias=True)


HUGE = st.integers(-(2**80), 2**80)
MOMENTS = st.floats(allow_nan=False, allow_infinity=False)


@given(MOMENTS, HUGE, MOMENTS)
def test_numbers_that_no_clock_and_no_machine_has_give_a_valid_object(
    at: float, number: int, took: float
) -> None:
    """A record may be damaged, or written by a clock that is; its object still shows the rest of it."""
    odd = replace(
        PLAN, time=at, seconds=took, checkpoint=number, generation=number, free={"n3#1": number, "n4#1": 1}
    )
    PlanSpec.model_validate(plan_object(odd, TOPOLOGY, "x", {})["spec"], by_alias=True)
    incident = replace(
        INCIDENT,
        opened_at=at,
        closed_at=at,
        checkpoint=number,
        generation=number,
        nodes_before=number,
        lost=(LostNode("n1#1", at),),
        events=(Event.of(at, "opened"),),
        marked={"q.0": ((number, number + 2**60),)},
    )
    IncidentStatus.model_validate(incident_status(incident, "flights", odd, {}), by_alias=True)
    IncidentSpec.model_validate(incident_object(incident, TOPOLOGY, "x")["spec"], by_alias=True)


def test_a_moment_without_a_date_is_the_nearest_that_has_one() -> None:
    assert [rfc3339(at) for at in (-1e300, -0.5, 253_402_300_800.0, 1e300)] == [
        "1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z",
        "9999-12-31T23:59:59.000000Z", "9999-12-31T23:59:59.000000Z",
    ]  # fmt: skip


def test_times_are_utc_and_long_texts_say_that_they_were_cut() -> None:
    assert rfc3339(0.000001) == "1970-01-01T00:00:00.000001Z"
    assert cut("abcdef", 5) == "ab..." and cut("abcde", 5) == "abcde"


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    ready = ConditionUpdate("Ready", Truth.TRUE, ConditionReason.ALL_QUERIES_AVAILABLE, "22 of 22")
    first = merged([], [ready], 1, 10.0)
    assert first[0]["lastTransitionTime"] == rfc3339(10.0)
    assert merged(first, [ready], 1, 20.0) == first
    reworded = merged(first, [replace(ready, message="21 of 21")], 2, 20.0)[0]
    assert (reworded["lastTransitionTime"], reworded["observedGeneration"]) == (rfc3339(10.0), 2)
    unknown = merged(first, [replace(ready, truth=Truth.UNKNOWN)], 1, 30.0)[0]
    assert (unknown["status"], unknown["lastTransitionTime"]) == ("Unknown", rfc3339(30.0))
    assert merged(first, [], 1, 40.0) == []

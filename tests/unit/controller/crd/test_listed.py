"""Which of too many are listed, in which order, and what a record's odd numbers become."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from reprise.controller.crd.base import MAX_LISTED
from reprise.controller.crd.convert import incident_status, plan_object, waiting_queries
from reprise.controller.crd.crds import KINDS, at, fields, schema
from reprise.controller.crd.incident import MAX_SPANS
from reprise.scheduler.incident import Event, LostNode
from tests.unit.controller.crd.test_convert import INCIDENT, PLAN, TOPOLOGY

MANY = MAX_LISTED + 5


def spec(outlook: str = "", **answer: Any) -> dict[str, Any]:
    """Of a plan whose planner has answered that."""
    found: dict[str, Any] = plan_object(replace(PLAN, plan=answer), TOPOLOGY, "x", {}, outlook)["spec"]
    return found


def test_of_lost_nodes_and_events_the_newest_are_listed_in_their_order() -> None:
    times = [float(i) for i in range(MANY)]
    wide = replace(
        INCIDENT,
        lost=tuple(LostNode(f"n{i:.0f}#1", i) for i in times),
        events=tuple(Event.of(i, f"event-{i:.0f}", "") for i in times),
    )
    found = incident_status(wide, "flights", None, {})
    assert [entry["node"] for entry in found["lost"]["latest"]] == [f"n{i:.0f}#1" for i in times[5:]]
    assert [entry["name"] for entry in found["timeline"]] == [f"event-{i:.0f}" for i in times[5:]]


def test_gaps_are_listed_by_query_the_most_valuable_first_and_of_each_the_newest() -> None:
    assert incident_status(INCIDENT, "flights", None, {})["gaps"] == []
    marked = {"a.0": ((3, 12), (20, 22)), "b.0": ((5, 5),), "none.0": ((8, 7),)}
    found = incident_status(replace(INCIDENT, marked=marked), "flights", None, {"b.0": 9, "a.0": 2})
    assert found["gaps"] == [
        {"query": "b.0", "batches": 1, "spans": [{"first": 5, "last": 5}]},
        {"query": "a.0", "batches": 13, "spans": [{"first": 3, "last": 12}, {"first": 20, "last": 22}]},
    ]
    assert (found["gapsTotal"], found["gapBatches"]) == (2, 14)
    spans = tuple((10 * k, 10 * k + 1) for k in range(MAX_SPANS + 5))
    found = incident_status(
        replace(INCIDENT, marked={f"q.{k:03}": spans for k in range(MANY)}), "flights", None, {}
    )
    assert [entry["query"] for entry in found["gaps"]] == [f"q.{k:03}" for k in range(MAX_LISTED)]
    assert [span["first"] for span in found["gaps"][0]["spans"]] == [first for first, _ in spans[5:]]
    assert (found["gapsTotal"], found["gaps"][0]["batches"]) == (MANY, 2 * len(spans))
    assert found["gapBatches"] == MANY * 2 * len(spans)


def test_of_waiting_queries_the_most_valuable_are_listed_and_equals_by_name() -> None:
    reasons = {f"q.{i:03}": f"reason {i}" for i in reversed(range(MANY))}
    found = waiting_queries(reasons, {"q.054": 9, "q.002": 0})
    assert [entry.query for entry in found[:3]] == ["q.054", "q.000", "q.001"]
    assert found[0].reason == "reason 54" and found[1].priority == 1
    assert "q.002" not in {entry.query for entry in found}, (
        "it is worth less than those that nobody has valued"
    )


def test_of_nodes_those_with_most_room_are_listed_and_none_has_less_than_nothing() -> None:
    free = {f"n{i:02}#1": i for i in range(MANY)} | {"full#1": -40}
    odd = replace(PLAN, free=free, added={"a.0": "n54#1", "b.0": "n54#1", "c.0": "elsewhere#1"})
    found = plan_object(odd, TOPOLOGY, "x", {})["spec"]
    assert found["nodes"][0] == {"node": "n54#1", "freeMilliCpu": 54, "partitions": 2}
    assert [entry["freeMilliCpu"] for entry in found["nodes"]] == list(range(54, 4, -1))
    assert found["capacityMilliCpu"] == sum(range(MANY)), "what is over-full gives no room away"
    only = plan_object(replace(odd, free={"full#1": -40}), TOPOLOGY, "x", {})["spec"]
    assert only["nodes"] == [{"node": "full#1", "freeMilliCpu": 0, "partitions": 0}]


@pytest.mark.parametrize(
    ("number", "becomes"),
    [
        (7, 7),
        (6.6, 7),
        (-3, 0),
        (True, 0),
        ("7", 0),
        (None, 0),
        (math.inf, 0),
        (math.nan, 0),
        (2**70, 2**53),
    ],
)
def test_what_is_no_number_says_nothing(number: object, becomes: int) -> None:
    assert spec(cost=number)["costMilliCpu"] == becomes


def test_no_plan_is_worth_more_than_its_bound_and_only_true_is_optimal() -> None:
    assert (spec(value=9, bound=5)["bound"], spec(value=9, bound=12)["bound"]) == (9, 12)
    assert [spec(optimal=value)["optimal"] for value in (True, False, 1, "true", None)] == [True] + [
        False
    ] * 4


def test_a_chosen_query_has_a_priority_that_the_kind_allows() -> None:
    chosen = [{"query": "a", "priority": p, "restores": ["x", "y"]} for p in (0, 4, 99)] + [
        {"priority": 3},
        "b",
    ]
    found = spec(chosen=chosen)
    assert [(entry["priority"], entry["partitions"]) for entry in found["chosen"]] == [
        (1, 2),
        (4, 2),
        (10, 2),
    ]
    assert found["summary"] == "3/2", "what is chosen is counted, and not what cannot be read"
    assert spec(chosen=[{"query": "a", "restores": 5}])["chosen"][0]["partitions"] == 0


def test_the_outlook_follows_what_the_plan_notes() -> None:
    noted = replace(PLAN, note="two nodes are full")
    assert plan_object(noted, TOPOLOGY, "x", {}, "3 more are coming")["spec"]["note"] == (
        "two nodes are full; 3 more are coming"
    )
    assert spec("3 more are coming")["note"] == "3 more are coming"


def test_a_label_is_no_longer_than_labels_may_be_and_the_name_is_whole() -> None:
    found = plan_object(replace(PLAN, incident="i" * 80), TOPOLOGY, "x", {})
    assert found["spec"]["incident"] == f"flights-{'i' * 80}"
    assert found["metadata"]["labels"]["reprise.dev/incident"] == found["spec"]["incident"][:63]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_field_is_found_at_its_path(kind: Any) -> None:
    whole = schema(kind)
    found = dict(fields(whole))
    assert len(found) > 10
    assert all(at(whole, path) is node for path, node in found.items())
    with pytest.raises(KeyError):
        at(whole, "spec.nobody")

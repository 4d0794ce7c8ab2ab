"""The JSON formats: exact numbers, one error per mistake, plans that survive a round trip."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import (
    Instance,
    InstanceError,
    PlanFormatError,
    loads_instance,
    parse_instance,
    plan_from_json,
    plan_table,
    plan_to_json,
    solve,
)
from tests.support.examples import examples
from tests.support.planning_cases import instances

GOOD: dict[str, Any] = {
    "capacity": 1.5,
    "nodes": [{"id": "n1", "free": 1}, {"id": "n2", "free": 0.5}],
    "partitions": [{"id": "a", "cost": 0.25}, {"id": "b", "cost": 1}],
    "edges": [["a", "b"]],
    "queries": [{"id": "q", "priority": 3, "partitions": ["a", "b"]}],
}


def test_decimals_become_exact_integers() -> None:
    instance = parse_instance(GOOD)
    assert instance.scale == 100
    assert instance.capacity == 150
    assert [p.cost for p in instance.partitions] == [25, 100]
    plan = solve(instance)
    assert plan_to_json(plan)["cost"] == 1.25
    assert plan.placement is not None


def test_a_tenth_in_json_is_a_tenth() -> None:
    text = """{"capacity": 0.3, "partitions": [{"id": "a", "cost": 0.1}, {"id": "b", "cost": 0.2}],
               "queries": [{"id": "q", "partitions": ["a", "b"]}]}"""
    assert solve(loads_instance(text)).value == 1  # 0.1 + 0.2 > 0.3 in floats


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"capacity": -1}, "capacity"),
        ({"capacity": float("nan")}, "capacity"),
        ({"capacity": float("inf")}, "capacity"),
        ({"capacity": True}, "capacity"),
        ({"capacity": "7"}, "capacity"),
        ({"capacity": 10**40}, "capacity"),
        ({"capacity": 1e-30}, "capacity"),
        ({"partitions": [{"id": "a", "cost": 1}, {"id": "a", "cost": 1}]}, "partitions[1].id"),
        ({"partitions": [{"id": "a"}]}, "partitions[0]"),
        ({"partitions": [{"id": "", "cost": 1}]}, "partitions[0].id"),
        ({"partitions": [{"id": "a", "cost": -2}]}, "partitions[0].cost"),
        ({"partitions": {"a": 1}}, "partitions"),
        ({"partitions": [{"id": "a", "cost": 1, "weight": 2}]}, "partitions[0]"),
        ({"nodes": [{"id": "n", "free": 1}, {"id": "n", "free": 1}]}, "nodes[1].id"),
        ({"edges": [["a", "x"]]}, "edges[0]"),
        ({"edges": [["a"]]}, "edges[0]"),
        ({"queries": [{"id": "q", "partitions": []}]}, "queries[0].partitions"),
        ({"queries": [{"id": "q", "partitions": ["x"]}]}, "queries[0].partitions"),
        ({"queries": [{"id": "q", "partitions": ["a", "a"]}]}, "queries[0].partitions[1]"),
        ({"queries": [{"id": "q", "priority": 0, "partitions": ["a"]}]}, "queries[0].priority"),
        ({"queries": [{"id": "q", "priority": 1.5, "partitions": ["a"]}]}, "queries[0].priority"),
        ({"queries": [{"id": "q", "partitions": ["a"]}] * 2}, "queries[1].id"),
        ({"colour": "blue"}, "$"),
    ],
)
def test_each_mistake_gets_one_error_with_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InstanceError) as caught:
        parse_instance({**GOOD, **change})
    assert caught.value.field == field
    assert caught.value.reason


@pytest.mark.parametrize("text", ["{", '{"capacity": NaN}', "[1]", "7"])
def test_text_that_is_no_instance_is_refused(text: str) -> None:
    with pytest.raises(InstanceError):
        loads_instance(text)


def test_capacity_may_be_left_to_the_nodes_and_never_exceeds_them() -> None:
    without = {name: value for name, value in GOOD.items() if name != "capacity"}
    assert parse_instance(without).budget() == 150
    assert parse_instance({**GOOD, "capacity": 9}).budget() == 150
    with pytest.raises(InstanceError, match="no nodes"):
        parse_instance({**without, "nodes": []})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["capacity", "partitions", "queries", "id", "cost", "nodes"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(obj=JSON)
@examples(300)
def test_the_parsers_are_total(obj: object) -> None:
    with pytest.raises(PlanFormatError):
        plan_from_json(obj)
    try:
        instance = parse_instance(obj)
    except InstanceError:
        return
    assert isinstance(instance, Instance)


@given(instance=instances(nodes=True))
@examples(50)
def test_plans_survive_json(instance: Instance) -> None:
    plan = solve(instance)
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


def test_a_decimal_plan_survives_json() -> None:
    plan = solve(parse_instance({**GOOD, "capacity": 1.1}))
    assert plan.excluded[0].enters_at == 125
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


def test_the_table_names_every_query_with_costs_in_the_unit_of_the_file() -> None:
    text = plan_table(solve(parse_instance({**GOOD, "capacity": 1.1})))
    assert "LEFT OUT" in text
    assert "q " in text
    assert "1.25" in text  # q needs 1.25 in the unit of the file, 125 scaled
    text = plan_table(solve(parse_instance(GOOD)))
    assert "a@n" in text
    assert "optimal" in text

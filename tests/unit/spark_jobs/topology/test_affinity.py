"""Affinities and spreads of pods: what an API server would refuse when Spark asks for an executor is refused before."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from reprise.spark_jobs.topology.affinity import (
    AffinityModel,
    NodePreferenceModel,
    NodeRequirementModel,
    NodeTermsModel,
    TopologySpreadModel,
    TopologySpreads,
)

ZONE = "topology.kubernetes.io/zone"
TERM = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}


def requirement(operator: str, *values: str) -> NodeRequirementModel:
    return NodeRequirementModel.model_validate({"key": ZONE, "operator": operator, "values": list(values)})


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("In", ("a", "b")), ("NotIn", ("a",)), ("Exists", ()), ("DoesNotExist", ()), ("Gt", ("3",)), ("Lt", ("0",)),
    ],
)  # fmt: skip
def test_each_operator_has_as_many_values_as_it_takes(operator: str, values: tuple[str, ...]) -> None:
    assert requirement(operator, *values).values == list(values)


@pytest.mark.parametrize(
    ("operator", "values"),
    [("In", ()), ("NotIn", ()), ("Exists", ("a",)), ("DoesNotExist", ("a",)), ("Gt", ()), ("Lt", ("1", "2"))],
)
def test_another_number_of_values_is_refused(operator: str, values: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match="give some `values` for In and NotIn, one for Gt and Lt"):
        requirement(operator, *values)


@pytest.mark.parametrize("value", ["a", "1.5", "", "1e3"])
def test_greater_and_less_compare_with_a_whole_number(value: str) -> None:
    with pytest.raises(ValidationError, match="Gt and Lt compare with a whole number"):
        requirement("Gt", value)


def test_an_operator_that_kubernetes_has_not_is_refused() -> None:
    with pytest.raises(ValidationError, match="operator"):
        requirement("in", "a")


def test_terms_are_not_empty_as_they_would_match_nothing() -> None:
    for term in ({"nodeSelectorTerms": []}, {"nodeSelectorTerms": [{"matchExpressions": []}]}):
        with pytest.raises(ValidationError):
            NodeTermsModel.model_validate(term)


@pytest.mark.parametrize("weight", [0, 101, "5", 1.0])
def test_a_weight_is_a_whole_number_from_1_to_100(weight: object) -> None:
    assert NodePreferenceModel.model_validate({"weight": 100, "preference": TERM}).weight == 100
    with pytest.raises(ValidationError, match="weight"):
        NodePreferenceModel.model_validate({"weight": weight, "preference": TERM})


@pytest.mark.parametrize("field", ["podAffinity", "podAntiAffinity"])
def test_affinity_between_pods_is_said_by_spreads(field: str) -> None:
    with pytest.raises(ValidationError, match="is said by `spread` and `topologySpreadConstraints`"):
        AffinityModel.model_validate({"nodeAffinity": {}, field: {}})


def test_who_is_counted_for_a_spread_is_not_for_a_topology_to_say() -> None:
    with pytest.raises(ValidationError, match="the executors of this topology are counted"):
        TopologySpreadModel.model_validate({"topologyKey": ZONE, "labelSelector": {}})


def spreads(*constraints: dict[str, Any]) -> list[TopologySpreadModel]:
    return TypeAdapter(TopologySpreads).validate_python([{"topologyKey": ZONE, **one} for one in constraints])


def test_two_spreads_over_one_label_differ_in_more_than_their_skew() -> None:
    assert len(spreads({"whenUnsatisfiable": "DoNotSchedule"}, {"whenUnsatisfiable": "ScheduleAnyway"})) == 2
    assert len(spreads({}, {"topologyKey": "rack"})) == 2
    with pytest.raises(ValidationError, match=f"'{ZONE}' is given twice with one `whenUnsatisfiable`"):
        spreads({"maxSkew": 1}, {"maxSkew": 2})
    with pytest.raises(ValidationError, match="maxSkew"):
        spreads({"maxSkew": 0})

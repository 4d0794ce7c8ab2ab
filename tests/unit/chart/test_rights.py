"""The chart grants what the end-to-end tests run with (`tests/kubernetes/rbac.py`), and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.kubernetes import rbac
from tests.support.chart import of_kind, render

Right = tuple[str, str, str]
"""API group, resource, verb."""


def rights(rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    return {
        (g, r, v)
        for rule in rules
        for g in rule["apiGroups"]
        for r in rule["resources"]
        for v in rule["verbs"]
    }


def granted(kind: str, name: str, **values: str) -> set[Right]:
    roles = [role for role in of_kind(render(**values), kind) if role["metadata"]["name"] == name]
    assert roles, f"the chart makes no {kind} {name}"
    return rights(rule for role in roles for rule in role["rules"])


def test_the_operators_rights_are_those_of_the_tests() -> None:
    assert granted("Role", "rec-operator") == rights(rbac.OPERATOR)
    assert granted("Role", "rec-operator-leader") == rights(rbac.OPERATOR_HOME)


def test_reading_all_pods_is_a_choice_and_nothing_more() -> None:
    found = granted("ClusterRole", "streams-rec-operator-capacity", rbac__readCapacity="true")
    assert found == rights(rbac.OPERATOR_CAPACITY)
    assert "streams-rec-operator-capacity" not in {
        r["metadata"]["name"] for r in of_kind(render(), "ClusterRole")
    }


def test_the_drivers_rights_are_those_of_the_tests() -> None:
    assert granted("Role", "reprise-driver") == rights(rbac.DRIVER)

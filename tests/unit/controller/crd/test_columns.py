"""What `kubectl get` shows stands in the definitions, and each column is of a field that there is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reprise.controller.crd import columns
from reprise.controller.crd.crds import KINDS, at, definition

LISTS = {"StreamTopology": columns.TOPOLOGY, "Incident": columns.INCIDENT, "RecoveryPlan": columns.PLAN}
OF_OBJECTS = (".metadata.creationTimestamp",)
VERSIONS = {kind.kind: definition(kind)["spec"]["versions"][0] for kind in KINDS}


def schema_of(kind: str, path: str) -> dict[str, Any]:
    """The schema of the field at a path; KeyError where there is none."""
    whole = VERSIONS[kind]["schema"]["openAPIV3Schema"]
    return at(whole, re.sub(r"\[\?\(.*\)\]", "[]", path).removeprefix("."))


@pytest.mark.parametrize("kind", LISTS)
def test_the_definitions_have_these_columns(kind: str) -> None:
    assert VERSIONS[kind]["additionalPrinterColumns"] == LISTS[kind]


@pytest.mark.parametrize("kind", LISTS)
def test_each_is_of_a_field_of_its_type(kind: str) -> None:
    for column in LISTS[kind]:
        if column["jsonPath"] in OF_OBJECTS:
            continue
        schema = schema_of(kind, column["jsonPath"])
        wanted = "string" if column["type"] == "date" else column["type"]
        found = schema.get("type") or ("string" if schema.get("x-kubernetes-int-or-string") else None)
        assert found == wanted, column["name"]


@pytest.mark.parametrize("kind", LISTS)
def test_names_differ_and_what_is_asked_first_comes_first(kind: str) -> None:
    names = [column["name"] for column in LISTS[kind]]
    assert len(set(names)) == len(names)
    priorities = [column.get("priority", 0) for column in LISTS[kind]]
    assert priorities == sorted(priorities), "those of -o wide are at the end"
    assert all(column["description"].endswith(".") for column in LISTS[kind])

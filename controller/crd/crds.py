"""The three CustomResourceDefinitions as objects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from reprise.controller.crd import columns, rules
from reprise.controller.crd.incident import IncidentSpec, IncidentStatus
from reprise.controller.crd.plan import PlanSpec, PlanStatus
from reprise.controller.crd.rules import Rule
from reprise.controller.crd.structural import Schema, structural
from reprise.controller.crd.topology_status import TopologyStatus
from reprise.spark_jobs.topology.scalars import NAME_PATTERN
from reprise.spark_jobs.topology.schema import SpecModel

GROUP = "reprise.dev"
VERSION = "v1alpha1"
CATEGORY = "reprise"


@dataclass(frozen=True, slots=True)
class Kind:
    """One custom resource: its names, its models, and what the API server checks and shows of it."""

    kind: str
    plural: str
    short: tuple[str, ...]
    description: str
    spec: type[BaseModel]
    status: type[BaseModel]
    rules: Mapping[str, tuple[Rule, ...]]
    columns: Sequence[Mapping[str, Any]]
    longest_name: int
    name_pattern: str = NAME_PATTERN
    list_keys: Mapping[str, list[str]] | None = None


KINDS = (
    Kind(
        "StreamTopology",
        "streamtopologies",
        ("topo",),
        "A streaming topology on Spark, recovered query by query.",
        SpecModel,
        TopologyStatus,
        rules.TOPOLOGY,
        columns.TOPOLOGY,
        longest_name=40,
        list_keys=rules.LIST_KEYS,
    ),
    Kind(
        "Incident",
        "incidents",
        ("inc",),
        "One failure of a topology, until a global checkpoint completes with nothing failed. Written by the controller.",
        IncidentSpec,
        IncidentStatus,
        rules.INCIDENT,
        columns.INCIDENT,
        longest_name=100,
    ),
    Kind(
        "RecoveryPlan",
        "recoveryplans",
        ("rplan",),
        "What is restored now, where, and why the rest waits. Written by the controller.",
        PlanSpec,
        PlanStatus,
        rules.PLAN,
        columns.PLAN,
        longest_name=110,
    ),
)


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "labels": {"app.kubernetes.io/part-of": "reprise"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": list(kind.short),
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [dict(column) for column in kind.columns],
                    "schema": {"openAPIV3Schema": schema(kind)},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def schema(kind: Kind) -> Schema:
    """The structural schema of the whole object with its rules."""
    found: Schema = {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"{kind.kind}."},
            "metadata": {
                "type": "object",
                "properties": {
                    "name": {
                        "type": "string",
                        "pattern": kind.name_pattern,
                        "maxLength": kind.longest_name,
                    }
                },
            },
            "spec": {"description": "What is wanted, or what happened."}
            | structural(kind.spec.model_json_schema(by_alias=True)),
            "status": {"description": "What is; written by the controller."}
            | structural(kind.status.model_json_schema(by_alias=True)),
        },
    }
    for path, several in kind.rules.items():
        at(found, path).setdefault("x-kubernetes-validations", []).extend(r.as_object() for r in several)
    for path, keys in (kind.list_keys or {}).items():
        at(found, path).update({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys})
    return found


def at(whole: Schema, path: str) -> Schema:
    """The part of a schema at a path such as `spec.operators[].inputs`; KeyError when there is none."""
    for step in re.findall(r"\[\]|[^.\[\]]+", path):
        whole = whole["items"] if step == "[]" else whole["properties"][step]
    return whole


def fields(node: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every field of a schema with its path, in order."""
    for name, child in node.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield here, child
        inner = child
        while "items" in inner:
            inner, here = inner["items"], f"{here}[]"
        yield from fields(inner, here)

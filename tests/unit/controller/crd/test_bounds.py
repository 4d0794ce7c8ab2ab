"""Each bound in the schema that an API server has is the model's own: the last value that one takes the other takes, and the
first that one refuses the other refuses."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from reprise.controller.crd.crds import KINDS, schema
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import from_object
from tests.kubernetes.rule_cases import TOPOLOGY

SPEC = next(schema(kind) for kind in KINDS if kind.kind == "StreamTopology")["properties"]["spec"]
Path = tuple[str | int, ...]
_TERM = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
SAMPLES: dict[str | int, Any] = {
    "volumes": [{"mountPath": "/data", "claim": "data"}],
    "code": {"configMap": "topology-code", "sha256": "0" * 64},
    "env": [{"name": "LEVEL", "valueFrom": {"secretKeyRef": {"name": "topology-level", "key": "level"}}}],
    "tolerations": [{"key": "spot", "effect": "NoExecute"}],
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _TERM}],
    "topologySpreadConstraints": [{"topologyKey": "zone"}],
    "startFrom": {"location": "/checkpoints/before", "savepoint": "before"},
}
"""What makes a field complete that a good topology need not have."""


def fields(node: dict[str, Any], path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Those of a spec whose lists have one item."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from fields(child, (*path, name))
    if "items" in node:
        yield from fields(node["items"], (*path, 0))


def parents_of(path: Path) -> Any:
    """A good topology, and what is right above the field in it; None where the good one has nothing there."""
    whole = copy.deepcopy(TOPOLOGY)
    at: Any = whole["spec"]
    for step, below in pairwise(path):
        if isinstance(at, dict):
            at = at.setdefault(step, copy.deepcopy(SAMPLES.get(step, [{}] if below == 0 else {})))
        elif isinstance(step, int) and step < len(at):
            at = at[step]
        else:
            return None
    return whole, at


def refused_at(path: Path, value: Any) -> bool | None:
    """Whether the model refuses the value there, and for that field; None where it cannot be set."""
    found = parents_of(path)
    if found is None or not isinstance(found[1], dict):
        return None
    whole, at = found
    at[path[-1]] = value
    try:
        from_object(whole)
    except SpecError as error:
        last = [str(step) for step in path if isinstance(step, str)][-1]
        return last in str(error)
    return False


INTEGERS = [(p, n) for p, n in fields(SPEC, ()) if n.get("type") == "integer" and "maximum" in n]
ENUMS = [(p, n) for p, n in fields(SPEC, ()) if n.get("type") == "string" and "enum" in n]
STRINGS = [
    (p, n) for p, n in fields(SPEC, ())
    if n.get("type") == "string" and "maxLength" in n and p and isinstance(p[-1], str)
]  # fmt: skip


def name(value: Any) -> str:
    return ".".join(map(str, value)) if isinstance(value, tuple) else ""


@pytest.mark.parametrize(("path", "node"), INTEGERS, ids=name)
def test_a_number_has_the_same_neighbours(path: Path, node: dict[str, Any]) -> None:
    low, high = node.get("minimum", 0), node["maximum"]
    for value, refused in ((low, False), (high, False), (low - 1, True), (high + 1, True)):
        found = refused_at(path, value)
        assert found is None or found is refused, value
    for value in ("7", 1.5, True, [], {}):
        assert refused_at(path, value) in (None, True), value


@pytest.mark.parametrize(("path", "node"), ENUMS, ids=name)
def test_a_word_is_one_of_the_same(path: Path, node: dict[str, Any]) -> None:
    for value in node["enum"]:
        assert refused_at(path, value) in (None, False), value
    for value in (node["enum"][0].swapcase(), node["enum"][0] + "s", "", 7, None.__class__.__name__):
        assert refused_at(path, value) in (None, True), value


@pytest.mark.parametrize(("path", "node"), STRINGS, ids=name)
def test_a_text_that_is_too_long_is_refused(path: Path, node: dict[str, Any]) -> None:
    for value in ("a" * (node["maxLength"] + 1), 7, [], {}):
        assert refused_at(path, value) in (None, True), str(value)[:20]


@pytest.mark.parametrize(
    "path", sorted({p[:-1] for p, _ in fields(SPEC, ()) if p and isinstance(p[-1], str)}, key=str), ids=name
)
def test_a_field_that_there_is_not_is_refused_and_named(path: Path) -> None:
    assert refused_at((*path, "frobnicate"), 1) in (None, True)


def test_most_fields_could_be_tried() -> None:
    tried = [p for p, n in [*INTEGERS, *ENUMS, *STRINGS] if parents_of(p) is not None]
    assert len(tried) > 30
    assert len(tried) >= 0.8 * len([*INTEGERS, *ENUMS, *STRINGS])

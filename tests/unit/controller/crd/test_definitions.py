"""The definitions that an API server gets: structural, closed, bounded, described, and as the models say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel, Field

from reprise.controller.crd.crds import KINDS, Kind, at, definition, schema
from reprise.controller.crd.structural import structural
from tools.generate import ROOT, main, outputs, stale

SCHEMAS = {kind.kind: schema(kind) for kind in KINDS}
FORBIDDEN = {"$ref", "$defs", "title", "oneOf", "const", "patternProperties", "default_factory", "nullable"}


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[{key}]")


ALL = [(path, node) for kind, whole in SCHEMAS.items() for path, node in nodes(whole, kind)]
WRITTEN = [(path, node) for path, node in ALL if ".spec" in path or ".status" in path]


def test_generated_files_are_those_of_the_models() -> None:
    assert stale(ROOT, outputs()) == [], "run python -m tools.generate"


@pytest.mark.long
def test_check_fails_for_an_old_file_and_generating_mends_it(tmp_path: Path) -> None:
    at_root = ["--root", str(tmp_path)]
    assert main([*at_root, "--check"]) == 1
    assert not list(tmp_path.iterdir())
    assert main(at_root) == 0
    assert main([*at_root, "--check"]) == 0
    crd = tmp_path / "crds" / "incidents.yaml"
    crd.write_text(crd.read_text().replace("maxLength: 32", "maxLength: 33", 1))
    assert main([*at_root, "--check"]) == 1


def test_every_part_is_structural_and_closed() -> None:
    assert len(ALL) > 200
    for path, node in ALL:
        assert not FORBIDDEN & set(node), path
        if "x-kubernetes-int-or-string" in node:
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}] and "type" not in node, path
            continue
        assert node["type"] in {"object", "array", "string", "integer", "boolean"}, f"{path}: no floats"
        assert not {"properties", "additionalProperties"} <= set(node), path
        assert node.get("additionalProperties") not in (True, False), path
        free = node.get("x-kubernetes-preserve-unknown-fields", False)
        assert free == path.endswith(".with"), f"{path}: free-form is only what a user's class takes"


def test_every_part_is_bounded() -> None:
    for path, node in WRITTEN:
        match node.get("type"):
            case "string":
                assert "maxLength" in node or "enum" in node, path
            case "array":
                assert node["maxItems"] <= 200 and "x-kubernetes-list-type" in node, path
            case "object":
                assert "additionalProperties" not in node or "maxProperties" in node, path
            case "integer":
                assert "maximum" in node or "generation" in path.lower(), path


def test_every_field_of_every_object_is_described() -> None:
    assert [path for path, node in WRITTEN if path[-1] != "]" and not node.get("description")] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_definition_has_what_an_operator_needs(kind: Kind) -> None:
    found = definition(kind)
    spec = found["spec"]
    (version,) = spec["versions"]
    assert found["metadata"]["name"] == f"{kind.plural}.reprise.dev"
    assert spec["names"]["categories"] == ["reprise"] and spec["names"]["shortNames"]
    assert version["subresources"] == {"status": {}} and version["served"] and version["storage"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert "observedGeneration" in status
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_columns_show_fields_that_are_there(kind: Kind) -> None:
    for column in kind.columns:
        path = column["jsonPath"].removeprefix(".")
        if path.startswith("metadata."):
            continue
        head, _, tail = path.partition("[?(@.type==")
        node = at(SCHEMAS[kind.kind], head + "[]" + tail.partition(")]")[2] if tail else path)
        expected = "string" if column["type"] == "date" else column["type"]
        assert node["type"] == expected, column["name"]
        assert ("format" in node) == (column["type"] in {"date", "integer"})


def test_short_names_and_columns_differ() -> None:
    shorts = [short for kind in KINDS for short in kind.short]
    assert len(set(shorts)) == len(shorts)
    for kind in KINDS:
        names = [column["name"] for column in kind.columns]
        assert len(set(names)) == len(names)


def test_defaults_are_those_of_the_model() -> None:
    spec = SCHEMAS["StreamTopology"]["properties"]["spec"]["properties"]
    assert spec["recovery"]["default"] == {}
    recovery = spec["recovery"]["properties"]
    assert (recovery["cpuCap"]["default"], recovery["cpuCap"]["maximum"]) == (80, 100)
    assert recovery["strategy"]["enum"] == ["incremental", "blocking", "operator-centric", "best-case"]
    operator = spec["operators"]["items"]
    assert operator["required"] == ["name", "class", "inputs"]
    assert operator["properties"]["parallelism"]["default"] == 1
    assert "default" not in operator["properties"]["with"]


def test_rules_stand_where_they_can_see_what_they_read() -> None:
    operator = at(SCHEMAS["StreamTopology"], "spec.operators[]")
    assert [r["message"] for r in operator["x-kubernetes-validations"] if "feedback" in r["message"]]
    for kind in ("Incident", "RecoveryPlan"):
        (rule,) = at(SCHEMAS[kind], "spec")["x-kubernetes-validations"]
        assert rule["rule"] == "self == oldSelf"
    for path, node in ALL:
        for rule in node.get("x-kubernetes-validations", []):
            assert rule["message"] and "\n" not in rule["rule"] + rule["message"], path


def test_what_has_no_structural_form_is_refused() -> None:
    class Float(BaseModel):
        share: float

    class Union(BaseModel):
        either: int | str

    with pytest.raises(ValueError, match=r"\$\.share: a float"):
        structural(Float.model_json_schema())
    with pytest.raises(ValueError, match=r"\$\.either: a union of 2 types"):
        structural(Union.model_json_schema())


def test_optional_fields_references_and_maps_become_plain() -> None:
    class Inner(BaseModel):
        x: Annotated[int, Field(ge=0, le=5)] = 1

    class Outer(BaseModel):
        inner: Annotated[Inner, Field(description="words\n  of the field")] = Inner()
        maybe: Annotated[str, Field(max_length=3)] | None = None
        several: dict[Annotated[str, Field(pattern="^a$")], Inner] = {}

    found = structural(Outer.model_json_schema())
    inner = {"x": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 5, "default": 1}}
    assert found["properties"] == {
        "inner": {"type": "object", "description": "words of the field", "default": {}, "properties": inner},
        "maybe": {"type": "string", "maxLength": 3},
        "several": {"type": "object", "additionalProperties": {"type": "object", "properties": inner}},
    }


@pytest.mark.long
def test_the_files_parse_as_yaml_without_anchors() -> None:
    for path, text in outputs().items():
        if path.endswith(".yaml") and "crds/" in path:
            assert "&id" not in text
            assert yaml.safe_load(text)["kind"] == "CustomResourceDefinition"

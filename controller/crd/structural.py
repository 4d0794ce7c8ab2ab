"""Makes of the JSON schema of a pydantic model the structural schema that a CustomResourceDefinition takes.

The differences are few and all here: no `$ref`, no `additionalProperties: false` (an API server prunes or refuses what
is not named anyway), no `patternProperties`, `const` or `null`, lists say how they merge.  A default that is a whole
object becomes `{}`: its own fields have their defaults, and the two cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
_KEPT = (
    *("description", "type", "format", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties", "required", "default"),
)
_INTEGER_LIMIT = 2**31


def structural(schema: Mapping[str, Any]) -> Schema:
    """The schema of one model (draft 2020-12, definitions under `$defs`) as a structural one (OpenAPI 3.0).

    ValueError for what has no structural form: a float, a union of more than a type and null.
    """
    return _convert(dict(schema), schema.get("$defs", {}), "$")


def _convert(node: Schema, definitions: Mapping[str, Schema], where: str) -> Schema:
    node = _resolve(node, definitions, where)
    if node.get("type") == "number":
        raise ValueError(f"{where}: a float; use an integer or a quantity")
    found = {key: node[key] for key in _KEPT if key in node}
    found |= {key: value for key, value in node.items() if key.startswith("x-kubernetes-")}
    if "description" in found:
        found["description"] = re.sub(r"\s+", " ", found["description"]).strip()
    if "const" in node:
        found["enum"] = [node["const"]]
    if found.get("type") == "integer":
        found["format"] = "int64" if node.get("maximum", _INTEGER_LIMIT) >= _INTEGER_LIMIT else "int32"
    if node.get("x-kubernetes-int-or-string"):
        found["anyOf"] = node["anyOf"]
    if found.get("type") == "object":
        _convert_object(node, found, definitions, where)
    if "items" in node:
        found["items"] = _convert(node["items"], definitions, f"{where}[]")
        found.setdefault("x-kubernetes-list-type", "atomic")
    return found


def _convert_object(node: Schema, found: Schema, definitions: Mapping[str, Schema], where: str) -> None:
    if "properties" in node:
        found["properties"] = {
            name: _convert(value, definitions, f"{where}.{name}")
            for name, value in node["properties"].items()
        }
        if isinstance(found.get("default"), dict):
            found["default"] = {}
    else:
        by_pattern = node.get("patternProperties", {})
        values = next(iter(by_pattern.values()), node.get("additionalProperties"))
        if isinstance(values, dict):
            found["additionalProperties"] = _convert(values, definitions, f"{where}{{}}")
        if not found.get("default"):
            found.pop("default", None)  # an absent map is an empty one


def _resolve(node: Schema, definitions: Mapping[str, Schema], where: str) -> Schema:
    """Without references and without null, which an API server drops by itself; the outermost words win."""
    node = {key: value for key, value in node.items() if key != "title"}
    for inner in _alternatives(node, where):
        node = inner | {key: value for key, value in node.items() if key not in {"anyOf", "allOf"}}
        if node.get("default", 0) is None:
            del node["default"]
    if "$ref" in node:
        name = node.pop("$ref").rpartition("/")[2]
        own = {key: value for key, value in definitions[name].items() if key != "description"}
        node = _resolve(own | node, definitions, where)
    return node


def _alternatives(node: Schema, where: str) -> list[Schema]:
    if "x-kubernetes-int-or-string" in node or not ("anyOf" in node or "allOf" in node):
        return []
    several: list[Schema] = node["anyOf"] if "anyOf" in node else node["allOf"]
    inner = [one for one in several if one.get("type") != "null"]
    if len(inner) != 1:
        raise ValueError(f"{where}: a union of {len(inner)} types has no structural form")
    return inner

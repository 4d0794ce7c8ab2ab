"""JSON Schemas of Kubernetes' kinds for kubeconform, out of the OpenAPI of a real API server.

kubeconform takes one file for each kind, by default from an address on the internet.  What an API server says of itself is
the same and fits its version, and has custom kinds.  Objects are closed, as a field that the server does not know would be
dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.testbed.rest import Rest

LOCATION = "{{ .Group }}_{{ .ResourceAPIVersion }}_{{ .ResourceKind }}.json"
"""Of a schema below its folder, as a template of kubeconform; the core group has its version for a name."""
KIND = "x-kubernetes-group-version-kind"


def write(api: Rest, objects: Iterable[Mapping[str, Any]], folder: Path) -> None:
    """A schema for the kind of each object that the server knows; the others get none."""
    wanted = {(str(o["apiVersion"]), str(o["kind"])) for o in objects}
    known = api.get("/openapi/v3")["paths"]
    for version in sorted({version for version, _ in wanted}):
        group = version.partition("/")[0]
        path = f"apis/{version}" if "/" in version else f"api/{version}"
        if path not in known:
            continue
        schemas = _closed(api.get(f"/openapi/v3/{path}")["components"]["schemas"])
        for name, schema in schemas.items():
            for kind in (k["kind"] for k in schema.get(KIND, ()) if (version, k["kind"]) in wanted):
                target = folder / f"{group}_{version.rpartition('/')[2]}_{kind.lower()}.json"
                document = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
                target.write_text(json.dumps(document), encoding="utf-8")


def _closed(schema: Any) -> Any:
    """The schema, in which no object has fields beside those that are named, unless it says so itself."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(part) for key, part in schema.items()}
    open_to_all = "additionalProperties" in found or found.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(found.get("properties"), dict) and found.get("type") == "object" and not open_to_all:
        found["additionalProperties"] = False
    return found

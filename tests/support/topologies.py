"""Small resources for the tests of the topology model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from reprise.spark_jobs.topology import StreamTopology, from_json

MINIMAL = Path(__file__).parents[2] / "examples" / "minimal.yaml"
SOURCE = "reprise.spark_jobs.sources:HashtagSource"
SINK = "reprise.spark_jobs.operators:Sink"


def minimal(**kubernetes: Any) -> StreamTopology:
    """`examples/minimal.yaml`, with these fields of `kubernetes` alone."""
    body = yaml.safe_load(MINIMAL.read_text(encoding="utf-8"))
    body["spec"]["kubernetes"] = kubernetes
    return from_json(json.dumps(body))


def source(name: str = "s", parallelism: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "class": SOURCE, "parallelism": parallelism, "with": {"rate": 10}, **more}


def operator(
    name: str, *inputs: Any, parallelism: int = 1, output: Any = None, **more: Any
) -> dict[str, Any]:
    """An operator; an input may be a name or a whole mapping."""
    items = [{"from": i} if isinstance(i, str) else i for i in inputs]
    spec = {"name": name, "class": SINK, "parallelism": parallelism, "inputs": items, **more}
    return {**spec, "output": output} if output is not None else spec


def document(*items: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A resource of these sources and operators."""
    return {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "test"},
        "spec": {
            "sources": [i for i in items if "inputs" not in i],
            "operators": [i for i in items if "inputs" in i],
            **spec,
        },
    }

"""Small resources for the tests of the topology model."""

from __future__ import annotations

from typing import Any

SOURCE = "reprise.spark_jobs.sources:HashtagSource"
SINK = "reprise.spark_jobs.operators:Sink"


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

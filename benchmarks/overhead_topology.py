"""Hashtags counted as in Topology 1 of Su and Zhou: source -> parser -> count by hashtag, without windows.

Running counts and not windows, as that is the aggregation whose state can be set to a number of keys, and the one that means
the same in Structured Streaming (`groupBy("tag").count()` in update mode).
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.overhead_data import Data
from reprise.spark_jobs.topology import StreamTopology, from_json

NODE_CPU_MILLI = 1000
FASTEST = "1us"
"""Batches are always due, so the run goes as fast as it can (a resource may not say 0)."""
NEVER = "24h"
"""A checkpoint interval that no run reaches; the last batch of a stream is stored in any case."""


def files(data: Data) -> dict[str, Any]:
    """The source that reads the benchmark's files, one a batch."""
    return {
        "class": "reprise.sources:FileSource",
        "with": {"paths": data.paths, "rows": data.rows},
    }


def nearly_empty(batches: int) -> dict[str, Any]:
    """One tweet a batch: what remains of a superstep is Spark's and the machinery's own time."""
    parameters = {"rate": 2, "interval": "500ms", "batches": batches, "tags": 1000}
    return {"class": "reprise.sources:HashtagSource", "with": parameters}


def counting(
    name: str, source: dict[str, Any], nodes: int, interval: str, checkpoint: str, memory: str
) -> StreamTopology:
    """The topology with `nodes` partitions of each operator behind one source."""
    operators = [
        {
            "name": "parser",
            "class": "reprise.operators:FlatMap",
            "parallelism": nodes,
            "with": {"explode": ["hashtags"], "select": ["hashtags AS tag"]},
            "inputs": [{"from": "tweets", "by": ["tweet"]}],
        },
        {
            "name": "count",
            "class": "reprise.operators:KeyedCount",
            "parallelism": nodes,
            "with": {"keys": ["tag"]},
            "inputs": [{"from": "parser", "by": ["tag"]}],
            "output": {"format": "parquet"},
        },
    ]
    spec = {
        "batch": {"interval": interval},
        "sources": [{"name": "tweets", **source, "resources": {"cpu": "100m"}}],
        "operators": [{**o, "resources": {"cpu": "200m"}} for o in operators],
        "checkpoint": {"interval": checkpoint},
        "spark": {"executorMemory": memory},
        "nodes": {"count": nodes, "cpu": f"{NODE_CPU_MILLI}m"},
    }
    resource = {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": name},
        "spec": spec,
    }
    return from_json(json.dumps(resource))

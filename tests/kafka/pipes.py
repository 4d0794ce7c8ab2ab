"""Small topologies from Kafka to Kafka, on partition hosts in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.topology import StreamTopology, from_json
from tests.kafka.broker import Broker
from tools.testbed.local_engine import World

COLUMNS = {"id": "int64", "time": "int64", "name": "string"}


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows with event times a second apart."""
    return [{"id": i, "time": i * 1_000_000, "name": f"n{i % 7}"} for i in range(first, first + count)]


def table(found: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an operator emits them."""
    return pa.Table.from_pylist([dict(row) for row in found])


def pipe(
    source: Mapping[str, Any], sink: Mapping[str, Any], *, readers: int = 1, writers: int = 1, **spec: Any
) -> StreamTopology:
    """source -> copy -> topic."""
    resource = {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "pipe"},
        "spec": {
            "sources": [
                {
                    "name": "in",
                    "class": "reprise.spark_jobs.kafka:KafkaSource",
                    "parallelism": readers,
                    "with": dict(source),
                }
            ],
            "operators": [
                {
                    "name": "out",
                    "class": "reprise.spark_jobs.operators:Filter",
                    "parallelism": writers,
                    "with": {"where": "id >= 0"},
                    "inputs": [{"from": "in", **({"by": ["id"]} if writers > 1 else {})}],
                    "output": {"sink": {"class": "reprise.spark_jobs.kafka:KafkaSink", "with": dict(sink)}},
                }
            ],
            "checkpoint": {"everyBatches": 3},
            **spec,
        },
    }
    return from_json(json.dumps(resource))


def source(broker: Broker, topic: str, **more: Any) -> dict[str, Any]:
    """Parameters of a source over one topic of `rows`."""
    return {
        "brokers": broker.address,
        "topics": [topic],
        "columns": COLUMNS,
        "time": {"column": "time"},
        **more,
    }


def sink(broker: Broker, topic: str, **more: Any) -> dict[str, Any]:
    """Parameters of a sink."""
    return {"brokers": broker.address, "topic": topic, **more}


def world(resource: StreamTopology, folder: Path, *nodes: str) -> World:
    """The topology at work on some nodes."""
    made = World(resource, folder, "run", brokers=True)
    made.nodes.start(*nodes)
    made.want(0, 0, made.spread(*nodes))
    return made

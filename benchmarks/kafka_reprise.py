"""The topology of the Kafka benchmark: source -> filter -> sink, partition i to partition i, so rows do not move between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.kafka_topics import COLUMNS, until
from benchmarks.overhead_topology import NODE_CPU_MILLI
from reprise.spark_jobs.topology import StreamTopology, from_json

CHECKPOINT = "20s"


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the memory of a partition: rows a batch, KiB fetched ahead, what may wait for the brokers."""

    rows: int
    fetched_kib: int
    waiting: str


def pipe(
    brokers: str, origin: str, target: str, *, rows: int, logs: int, nodes: int, interval: str, memory_mb: int,
    limits: Limits,
) -> StreamTopology:  # fmt: skip
    """Reads `rows` rows and ends."""
    source = {
        "brokers": brokers,
        "topics": [origin],
        "columns": COLUMNS,
        "time": {"column": "time"},
        "batch_rows": limits.rows,
        "until": until(origin, rows, logs),
        "config": {"queued.max.messages.kbytes": limits.fetched_kib},
    }
    sink = {"brokers": brokers, "topic": target, "key": ["id"], "buffer": limits.waiting}
    spec: Mapping[str, Any] = {
        "batch": {"interval": interval},
        "sources": [_part("in", nodes, "reprise.kafka:KafkaSource", source)],
        "operators": [
            {
                **_part("out", nodes, "reprise.operators:Filter", {"where": "id >= 0"}),
                "inputs": [{"from": "in", "forward": True}],
                "output": {"sink": {"class": "reprise.kafka:KafkaSink", "with": sink}},
            }
        ],
        "checkpoint": {"interval": CHECKPOINT},
        "spark": {"executorMemory": f"{memory_mb}Mi"},
        "nodes": {"count": nodes, "cpu": f"{NODE_CPU_MILLI}m"},
    }
    head = {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": target}}
    return from_json(json.dumps({**head, "spec": spec}))


def _part(name: str, parallelism: int, kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "class": kind,
        "parallelism": parallelism,
        "with": dict(parameters),
        "resources": {"cpu": "100m"},
    }

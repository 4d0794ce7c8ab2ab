"""Invariant R1 on a real cluster: a state of a million keys, and ten minutes of a stream buffered while half of the
partitions are missing, stay within what is configured; what is more goes to disk.

Ten minutes are 1,200 batches of 500 ms, released ten times as fast.  Two nodes run source and parsers, two run the counts;
the counts are lost, and the two nodes that are left have no room for them, so parsers buffer for both until nodes come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.overhead_data import Data, write
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.node.buffers import IN_FLIGHT
from reprise.spark_jobs.topology import StreamTopology, from_json
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]

KEYS = 1_000_000
ROWS = 1_000
BEFORE = 300
"""Batches until the first checkpoint, which holds the whole state, and the failure after it; with some to spare."""
BUFFERED = 1_200
INTERVAL_S = 0.05
LIMIT = 8 * 2**20
"""Of one node's buffers, as configured below."""
READERS, STAGES, COPIES = 2, 3, 2
NODE_SLACK = READERS * STAGES * COPIES * IN_FLIGHT + 64 * 2**20
"""What a partition host may grow by besides its buffers: what is under way to the two counts, in each stage of a job, as
bundle and as reply that is kept for a re-run; and the reserves of Arrow and the allocator."""


def topology(data: Data) -> StreamTopology:
    """Source and parsers leave no room for a count on their nodes."""
    count = {"name": "count", "class": "reprise.spark_jobs.operators:KeyedCount", "parallelism": 2}
    parser = {"name": "parser", "class": "reprise.spark_jobs.operators:FlatMap", "parallelism": 2}
    spec = {
        "batch": {"interval": f"{INTERVAL_S * 1000:g}ms"},
        "sources": [
            {
                "name": "tweets",
                "class": "reprise.spark_jobs.sources:FileSource",
                "with": {"paths": data.paths, "rows": data.rows},
                "resources": {"cpu": "20m"},
            }
        ],
        "operators": [
            parser
            | {
                "with": {"explode": ["hashtags"], "select": ["hashtags AS tag"]},
                "inputs": [{"from": "tweets", "by": ["tweet"]}],
                "resources": {"cpu": "120m"},
            },
            count
            | {
                "with": {"keys": ["tag"]},
                "inputs": [{"from": "parser", "by": ["tag"]}],
                "resources": {"cpu": "140m"},
                "output": {"format": "parquet"},
            },
        ],
        "checkpoint": {"everyBatches": 100},
        "recovery": {"bufferMemory": str(LIMIT), "timeLimit": "1s"},
        "nodes": {"count": 4, "cpu": "200m"},
    }
    resource = {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "memory"},
    }
    return from_json(json.dumps(resource | {"spec": spec}))


class Gauge:
    """Samples what the run says of its buffers, and what the kernel says of the partition hosts."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.most_memory = self.most_disk = 0
        self.before: dict[int, int] = {}
        self.peak: dict[int, int] = {}

    def __call__(self, state: RunState, _: object) -> None:
        progress = state.observation.progress
        sizes = self._resident()
        if progress is None or not progress.positions:
            return
        if state.observation.incident is None:
            if progress.checkpoint and not self.peak:
                self.before = sizes
            return
        self.most_memory = max(self.most_memory, progress.buffers.get("memory", 0))
        self.most_disk = max(self.most_disk, progress.buffers.get("disk", 0))
        for pid in sizes.keys() & self.before.keys():
            self.peak[pid] = max(self.peak.get(pid, 0), sizes[pid])

    def _resident(self) -> Mapping[int, int]:
        """Resident bytes of every partition host by pid."""
        found = {}
        for handshake in self.cluster.scratch.glob("nodes/*/work/*/*/partition-host.json"):
            try:
                pid = int(json.loads(handshake.read_text())["pid"])
                found[pid] = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
            except (OSError, ValueError):
                continue  # a host that is gone
        return found


def test_a_million_keys_and_ten_minutes_of_buffering_stay_within_the_limits(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    data = write(tmp_path / "data", KEYS, ROWS, BEFORE + BUFFERED + 60)
    resource = topology(data)
    faults: list[dict[str, Any]] = [
        {"on": "checkpoint", "delay": "1s", "kill": ["@count"]},
        {"after": "0", "delay": BUFFERED * INTERVAL_S, "add": 2},
    ]
    gauge = Gauge(cluster)
    result = scenario.run(resource, cluster, tmp_path / "out", faults, watch=gauge)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    nodes_with_parsers = 2
    assert gauge.most_disk > LIMIT, "the buffers must have spilled"
    assert 0 < gauge.most_memory <= nodes_with_parsers * LIMIT
    assert gauge.peak, "the survivors must have been seen before and during the incident"
    for pid, peak in gauge.peak.items():
        assert peak - gauge.before[pid] <= LIMIT + NODE_SLACK, (peak, gauge.before[pid])

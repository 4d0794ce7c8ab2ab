"""Invariant R1 on a real cluster: a state of a million keys, and ten minutes of a stream buffered while half of the
partitions are missing, stay within what is configured; what is more goes to disk.

Ten minutes are 1,200 batches of 500 ms, released ten times as fast.  The nodes of both counts are killed, and the others
have no room for them.  Source and parsers serve a third query, which is whole, and buffer for both counts until two nodes
come: when parsers have finished all 1,200 batches.
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
STANDS_AT = 110
"""Behind the first checkpoint, which holds the whole state, the stream waits until nodes were killed."""
BUFFERED = 1_200
BEHIND = 60
"""Batches behind those that are buffered."""
INTERVAL_S = 0.05
LIMIT = 8 * 2**20
"""Of one node's buffers, as configured below."""
READERS, STAGES, COPIES = 2, 3, 2
NODE_SLACK = READERS * STAGES * COPIES * IN_FLIGHT + 64 * 2**20
"""What a partition host may grow by besides its buffers: what is under way to the two counts, in each stage of a job, as
bundle and as reply that is kept for a re-run; and the reserves of Arrow and the allocator."""


def topology(data: Data, gate: Path) -> StreamTopology:
    """Each partition takes more than half of a node, so each is on a node of its own."""
    files = {"paths": data.paths, "rows": data.rows, "upto": STANDS_AT, "gate": str(gate)}
    count = {"name": "count", "class": "reprise.spark_jobs.operators:KeyedCount", "parallelism": 2}
    parser = {"name": "parser", "class": "reprise.spark_jobs.operators:FlatMap", "parallelism": 2}
    spec = {
        "batch": {"interval": f"{INTERVAL_S * 1000:g}ms"},
        "sources": [
            {
                "name": "tweets",
                "class": "tests.support.straggling:GatedFiles",
                "with": files,
                "resources": {"cpu": "120m"},
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
                "resources": {"cpu": "160m"},
                "output": {"format": "parquet"},
            },
            {
                "name": "rare",
                "class": "reprise.spark_jobs.operators:Filter",
                "with": {"where": "tag = 'tag999999'"},
                "inputs": [{"from": "parser", "by": ["tag"]}],
                "resources": {"cpu": "120m"},
                "output": {"format": "parquet"},
            },
        ],
        "checkpoint": {"everyBatches": 100},
        "recovery": {"bufferMemory": str(LIMIT), "timeLimit": "1s"},
        "nodes": {"count": 6, "cpu": "200m"},
    }
    resource = {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "memory"},
    }
    return from_json(json.dumps(resource | {"spec": spec}))


class Gauge:
    """Samples what the run reports of its buffers, and what the kernel reports of the partition hosts.  Opens the gate when
    nodes were killed, and adds two when parsers have finished what is to be buffered."""

    def __init__(self, cluster: EmbeddedCluster, gate: Path) -> None:
        self.cluster = cluster
        self.gate = gate
        self.added = False
        self.most_memory = self.most_disk = 0
        self.before: dict[int, int] = {}
        self.peak: dict[int, int] = {}

    def __call__(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        if any(action["action"] == "kill" for action in actions):
            self.gate.touch()
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
        parsed = [progress.positions.get(f"parser.{index}", 0) for index in range(2)]
        if not self.added and min(parsed) >= STANDS_AT + BUFFERED:
            self.added = True
            for _ in range(2):
                self.cluster.add_node()

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
    data = write(tmp_path / "data", KEYS, ROWS, STANDS_AT + BUFFERED + BEHIND)
    gate = tmp_path / "open"
    resource, gauge = topology(data, gate), Gauge(cluster, gate)
    kill: dict[str, Any] = {"on": "checkpoint", "delay": "1s", "kill": ["@count"]}
    path = str(scenario.PROJECT)
    result = scenario.run(resource, cluster, tmp_path / "out", [kill], watch=gauge, python_path=path)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert gauge.added, "both counts must have been missing for all that time"
    of_source_and_parsers = 3
    assert gauge.most_disk > LIMIT, "the buffers must have spilled"
    assert 0 < gauge.most_memory <= of_source_and_parsers * LIMIT
    assert gauge.peak, "the survivors must have been seen before and during the incident"
    for pid, peak in gauge.peak.items():
        assert peak - gauge.before[pid] <= LIMIT + NODE_SLACK, (peak, gauge.before[pid])

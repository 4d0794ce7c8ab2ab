"""States larger than the memory that they may take, on a real cluster: the nodes that have them are killed while they are on
disk, the output is as without faults, and nothing of them stays on the disks.  The first checkpoint holds whole states.

Each of two counts has 150,000 keys: columns of numbers of more than a MiB, and as many of keys.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.overhead_data import Data, write
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import StreamTopology, from_json
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]

KEYS = 300_000
ROWS = 500
BATCHES = 60


STANDS_AT = 45
"""Behind two checkpoints the stream waits until nodes have been lost."""


def topology(data: Data, gate: Path) -> StreamTopology:
    """Source, parsers and counts have room on any node."""
    parser = {
        "name": "parser",
        "class": "reprise.spark_jobs.operators:FlatMap",
        "parallelism": 2,
        "resources": {"cpu": "50m"},
    }
    count = {
        "name": "count",
        "class": "reprise.spark_jobs.operators:KeyedCount",
        "parallelism": 2,
        "resources": {"cpu": "50m"},
    }
    files = {"paths": data.paths, "rows": data.rows, "upto": STANDS_AT, "gate": str(gate)}
    spec = {
        "batch": {"interval": "200ms"},
        "sources": [
            {
                "name": "tweets",
                "class": "tests.support.straggling:GatedFiles",
                "with": files,
                "resources": {"cpu": "50m"},
            }
        ],
        "operators": [
            parser
            | {
                "with": {"explode": ["hashtags"], "select": ["hashtags AS tag"]},
                "inputs": [{"from": "tweets", "by": ["tweet"]}],
            },
            count
            | {
                "with": {"keys": ["tag"]},
                "inputs": [{"from": "parser", "by": ["tag"]}],
                "output": {"format": "parquet"},
            },
        ],
        "checkpoint": {"everyBatches": 20, "state": "paged", "stateMemory": "1Mi"},
        "recovery": {"timeLimit": "1s"},
        "nodes": {"count": 4, "cpu": "600m"},
    }
    resource = {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "spilled"},
    }
    return from_json(json.dumps(resource | {"spec": spec}))


class Looks:
    """Partition hosts that have mapped more than a MiB of files without names, as the kernel says it.  Opens the gate when
    nodes were lost."""

    def __init__(self, cluster: EmbeddedCluster, gate: Path) -> None:
        self.gate = gate
        self.within = str(cluster.scratch)
        self.before: set[int] = set()
        """Seen before anything was lost."""
        self.after: set[int] = set()
        """Seen later for the first time."""
        self._lost = False

    def __call__(self, state: RunState, _: object) -> None:
        if state.observation.incident is not None:
            self._lost = True
            self.gate.touch()
        for process in psutil.process_iter(["cmdline"]):
            if not any("node.host_process" in word for word in process.info["cmdline"] or ()):
                continue
            with contextlib.suppress(OSError):  # it is gone
                if self._mapped(process.pid) > 2**20 and process.pid not in self.before:
                    (self.after if self._lost else self.before).add(process.pid)

    def _mapped(self, pid: int) -> int:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        ours = [line for line in lines if self.within in line and "/state-" in line and "(deleted)" in line]
        spans = [line.split()[0].split("-") for line in ours]
        return sum(int(end, 16) - int(start, 16) for start, end in spans)


def test_killed_with_their_states_on_disk(large_nodes: EmbeddedCluster, tmp_path: Path) -> None:
    data = write(tmp_path / "data", KEYS, ROWS, BATCHES)
    gate = tmp_path / "open"
    resource, looks = topology(data, gate), Looks(large_nodes, gate)
    faults: list[dict[str, Any]] = [
        {"on": "checkpoint", "delay": "1s", "kill": ["@count"]},
        {"on": "plan", "add": 2},
    ]
    path = str(scenario.PROJECT)
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults, watch=looks, python_path=path)
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert result.incident["incidents"], "the faults must have been noticed"
    assert looks.before, f"states were on disk before the loss, and not only after it: {looks.after}"
    assert looks.after, "and where they were restored"
    assert not list(large_nodes.scratch.glob("**/states/state-*")), "files of states have no name"

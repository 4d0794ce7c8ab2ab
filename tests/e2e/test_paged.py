"""States in pages on a real cluster: SIGKILL of two of four nodes, the output as without faults, and checkpoints that share
files and are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]

NODES = 4


def test_output_is_as_without_faults(large_nodes: EmbeddedCluster, expected: Path, tmp_path: Path) -> None:
    resource = scenario.topology2(
        NODES, **{"nodes.cpu": "600m", "checkpoint.state": "paged", "checkpoint.interval": "1s"}
    )
    faults = [{"batch": 16, "kill": ["n3", "n4"]}, {"on": "plan", "add": 2}]
    result = scenario.run(resource, large_nodes, tmp_path / "out", faults)
    scenario.assert_exactly_once(result, expected)
    assert result.incident["incidents"], "the faults must have been noticed"
    store = CheckpointStore(str(result.out / "checkpoints"))
    kept = [store.verify(position) for position in store.positions()]
    others = {path for manifest in kept for file in manifest.files.values() for path in file.others}
    assert others, "pages are in the files of earlier checkpoints"
    assert any(file.all_bytes for manifest in kept for file in manifest.files.values())

"""States stored slot by slot on a real cluster: SIGKILL of two of four nodes, and of the driver; output as without faults,
from windows of different ages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]

NODES = 4
TWO_NODES: list[Mapping[str, Any]] = [{"batch": 16, "kill": ["n3", "n4"]}, {"on": "plan", "add": 2}]
DRIVER: list[Mapping[str, Any]] = [{"batch": 16, "crash": "driver"}]


def resource_of() -> StreamTopology:
    """Many auctions with few bids, whose windows stay open for long, beside a few with many."""
    changes = {
        "sources[bids].with.batches": scenario.BATCHES,
        "sources[bids].with.rate": 400,
        "nodes.count": NODES,
        "nodes.cpu": "600m",
        "checkpoint.interval": "1s",
        "checkpoint.eventual": {"replay": 1500, "every": "20ms"},
    }
    return override(load_topology("examples/count-windows.yaml"), changes)


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scenario.write_expected(resource_of(), tmp_path_factory.mktemp("expected"))


@pytest.mark.parametrize("faults", [TWO_NODES, DRIVER], ids=["two nodes", "driver"])
def test_output_is_as_without_faults(
    faults: list[Mapping[str, Any]], large_nodes: EmbeddedCluster, windows: Path, tmp_path: Path
) -> None:
    result = scenario.run(resource_of(), large_nodes, tmp_path / "out", faults)
    scenario.assert_exactly_once(result, windows)
    assert result.incident["incidents"], "the faults must have been noticed"
    segments = list((result.out / "checkpoints").glob("cp-*/average.*.log"))
    assert segments, "windows were stored in logs"

"""A join over windows and a cyclic query while nodes are killed: real Spark, SIGKILL, and the output as without faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BATCHES = 24
"""A window of Q8 and a part of the next; the nodes die in the first."""
FAULTS: Sequence[Mapping[str, Any]] = [
    {"batch": 8, "kill": ["n3", "n4"]},
    {"on": "plan", "delay": "1s", "add": 2},
]
EXAMPLES: dict[str, dict[str, Any]] = {
    "nexmark-q8": {
        f"sources[{name}].with.{key}": value
        for name in ("persons", "auctions")
        for key, value in {"rate": 400, "hot": 0.2}.items()
    },
    # Few nodes and so many paths: most batches bring some over the feedback edge.
    "reachability": {
        f"sources[{name}].with.{key}": value
        for name in ("links", "sources", "deletes")
        for key, value in {"rate": 40, "nodes": 150}.items()
    },
}


def resource(name: str) -> StreamTopology:
    changes = EXAMPLES[name] | {"checkpoint.interval": "3s"}
    found = load_topology(f"examples/{name}.yaml", changes)
    return override(found, {f"sources[{source.name}].with.batches": BATCHES for source in found.sources})


@pytest.mark.parametrize("name", EXAMPLES)
def test_output_is_as_without_faults(name: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    expected = scenario.write_expected(resource(name), tmp_path / "expected")
    result = scenario.run(resource(name), cluster, tmp_path / "out", FAULTS)
    scenario.assert_exactly_once(result, expected)
    assert result.incident["incidents"], "the faults must have been noticed"

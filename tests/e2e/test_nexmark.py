"""A join over windows and a cyclic query while nodes are killed: real Spark, SIGKILL, and the output as without faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]

BATCHES = {"nexmark-q8": 24, "reachability": 16}
"""Of Q8 a window and a part of the next.  A cycle over several nodes needs a superstep for each node on its way,
and so takes more time for a batch."""
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
    return override(
        found, {f"sources[{source.name}].with.batches": BATCHES[name] for source in found.sources}
    )


def faults(name: str) -> Sequence[Mapping[str, Any]]:
    """Two of four nodes die after a third of the stream, and others come when there is a plan."""
    return [{"batch": BATCHES[name] // 3, "kill": ["n3", "n4"]}, {"on": "plan", "delay": "1s", "add": 2}]


@pytest.mark.parametrize("name", ["nexmark-q8", "reachability"])
def test_output_is_as_without_faults(name: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    expected = scenario.write_expected(resource(name), tmp_path / "expected")
    result = scenario.run(resource(name), cluster, tmp_path / "out", faults(name))
    scenario.assert_exactly_once(result, expected)
    assert result.incident["incidents"], "the faults must have been noticed"

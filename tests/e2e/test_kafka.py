"""From Kafka to Kafka on real Spark: two of four nodes are killed at once, and every (key, window) is counted."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from examples.demo import flights_kafka as demo_kafka
from tests.support.told_cluster import ToldCluster

pytestmark = pytest.mark.slow
FAULTS = """
- {on: checkpoint, kill: [n3, n4], name: burst}
- {after: burst, delay: 2s, add: 2}
"""


def test_two_of_four_nodes_are_killed_and_every_row_is_there_once(
    large_nodes: ToldCluster, tmp_path: Path
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text(FAULTS)
    said = io.StringIO()
    console = Console(file=said, width=200)
    options = demo_kafka.parse(
        [
            *("--nodes", "4", "--cpu", "600m", "--rows", "20000", "--seconds", "20"),
            *("--faults", str(faults), "--out", str(tmp_path / "out"), "--quiet"),
        ]
    )
    result, found = demo_kafka.play(console, options, large_nodes)
    assert demo_kafka.show(console, result, found), said.getvalue()
    assert [i["kind"] for i in result.incident["incidents"]] == ["correlated"]

"""A batch that is larger than an executor's memory for it travels from node to node."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.topology import load_text
from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster

pytestmark = [pytest.mark.slow, pytest.mark.wide]

TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: large}
spec:
  batch: {interval: 1s}
  sources:
    - {name: large, class: "tests.support.large_batch:Large", resources: {cpu: 450m}}
  operators:
    - name: count
      class: reprise.operators:KeyedCount
      with: {keys: [key]}
      resources: {cpu: 450m}
      inputs: [{from: large, by: [key]}]
      output: {priority: 1}
  checkpoint: {everyBatches: 10}
  nodes: {count: 2, cpu: 600m}
"""


def test_it_ends_no_executor(large_nodes: ToldCluster, tmp_path: Path) -> None:
    resource = load_text(TOPOLOGY)
    result = scenario.run(resource, large_nodes, tmp_path / "out", [])
    scenario.assert_exactly_once(result, scenario.write_expected(resource, tmp_path / "expected"))
    assert not result.incident["incidents"]

"""A cycle with `batch.order: arrival` on a real cluster: SIGKILL of two of four nodes while rows go round, and each row is
shown once on each of its laps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.run.config import Outcome
from reprise.scheduler.incident import Kind
from reprise.spark_jobs.node.state_tables import FEEDBACK
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import encoded
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import StreamTopology, expand, load_text
from tests.e2e import scenario
from tests.e2e.test_arrival import Watch, require_rows

pytestmark = [pytest.mark.slow, pytest.mark.wide]

PROJECT = Path(__file__).parents[2]
QUIET = 16
"""Batches at the end without rows: more than a row has laps, so that nothing goes round any more."""
TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: laps}
spec:
  batch: {interval: 500ms, order: arrival}
  sources:
    - name: east
      class: tests.support.cycles:QuietWhenTold
      parallelism: 2
      resources: {cpu: 100m}
      with: {file: FILE, quiet: 16, rate: 200, interval: 500ms, tags: 60, seed: 7}
    - name: west
      class: tests.support.cycles:QuietWhenTold
      resources: {cpu: 100m}
      with: {file: FILE, quiet: 16, rate: 100, interval: 500ms, tags: 60, seed: 8}
  operators:
    - name: parse
      class: reprise.operators:FlatMap
      parallelism: 2
      resources: {cpu: 100m}
      with: {explode: [hashtags], select: ["hashtags AS tag", time, "12 AS laps"]}
      inputs: [{from: east, forward: true}]
    - name: read
      class: reprise.operators:FlatMap
      resources: {cpu: 100m}
      with: {explode: [hashtags], select: ["hashtags AS tag", time, "12 AS laps"]}
      inputs: [{from: west}]
    - name: round
      class: reprise.operators:Union
      parallelism: 3
      resources: {cpu: 100m}
      inputs: [{from: parse, by: [tag]}, {from: back, by: [tag], feedback: true}, {from: read, by: [tag]}]
      output: {priority: 3}
    - name: back
      class: reprise.operators:Map
      parallelism: 2
      resources: {cpu: 100m}
      with: {select: [tag, time, "laps - 1 AS laps"], where: laps > 0}
      inputs: [{from: round, by: [time]}]
    - name: counted
      class: tests.support.cycles:Nth
      deterministic: true
      resources: {cpu: 100m}
      inputs: [{from: back}]
      output: {priority: 9}
  checkpoint: {interval: 2s, keep: 100}
  nodes: {count: 4, cpu: 600m}
"""
FAULTS: list[Mapping[str, Any]] = [
    {"on": "checkpoint", "delay": "1s", "kill": ["n3", "n4"]},
    {"on": "plan", "delay": "3s", "add": 2},
]


def definition(resource: StreamTopology) -> dict[str, Counter[bytes]]:
    """The rows of each output partition of a run in one process, which ends at the same batch."""
    found = {query: Counter[bytes]() for query in expand(resource).queries}
    for batch in run_local(resource):
        for query, rows in found.items():
            if (table := batch[query]) is not None:
                rows.update(encoded("jsonl", table).splitlines())
    return found


def under_way(store: CheckpointStore, checkpoint: int) -> int:
    """Rows that a checkpoint has of feedback edges."""
    files = [s.file for s in store.manifest(checkpoint).snapshots.values() if s.file is not None]
    tables = [(name, table) for file in files for name, table in store.read_state(file).items()]
    return sum(table.num_rows for name, table in tables if name.startswith(FEEDBACK))


def test_rows_are_those_without_failures(large_nodes: EmbeddedCluster, tmp_path: Path) -> None:
    watch = Watch(tmp_path / "ends")
    resource = load_text(TOPOLOGY.replace("FILE", str(watch.ends)))
    result = scenario.run(resource, large_nodes, tmp_path / "out", FAULTS, watch, python_path=str(PROJECT))
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}; logs in {result.out / 'logs'}"
    assert result.record["unfired"] == []
    assert {i["kind"] for i in result.incident["incidents"]} == {Kind.CORRELATED}
    orders = re.findall(r"event=order order=(\w+)", (result.out / "logs" / "driver.log").read_text())
    assert orders == ["arrival", "aligned", "arrival"]
    assert watch.while_kept and not any(watch.while_kept)
    store, last = CheckpointStore(str(result.out / "checkpoints")), int(watch.ends.read_text())
    assert max(store.positions()) == last + QUIET + 1
    assert under_way(store, result.incident["incidents"][0]["checkpoint"]), "what everything went back to"
    require_rows(result.out, definition(resource), last + QUIET + 1)

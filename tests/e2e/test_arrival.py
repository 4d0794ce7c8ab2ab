"""`batch.order: arrival` on a real cluster: SIGKILL of two of four nodes, the rows shown are those of a run without
failures, and the order is that of arrival, then aligned for as long as the incident lasts, then that of arrival again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.run.config import Outcome
from reprise.controller.status.query_state import RunState
from reprise.scheduler.incident import Kind
from reprise.scheduler.model import Progress
from reprise.spark_jobs.node.counters import APPLIED_EARLY
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import encoded
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import StreamTopology, expand, load_text, override
from tests.e2e import scenario
from tests.support.straggling import end_stream

pytestmark = [pytest.mark.slow, pytest.mark.wide]

PROJECT = Path(__file__).parents[2]
TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: arrival}
spec:
  batch: {interval: 500ms, order: arrival}
  sources:
    - name: east
      class: tests.support.straggling:EndsWhenTold
      parallelism: 2
      resources: {cpu: 100m}
      with: {file: FILE, rate: 200, tags: 60, seed: 7}
    - name: west
      class: tests.support.straggling:EndsWhenTold
      resources: {cpu: 100m}
      with: {file: FILE, rate: 100, tags: 60, seed: 8}
  operators:
    - name: parse
      class: reprise.operators:FlatMap
      parallelism: 2
      resources: {cpu: 100m}
      with: {explode: [hashtags], select: ["hashtags AS tag", "time"]}
      inputs: [{from: east, forward: true}]
    - name: read
      class: reprise.operators:FlatMap
      resources: {cpu: 100m}
      with: {explode: [hashtags], select: ["hashtags AS tag", "time"]}
      inputs: [{from: west}]
    - name: all
      class: reprise.operators:Union
      parallelism: 3
      resources: {cpu: 100m}
      inputs: [{from: parse, by: [tag]}, {from: read, by: [tag]}]
      output: {}
    - name: windows
      class: reprise.operators:TumblingWindow
      parallelism: 2
      resources: {cpu: 100m}
      with: {size: 2s, keys: [tag], aggregate: {seen: count()}}
      inputs: [{from: all, by: [tag]}]
      output: {priority: 3}
    - name: totals
      class: reprise.operators:TumblingWindow
      resources: {cpu: 100m}
      with: {size: 4s, aggregate: {seen: sum(seen)}}
      inputs: [{from: windows}]
      output: {priority: 9}
  checkpoint: {interval: 2s}
  nodes: {count: 4, cpu: 600m}
"""
FAULTS: list[Mapping[str, Any]] = [
    {"on": "checkpoint", "delay": "1s", "kill": ["n3", "n4"]},
    {"on": "plan", "delay": "3s", "add": 2},
]
MORE = 10
"""Batches after everything that the test waits for was seen."""


class Watch:
    """Ends the stream once partitions apply in the order of arrival again after the incident, however long that takes."""

    def __init__(self, ends: Path) -> None:
        self.ends = ends
        self.while_kept = list[int]()
        """How many messages were applied early, by each report of partitions that had begun again in the incident."""

    def __call__(self, state: RunState, _actions: list[dict[str, Any]]) -> None:
        desired, progress = state.observation.desired, state.observation.progress
        if desired is None or progress is None or progress.seq != desired.seq:
            return
        if desired.retain:
            self.while_kept.append(early(progress))
        elif self.while_kept:
            self.end_if_early(progress)

    def end_if_early(self, progress: Progress) -> None:
        if early(progress) and not self.ends.exists():
            end_stream(self.ends, MORE)


def early(progress: Progress) -> int:
    """How many messages were applied early by the partitions that are at work."""
    return sum(counted.get(APPLIED_EARLY, 0) for counted in progress.counters.values())


def require_rows(out: Path, definition: Mapping[str, Counter[bytes]], final: int) -> None:
    """Each output partition has a file for each batch up to `final`, and in them the rows of its definition, each once."""
    for query, rows in definition.items():
        operator, _, index = query.rpartition(".")
        files = sorted((out / "sink" / operator / index).iterdir())
        assert [f.name for f in files] == [f"batch-{b:08d}.jsonl" for b in range(1, final + 1)], query
        shown = Counter(line for f in files for line in f.read_bytes().splitlines())
        assert rows and shown == rows, (
            query,
            list((shown - rows).items())[:5],
            list((rows - shown).items())[:5],
        )


def definition(resource: StreamTopology, ends: Path, offsets: Mapping[str, int]) -> dict[str, Counter[bytes]]:
    """The rows of each output partition of a run in one process over the same input."""
    ends.write_text(json.dumps({p: offsets[p] for p in ("east.0", "east.1", "west.0")}))
    changes = {f"sources[{name}].with.file": str(ends) for name in ("east", "west")}
    found = {query: Counter[bytes]() for query in expand(resource).queries}
    for batch in run_local(override(resource, changes)):
        for query, rows in found.items():
            if (table := batch[query]) is not None:
                rows.update(encoded("jsonl", table).splitlines())
    return found


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
    store = CheckpointStore(str(result.out / "checkpoints"))
    final = max(store.positions())
    expected = definition(resource, tmp_path / "definition", store.manifest(final).offsets)
    require_rows(result.out, expected, final)

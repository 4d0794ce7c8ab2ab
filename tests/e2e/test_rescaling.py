"""Two partitions of an operator, then three, then two again, each from a savepoint of the one before, on a real cluster with
nodes killed behind each savepoint: each key gives, once and in order, what one run without a break gives.

The input has no end until a run has seen its savepoint: the next goes on from there, and nobody waits for what is behind it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reprise.controller.cli import main
from reprise.controller.cli.savepoint_command import new_wish
from reprise.controller.cli.target_local import ZooKeeperTarget
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.report.layout import read_record
from reprise.controller.local.run.config import Outcome, RunResult
from reprise.controller.status.query_state import RunState
from reprise.controller.zookeeper.savepoint_records import SavepointsRecord
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.state.savepoints import Savepoint, Savepoints
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]
OUTPUTS = ("count", "window")
Rows = dict[tuple[str, str], list[tuple[int, Any]]]
"""By operator and tag: batch and row of each, in order."""
TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: NAME}
spec:
  batch: {interval: 500ms}
  sources:
    - name: tweets
      class: reprise.sources:HashtagSource
      parallelism: 2
      with: {rate: 200, interval: 500ms, tags: 60, seed: 3}
      resources: {cpu: 20m}
  operators:
    - name: parse
      class: reprise.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags], select: [time, hashtags AS tag]}
      resources: {cpu: 20m}
      inputs: [{from: tweets, forward: true}]
    - name: window
      class: reprise.operators:TumblingWindow
      parallelism: 3
      with: {size: 2s, keys: [tag], aggregate: {tweets: count()}}
      resources: {cpu: 40m}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 3}
    - name: count
      class: reprise.operators:KeyedCount
      parallelism: 2
      with: {keys: [tag]}
      resources: {cpu: 40m}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 1}
  checkpoint: {everyBatches: 10}
  nodes: {count: 4, cpu: 600m}
"""


def named(name: str, **changes: object) -> StreamTopology:
    return override(load_text(TEXT.replace("NAME", name)), changes)


def in_partitions(out: Path, count: int, before: RunResult | None = None) -> StreamTopology:
    """To run in the folder `out`, which gives it its name."""
    changes: dict[str, object] = {"operators[count].parallelism": count}
    if before is not None:
        start = {"location": str((before.out / "checkpoints").resolve()), "savepoint": "before-v2"}
        changes["checkpoint.startFrom"] = start
    (ends := out.parent / f"{out.name}-ends").mkdir(exist_ok=True)
    return scenario.without_end(named(out.name, **changes), ends)


def shown(out: Path, after: int, upto: float = math.inf) -> Rows:
    """What the output files of these batches say of each tag."""
    found: Rows = {}
    for operator in OUTPUTS:
        for file in sorted((out / "sink" / operator).rglob("batch-*"), key=lambda f: f.name):
            number = int(file.name.removeprefix("batch-").partition(".")[0])
            for line in file.read_text().splitlines() if after < number <= upto else ():
                row = json.loads(line)
                found.setdefault((operator, row["tag"]), []).append((number, row))
    return found


def expected(resource: StreamTopology) -> Rows:
    found: Rows = {}
    for number, outputs in enumerate(run_local(resource), 1):
        for partition, table in outputs.items():
            operator = partition.partition(".")[0]
            if operator in OUTPUTS and table is not None:
                for row in json.loads(json.dumps(table.to_pylist())):
                    found.setdefault((operator, row["tag"]), []).append((number, row))
    return found


class Asks:
    """Asks for a savepoint once the run is under way, as `reprise savepoint` does, and hears what comes of it."""

    def __init__(self, resource: StreamTopology, out: Path) -> None:
        self.resource, self.out = resource, out
        self.wish = new_wish("before-v2")
        self.heard: SavepointsRecord | None = None
        self._asked = False

    def __call__(self, state: RunState, _: object) -> None:
        seen = state.observation
        if seen.savepoints is not None and seen.savepoints.has(self.wish.id):
            self.heard = seen.savepoints
        if self._asked or seen.progress is None or seen.progress.horizon < 10:
            return
        record = read_record(self.out)
        assert record is not None
        where = record["zk"], record["root"]
        with ZooKeeperTarget(*where, lambda: self.resource, access=record["zkAccess"]) as target:
            target.savepoint(self.wish)
        self._asked = True


class Later(Asks):
    """Asks a while behind the batch at which a run begins."""

    def __init__(self, resource: StreamTopology, out: Path, begins: int) -> None:
        super().__init__(resource, out)
        self.begins = begins

    def __call__(self, state: RunState, result: object) -> None:
        progress = state.observation.progress
        if progress is not None and progress.horizon >= self.begins + 10:
            super().__call__(state, result)


def went(
    resource: StreamTopology, cluster: EmbeddedCluster, out: Path, begins: int
) -> tuple[RunResult, Savepoint]:
    """A run that loses nodes behind its beginning, and is saved behind that."""
    asks = Later(resource, out, begins)
    faults: list[dict[str, Any]] = (
        [{"batch": begins + 2, "kill": ["@count.0", "@window.0"]}, {"on": "plan", "add": 2}] if begins else []
    )
    quiet = scenario.quiet_again(faults)

    def saved(state: RunState, actions: list[dict[str, Any]]) -> bool:
        return asks.heard is not None and asks.wish.id in asks.heard.done and quiet(state, actions)

    result = scenario.run(resource, cluster, out, faults, asks, until=saved)
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}; logs in {result.out / 'logs'}"
    assert result.record["unfired"] == []
    return result, Savepoints(str((out / "checkpoints").resolve())).read("before-v2")


def test_two_partitions_three_and_two(large_nodes: EmbeddedCluster, tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("first", "second", "third")]
    first, one = went(in_partitions(outs[0], 2), large_nodes, outs[0], 0)
    second, two = went(in_partitions(outs[1], 3, first), large_nodes, outs[1], one.position)
    assert 10 <= one.position < two.position
    third = in_partitions(outs[2], 2, second)
    faults = [{"batch": two.position + 2, "kill": ["@count.1"]}, {"on": "plan", "add": 1}]
    last = scenario.run(third, large_nodes, outs[2], faults, until=scenario.quiet_again(faults))
    assert last.outcome is Outcome.DONE, f"{last.outcome}: {last.reason}; logs in {last.out / 'logs'}"
    assert last.record["unfired"] == []
    listed = CliRunner().invoke(main, ["savepoint", "--list", "--out", str(first.out), "-o", "json"])
    assert [s["position"] for s in json.loads(listed.stdout)["savepoints"]] == [one.position]
    parts = [
        shown(first.out, 0, one.position),
        shown(second.out, one.position, two.position),
        shown(last.out, two.position),
    ]
    found: Rows = {}
    for part in parts:
        for key, rows in part.items():
            found.setdefault(key, []).extend(rows)
    assert found == expected(in_partitions(outs[2], 2))
    assert len({file.parent.name for file in (second.out / "sink" / "count").rglob("batch-*")}) == 3

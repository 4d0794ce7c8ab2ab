"""A topology that begins from the savepoint of another one, on a real cluster, with nodes killed right after it has begun:
what the first has shown up to the savepoint and the second from there are the output of one run without a break."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from reprise.controller.cli import main
from reprise.controller.cli.savepoint_command import new_wish
from reprise.controller.cli.target_local import ZooKeeperTarget
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.report.compare import compare
from reprise.controller.local.report.layout import read_record
from reprise.controller.local.run.config import Outcome
from reprise.controller.status.query_state import RunState
from reprise.controller.zookeeper.savepoint_records import SavepointsRecord
from reprise.spark_jobs.state.savepoints import Savepoints
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.e2e import scenario

pytestmark = [pytest.mark.slow, pytest.mark.wide]
BATCHES = 160
TEXT = f"""
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: NAME}}
spec:
  batch: {{interval: 500ms}}
  sources:
    - name: tweets
      class: reprise.sources:HashtagSource
      parallelism: 2
      with: {{rate: 200, interval: 500ms, batches: {BATCHES}, tags: 60, seed: 3}}
      resources: {{cpu: 20m}}
  operators:
    - name: parse
      class: reprise.operators:FlatMap
      parallelism: 2
      with: {{explode: [hashtags], select: [time, hashtags AS tag]}}
      resources: {{cpu: 20m}}
      inputs: [{{from: tweets, forward: true}}]
    - name: window
      class: reprise.operators:TumblingWindow
      parallelism: 3
      with: {{size: 2s, keys: [tag], aggregate: {{tweets: count()}}}}
      resources: {{cpu: 40m}}
      inputs: [{{from: parse, by: [tag]}}]
      output: {{priority: 3}}
    - name: count
      class: reprise.operators:KeyedCount
      parallelism: 2
      with: {{keys: [tag]}}
      resources: {{cpu: 40m}}
      inputs: [{{from: parse, by: [tag]}}]
      output: {{priority: 1}}
  checkpoint: {{everyBatches: 10}}
  nodes: {{count: 4, cpu: 600m}}
"""


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


def named(name: str, **changes: object) -> StreamTopology:
    return override(load_text(TEXT.replace("NAME", name)), changes)


def test_the_second_topology_goes_on_where_the_first_was_saved(
    large_nodes: EmbeddedCluster, tmp_path: Path
) -> None:
    first, out = named("first"), tmp_path / "first"
    expected = scenario.write_expected(first, tmp_path / "expected")
    asks = Asks(first, out)
    result = scenario.run(first, large_nodes, out, [], asks)
    scenario.assert_exactly_once(result, expected)
    assert asks.heard is not None
    assert asks.heard.done[asks.wish.id] == ""
    location = str((out / "checkpoints").resolve())
    savepoint = Savepoints(location).read("before-v2")
    assert 10 <= savepoint.position < BATCHES
    listed = CliRunner().invoke(main, ["savepoint", "--list", "--out", str(out), "-o", "json"])
    assert [s["position"] for s in json.loads(listed.stdout)["savepoints"]] == [savepoint.position]

    start = {"location": location, "savepoint": "before-v2"}
    second = named("second", **{"checkpoint.startFrom": start})
    soon = savepoint.position + 2
    faults = [{"batch": soon, "kill": ["@window.0", "@count.0"]}, {"on": "plan", "add": 2}]
    began = scenario.run(second, large_nodes, tmp_path / "second", faults)
    assert began.outcome is Outcome.DONE, f"{began.outcome}: {began.reason}; logs in {began.out / 'logs'}"
    assert began.record["unfired"] == []
    together = tmp_path / "together" / "sink"
    shutil.copytree(began.out / "sink", together)
    for file in sorted((out / "sink").rglob("batch-*")):
        number = int(file.name.removeprefix("batch-").partition(".")[0])
        target = together / file.relative_to(out / "sink")
        assert target.exists() == (number > savepoint.position), target
        if number <= savepoint.position:
            shutil.copy(file, target)
    found = compare(expected, together.parent)
    assert found.identical, (found.missing[:5], found.extra[:5], found.different[:5], found.twice[:5])
    assert found.equal == 5 * (BATCHES + 1)

"""Topologies that begin from savepoints with other numbers of partitions, on running engines: no row is lost or counted
twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support.engine_worlds import begun
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tests.unit.spark_jobs.engine.test_savepoints import Taking, batch, begun_from, from_savepoint
from tests.unit.spark_jobs.engine.test_scope import in_the_middle
from tools.testbed.local_engine import World, past

Rows = dict[str, list[tuple[int, int]]]
EVENTS = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: events}
spec:
  batch: {interval: 100ms}
  sources:
    - name: bids
      class: reprise.sources:NexmarkSource
      parallelism: 2
      with: {kind: bid, rate: 400, interval: 100ms, batches: 60, seed: 7}
  operators:
    - name: count
      class: reprise.operators:KeyedCount
      parallelism: 2
      with: {keys: [channel]}
      inputs: [{from: bids, by: [channel]}]
      output: {priority: 3}
  checkpoint: {everyBatches: 10}
  nodes: {count: 4}
"""


pytestmark = pytest.mark.usefixtures("little_is_released")


def counts(output: dict[str, bytes], key: str, after: int, upto: int) -> Rows:
    """What is shown of each key, with the batch of it, in order."""
    found: Rows = {}
    for path, data in sorted(output.items(), key=lambda each: batch(each[0])):
        if "count/" in path and after < batch(path) <= upto:
            for line in data.decode().splitlines():
                row = json.loads(line)
                found.setdefault(row[key], []).append((batch(path), row["count"]))
    return found


def together(parts: list[Rows]) -> Rows:
    found: Rows = {}
    for part in parts:
        for key, rows in part.items():
            found.setdefault(key, []).extend(rows)
    return found


def in_other_partitions(resource: StreamTopology, **numbers: int) -> StreamTopology:
    where = {"sources": {s.name for s in resource.sources}, "operators": {o.name for o in resource.operators}}
    kinds = {name: kind for kind, names in where.items() for name in names}
    return override(resource, {f"{kinds[n]}[{n}].parallelism": count for n, count in numbers.items()})


@pytest.mark.wide
@pytest.mark.parametrize("state", ["arrays", "paged"])
def test_three_partitions_two_and_four_give_what_three_give(tmp_path: Path, state: str) -> None:
    """Each of them loses a node behind the savepoint from which it began."""
    first = begun(override(load_text(DIAMOND), {"checkpoint.state": state}), tmp_path / "a")
    in_the_middle(first)
    one = Taking(first).take()
    second_resource = in_other_partitions(from_savepoint(first.resource, first), count=2)
    first.run(lambda e: e.done)
    second = begun_from(second_resource, tmp_path / "b", one)
    second.run(past(one.position + 2))
    recovered(second, "z")
    two = Taking(second).take()
    third_resource = in_other_partitions(from_savepoint(second.resource, second), count=4)
    second.run(lambda e: e.done)
    third = begun_from(third_resource, tmp_path / "c", two)
    third.run(past(two.position + 2))
    recovered(third, "z")
    third.run(lambda e: e.done)
    whole = counts(first.output(), "tag", 0, 60)
    parts = [
        counts(first.output(), "tag", 0, one.position),
        counts(second.output(), "tag", one.position, two.position),
        counts(third.output(), "tag", two.position, 60),
    ]
    assert together(parts) == whole
    assert counts(second.output(), "tag", one.position, 60) == counts(first.output(), "tag", one.position, 60)
    assert one.position < two.position < 60
    assert {path.split("/")[-2] for path in third.output() if "count/" in path} == {"0", "1", "2", "3"}


def test_a_source_goes_on_in_other_partitions(tmp_path: Path) -> None:
    first = begun(load_text(EVENTS), tmp_path / "a")
    in_the_middle(first)
    one = Taking(first).take()
    resource = in_other_partitions(from_savepoint(first.resource, first), bids=3, count=3)
    first.run(lambda e: e.done)
    second = begun_from(resource, tmp_path / "b", one)
    second.run(past(one.position + 1))
    recovered(second, "z")
    second.run(lambda e: e.done)
    before = counts(first.output(), "channel", 0, one.position)
    after = counts(second.output(), "channel", one.position, 60)
    last = {key: rows[-1][1] for key, rows in together([before, after]).items()}
    assert last == {key: rows[-1][1] for key, rows in counts(first.output(), "channel", 0, 60).items()}
    for key, rows in together([before, after]).items():
        numbers = [number for _, number in rows]
        assert numbers == sorted(numbers), key


def recovered(world: World, node: str) -> None:
    """All nodes are lost at once, and another one takes their place."""
    world.nodes.lose("x", "y")
    world.nodes.start(node)
    newest = world.engine.punctuations.newest
    world.forget()
    world.want(2, newest, world.spread(node))
    world.run(past(newest + 1))

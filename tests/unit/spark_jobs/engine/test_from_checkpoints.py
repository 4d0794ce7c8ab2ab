"""Operators of each kind that are restored from a checkpoint: whichever node is lost at whichever stage of a job, the output
is that of the definition; where a replay may differ, each batch is shown once and never changed."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.contract import Kind
from reprise.spark_jobs.topology import StreamTopology, load_text, make_operator
from tests.support.engine_worlds import placed
from tests.support.hashtags import counting
from tests.support.losses import tick_losing
from tests.unit.spark_jobs.engine.test_definition import expected_output
from tests.unit.spark_jobs.engine.test_recovery import COIN
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("few_batches_ahead")

KINDS = counting(
    "kinds",
    """
    - name: split
      class: reprise.spark_jobs.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags], select: ["hashtags AS tag"]}
      inputs: [{from: tweets, forward: true}]
    - name: parse
      class: reprise.spark_jobs.operators:Union
      parallelism: 2
      inputs: [{from: split, forward: true}]
      output: {priority: 1}
    - name: count
      class: reprise.spark_jobs.operators:KeyedCount
      parallelism: 2
      with: {keys: [tag]}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 3}
    - name: window
      class: reprise.spark_jobs.operators:RunningAggregate
      parallelism: 2
      with: {keys: [tag], aggregate: {"n": "count()"}, size: 700ms, interval: 100ms}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 2}
""",
)
"""Nothing of it says how it is to come back, which is from the checkpoint."""

AT = {
    "tweets.0": "s", "tweets.1": "s", "split.0": "s", "split.1": "s", "parse.0": "repeatable", "parse.1": "s",
    "count.0": "deterministic", "count.1": "s", "window.0": "convergent", "window.1": "s",
}  # fmt: skip
"""Each kind of operator has a partition on a node of its own."""

OPERATORS = {Kind.REPEATABLE: "parse", Kind.DETERMINISTIC: "count", Kind.CONVERGENT: "window"}


@pytest.fixture(scope="module")
def resource() -> StreamTopology:
    return load_text(KINDS)


@pytest.fixture(scope="module")
def expected(resource: StreamTopology, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return expected_output(resource, tmp_path_factory.mktemp("definition"))


def loses(world: World, node: str, stage: int) -> None:
    """One job, at a stage of which a node is lost when its own turn has come; and one that finds it out."""
    tick_losing(world, node, stage, in_turn=True)
    assert node not in world.nodes.hosts
    tick(world)


def test_there_is_one_of_each_kind_and_all_come_from_the_checkpoint(resource: StreamTopology) -> None:
    specs = {spec.name: spec for spec in resource.operators}
    assert [make_operator(specs[name]).kind for name in OPERATORS.values()] == list(OPERATORS)
    assert {spec.availability for spec in specs.values()} == {"checkpoint"}


@pytest.mark.wide
@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("kind", OPERATORS)
def test_a_node_is_lost_at_any_stage(
    tmp_path: Path, resource: StreamTopology, expected: dict[str, bytes], kind: Kind, stage: int
) -> None:
    """What was on it begins at the newest checkpoint; nobody else goes back."""
    world = placed(resource, tmp_path, AT, nodes=sorted({*AT.values()}))
    world.run(lambda e: past(15)(e) and e.punctuations.newest >= 10)
    loses(world, kind.value, stage)
    engine, partition = world.engine, f"{OPERATORS[kind]}.0"
    assert {p: f.kind for p, f in engine.failed.items()} == {partition: FailureKind.NODE_LOST}
    newest, others = engine.punctuations.newest, {p: k for p, k in engine.positions.items() if p != partition}
    assert 10 <= newest < 60
    world.want(1, newest, {**AT, partition: "s"}, retain=True)
    assert engine.positions == {**others, partition: newest}
    world.run(lambda e: e.done)
    assert engine.desired.generation == 1
    assert world.output() == expected


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("node", ["toss", "total"])
def test_where_a_replay_may_differ_each_batch_is_shown_once_and_never_changed(
    tmp_path: Path, node: str, stage: int
) -> None:
    """Everything goes back, and tosses are tossed again that nobody has seen."""
    at = {"tweets.0": "s", "toss.0": "toss", "total.0": "total"}
    world = placed(load_text(COIN), tmp_path, at, nodes=("s", "toss", "total"))
    world.run(lambda e: past(15)(e) and e.punctuations.newest >= 10 and bool(world.output()))
    loses(world, node, stage)
    assert world.engine.failed[f"{node}.0"].kind is FailureKind.NODE_LOST
    shown, newest = world.output(), world.engine.punctuations.newest
    assert 0 < len(shown) <= newest < 45
    world.want(2, newest, world.spread(*sorted(world.nodes.hosts)), retain=True)
    assert set(world.engine.positions.values()) == {newest}
    world.run(lambda e: e.done)
    after = world.output()
    assert {name: after[name] for name in shown} == shown
    assert len(after) == world.engine.final
    rows = [json.loads(line) for _, data in sorted(after.items()) for line in data.splitlines()]
    assert len(rows) == len(after)
    assert rows[0]["total"] == rows[0]["toss"]
    assert all(b["total"] == a["total"] + b["toss"] for a, b in pairwise(rows))

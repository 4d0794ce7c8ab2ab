"""What a partition's own code does wrong outside of `step` sets that partition aside and stops nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.engine.chain import ChainError
from tests.support.engine_worlds import begun
from tools.testbed.local_engine import tick

TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: culprits}}
spec:
  batch: {{interval: 100ms}}
  sources:
    - {{name: tweets, class: "reprise.spark_jobs.sources:HashtagSource",
        with: {{rate: 100, interval: 100ms, batches: 20, tags: 9}}}}
  operators:
    - {{name: bad, class: "tests.support.coin:Misbehaves", with: {{how: {how}}}, inputs: [{{from: tweets}}]{output}}}
    - {{name: after, class: "reprise.spark_jobs.operators:Sink", parallelism: 2, inputs: [{{from: bad, by: [tweet]}}],
        output: {{}}}}
    - {{name: good, class: "reprise.spark_jobs.operators:Sink", inputs: [{{from: tweets}}], output: {{}}}}
  checkpoint: {{everyBatches: 5}}
  nodes: {{count: 2}}
"""


@pytest.mark.parametrize(
    ("how", "output", "batch", "reason"),
    [
        ("key", "", 7, "key column 'tweet' is not in the output; its columns are "),
        ("list", "", 7, "rows must be a pyarrow.Table or None, not list"),
        ("list", ", output: {}", 7, "rows must be a pyarrow.Table or None, not list"),
        ("bytes", ", output: {}", 7, "EncodeError: these rows cannot be written as jsonl (columns "),
        ("panic", "", 7, "PanicException: "),
        ("freeze", "", 21, "KeyError: 'state'"),
    ],
)
def test_what_is_raised_outside_of_step_sets_its_partition_aside(
    tmp_path: Path, how: str, output: str, batch: int, reason: str
) -> None:
    world = begun(TOPOLOGY.format(how=how, output=output), tmp_path, "ab")
    world.run(lambda e: e.done, limit=400)
    engine = world.engine
    assert str(engine.failed["bad.0"]).startswith(f"poison: operator bad, partition bad.0, batch {batch}: ")
    assert reason in engine.failed["bad.0"].reason
    assert list(engine.failed) == ["bad.0"]
    assert engine.positions["good.0"] == engine.final
    assert engine.figures.failed_jobs == 0


def test_jobs_that_fail_alike_again_and_again_are_named_with_their_node(tmp_path: Path) -> None:
    world = begun(TOPOLOGY.format(how="nothing", output=""), tmp_path, "ab")

    def refuse(job: int, stage: int, slot: int) -> None:
        if slot == 1:
            raise ChainError("TypeError: not so", slot=1)

    world.nodes.interrupt = refuse
    tick(world, 2)
    assert world.engine.stuck == ""  # a job may fail with a node that is being lost
    tick(world, 20)
    assert world.engine.stuck == "22 jobs in a row have failed: node b: TypeError: not so"
    assert [p for p in world.engine.problems if "TypeError" in p] == [
        "jobs fail again and again: node b: TypeError: not so"
    ]
    world.nodes.interrupt = lambda *_: None
    world.run(lambda e: e.done)
    assert world.engine.stuck == ""

"""The data plane gives what the definition of a topology's output gives (`reprise.spark_jobs.operators.local`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import FileSink
from reprise.spark_jobs.topology import StreamTopology, load_text, load_topology, override
from tests.support.engine_worlds import begun

TWO_SOURCES = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: two}
spec:
  batch: {interval: 100ms}
  sources:
    - {name: short, class: "reprise.spark_jobs.sources:HashtagSource",
        with: {rate: 100, interval: 100ms, batches: 7, tags: 9}}
    - {name: long, class: "reprise.spark_jobs.sources:HashtagSource",
        with: {rate: 100, interval: 100ms, batches: 30, tags: 9}}
  operators:
    - name: tags
      class: reprise.spark_jobs.operators:FlatMap
      with: {explode: [hashtags], select: [time, "hashtags AS tag"]}
      inputs: [{from: short}, {from: long}]
    - name: window
      class: reprise.spark_jobs.operators:TumblingWindow
      with: {size: 1s, keys: [tag], aggregate: {count: count()}}
      inputs: [{from: tags}]
      output: {}
  checkpoint: {everyBatches: 10}
  nodes: {count: 2}
"""


def expected_output(resource: StreamTopology, folder: Path) -> dict[str, bytes]:
    """The definition's output, written as the sink writes it."""
    for number, rows in enumerate(run_local(resource), start=1):
        for operator in resource.operators:
            if operator.output is None:
                continue
            for index in range(operator.parallelism):
                place = Place(operator.name, index, operator.parallelism)
                FileSink(folder, place, operator.output.format).write(number, rows[place.partition])
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["two sources", "feedback", "minimal", "topology2", "reachability"])
def test_same_output_as_the_definition(name: str, tmp_path: Path) -> None:
    resource = load_text(TWO_SOURCES) if name == "two sources" else load_topology(f"examples/{name}.yaml")
    if name == "topology2":
        resource = override(resource, {"sources[source].with.batches": 12, "sources[source].with.rate": 100})
    if name == "reachability":
        sources = ("links", "sources", "deletes")
        small = {"batches": 15, "rate": 20, "nodes": 30}
        resource = override(
            resource, {f"sources[{s}].with.{key}": small[key] for s in sources for key in small}
        )
    world = begun(resource, tmp_path)
    world.run(lambda e: e.done)
    expected = expected_output(resource, tmp_path / "expected")
    assert any(expected.values())
    assert world.output() == expected

"""The small topologies that schedules run on, and what their sinks must hold in the end.

Few rows, so that thousands of batches take no time, and everything that a recovery may get wrong: state by key,
partitions that read several others, queries of different value that share partitions, and one that needs more of them
than another.
"""

from __future__ import annotations

from functools import lru_cache

from reprise.controller.simulated_world.operators import Numbers, Recorded
from reprise.spark_jobs.contract import Range
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks.files import encoded
from reprise.spark_jobs.state.ledger import RANGES, Block
from reprise.spark_jobs.topology import StreamTopology, expand, from_json, load_text

CHAINED = 'class: "reprise.controller.simulated_world.operators:Chained"'
CLOSING = f"{CHAINED}\n      with: {{closes: 7}}"
COUNTING = 'class: "reprise.controller.simulated_world.operators:Counting"'
"""Input in the order of its arrival is for operators whose answers do not follow from that order."""
LATE = 0.4
"""How often the rows of the first source partition are late then."""
WINDOWED = 'class: "reprise.controller.simulated_world.operators:Windowed"\n      with: {size: 4}'
"""Upstream backup is for operators that do not depend on all of their input."""
TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: simulated, namespace: world}}
spec:
  batch: {{interval: 500ms, order: {order}}}
  sources:
    - name: in
      class: "reprise.controller.simulated_world.operators:Numbers"
      parallelism: 2
      with: {{batches: {batches}, late: {late}}}
      resources: {{cpu: 60m}}
  operators:
    - name: left
      {operator}
      deterministic: true
      parallelism: 2
      resources: {{cpu: 60m}}
      availability: {availability}
      inputs: [{{from: in, forward: true}}]
    - name: count
      {counting}
      deterministic: true
      parallelism: 2
      resources: {{cpu: 90m}}
      availability: {availability}
      inputs: [{{from: left, by: [key]}}]
      output: {{priority: 3, format: parquet}}
    - name: best
      {best}
      deterministic: true
      resources: {{cpu: 60m}}
      inputs: [{{from: count, by: [key]}}{feedback}]
      output: {{priority: 8, format: parquet}}
  checkpoint: {{everyBatches: 6{checkpoint}}}
  recovery: {{algorithm: best-density{recovery}}}
  nodes: {{count: {nodes}, cpu: {cpu}}}
"""

LEDGER = f"checkpoints/{RANGES}/"
"""Where blocks of ranges are, below the store."""


@lru_cache(maxsize=64)
def topology(
    batches: int = 40,
    nodes: int = 3,
    checkpoint: str = "",
    recovery: str = "",
    availability: str = "checkpoint",
    cpu: str = "300m",
    feedback: bool = False,
    order: str = "aligned",
) -> StreamTopology:
    """`checkpoint`, `recovery`: more of these parts of the resource, as YAML that begins with a comma.
    `availability`: of the operators `left` and `count`; `cpu`: of a node; `feedback`: `best` reads its own output of the
    batch before."""
    loop = ", {from: best, feedback: true, by: [key]}" if feedback else ""
    fed, arrival = availability == "upstream-backup", order == "arrival"
    usual = COUNTING if arrival else CHAINED
    more = {
        "order": order,
        "late": LATE if arrival else 0.0,
        "checkpoint": checkpoint,
        "recovery": recovery,
        "availability": availability,
        "operator": WINDOWED if fed else usual,
        "counting": WINDOWED if fed else COUNTING if arrival else CLOSING,
        "best": usual,
        "feedback": loop,
        "cpu": cpu,
    }
    return load_text(TEXT.format(batches=batches, nodes=nodes, **more))


@lru_cache(maxsize=32)
def _on_record(resource_text: str) -> StreamTopology:
    """The same topology, of which sources give what is on record."""
    source = f"{Numbers.__module__}:Numbers"
    assert source in resource_text
    return from_json(resource_text.replace(source, source.replace("Numbers", "Recorded")))


class Reference:
    """What the sinks must hold: every file of a run without faults, computed without engine and hosts from the ranges that
    were written down first.  A source says something else each time it is asked, so nothing else is known before."""

    def __init__(self, resource: StreamTopology) -> None:
        self.files: dict[str, bytes] = {}
        self.complete = False
        """Whether the sources have ended, so that there are no more files."""
        self._ranges: dict[str, dict[int, Range]] = {}
        self._blocks: set[str] = set()
        self._outputs = {o.name: o.output for o in resource.operators if o.output is not None}
        self._places = {p.id: p.place for p in expand(resource).partitions.values()}
        self._batches = enumerate(run_local(_on_record(resource.document)), 1)

    def recorded(self, name: str, data: bytes) -> None:
        """A block of ranges was written; what is written under its name later counts for nothing."""
        if name in self._blocks:
            return
        self._blocks.add(name)
        block = Block.decode(data)
        for partition, spans in block.ranges.items():
            self._ranges.setdefault(partition, {}).update(spans)
        Recorded.ranges = self._ranges
        self.complete = block.ended_at is not None
        for number, rows in self._batches:
            for partition, table in rows.items():
                place = self._places[partition]
                if (output := self._outputs.get(place.operator)) is None:
                    continue
                data = b"" if table is None or table.num_rows == 0 else encoded(output.format, table)
                self.files[f"{place.operator}/{place.index}/batch-{number:08d}.{output.format}"] = data
            if number == block.last and not self.complete:
                break

"""The small topologies that schedules run on, and what their sinks must hold in the end.

Few rows, so that thousands of batches take no time, and everything that a recovery may get wrong: state by key,
partitions that read several others, queries of different value that share partitions, and one that needs more of them
than another.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from reprise.controller.simulated_world.kinds import ARBITRARY, classes_of
from reprise.controller.simulated_world.nodes import RACK
from reprise.controller.simulated_world.operators import LiveNumbers, Numbers, Recorded
from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks.files import encoded
from reprise.spark_jobs.state.ledger import RANGES, Block
from reprise.spark_jobs.topology import OutputSpec, StreamTopology, expand, from_json, load_text

CHAINED = 'class: "reprise.controller.simulated_world.operators:Chained"'
CLOSING = f"{CHAINED}\n      with: {{closes: 7}}"
PAGED = 'class: "reprise.controller.simulated_world.operators:Paged"'
COUNTING = 'class: "reprise.controller.simulated_world.operators:Counting"'
"""Input in the order of its arrival is for operators whose answers do not follow from that order."""
CIRCLING = 'class: "reprise.controller.simulated_world.operators:Circling"\n      with: {loop: best, laps: 3}'
QUIET = 5
"""Batches at the end of the stream without rows, where rows go round in that order: more than `CIRCLING` has laps."""
LATE = 0.15
"""How often the rows of the first source partition are late then."""
WINDOWED = 'class: "reprise.controller.simulated_world.operators:Windowed"\n      with: {size: 4}'
"""Upstream backup, and going on without lost batches, are for operators that do not depend on all of their input."""
SOME_INPUT = frozenset({"amnesia", "upstream-backup"})
"""Ways to be available that need that: of the operator itself and, where batches are skipped, of what reads it."""
NUMBERS = """class: "reprise.controller.simulated_world.operators:{numbers}"
      with: {{batches: {batches}, late: {late}, quiet: {quiet}}}"""
TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: simulated, namespace: world}}
spec:
  batch: {{interval: 500ms, order: {order}}}
  sources:
    - name: in
      {source}
      parallelism: 2
      resources: {{cpu: 60m}}
  operators:
    - name: left
      {operator}
      deterministic: true
      parallelism: 2
      resources: {{cpu: 60m}}
      availability: {left}
      inputs: [{{from: in, forward: true}}]
    - name: count
      {counting}
      deterministic: {repeats}
      parallelism: 2
      resources: {{cpu: 90m}}
      availability: {count}
      inputs: [{{from: left, by: [key]}}{back}]
      output: {{priority: 3, format: parquet{sink}}}
    - name: best
      {best}
      deterministic: true
      resources: {{cpu: 60m}}
      availability: {last}
      inputs: [{{from: count, by: [key]}}{feedback}]
      output: {{priority: 8, format: parquet}}
  checkpoint: {{everyBatches: 6{checkpoint}}}
  recovery: {{algorithm: best-density{recovery}}}
  nodes: {{count: {nodes}, cpu: {cpu}{domain}}}
  spark: {{exchange: {exchange}}}
"""

LEDGER = f"checkpoints/{RANGES}/"
"""Where blocks of ranges are, below the store."""


@lru_cache(maxsize=1024)
def topology(
    batches: int = 40,
    nodes: int = 3,
    checkpoint: str = "",
    recovery: str = "",
    availability: str = "checkpoint",
    cpu: str = "300m",
    feedback: bool = False,
    order: str = "aligned",
    windowed: bool = False,
    by_rack: bool = False,
    every: int | None = None,
    kinds: str = "",
    sink: str = "",
    source: str = "",
    live: bool = False,
    exchange: str = "auto",
) -> StreamTopology:
    """`checkpoint`, `recovery`: more of these parts of the resource, as YAML that begins with a comma.
    `availability`: of the operators `left` and `count`, or of `left`, `count` and `best`, with commas between; `cpu`: of a
    node; `feedback`: `best` reads its own output of the batch before; where input is applied as it arrives, `count` does,
    and where operators are available in another way than by checkpoints both do, but nobody with upstream backup reads
    what it gives itself, and `best` does not where `count` and `best` emit each row again (two cycles double the rows);
    `windowed`: no operator depends on all of its input, so people may skip each query; `by_rack`: racks are failure domains;
    `every`: batches between what passive standbys are sent; `kinds`: of the three operators
    (`reprise.controller.simulated_world.kinds`), in place of those that fit the other parameters; `sink`: of the output of
    `count`, as YAML that begins with a comma, in place of files; `source`: class and parameters of the source, as YAML, in
    place of `Numbers`; `live`: the source is a live one; `exchange`: `auto`, or `chained`
    for messages that travel with the stages of jobs."""
    loop = ", {from: best, feedback: true, by: [key]}" if feedback else ""
    left, count, last = modes_of(availability)
    some, arrival = windowed or bool(SOME_INPUT & {left, count, last}), order == "arrival"
    circles = arrival and feedback
    around = circles or (feedback and availability != "checkpoint")
    doubles = around and kinds.endswith(",repeatable,repeatable")
    paged = "state: paged" in checkpoint
    usual = COUNTING if arrival else PAGED if paged else CHAINED
    counting = CIRCLING if circles else COUNTING if arrival else PAGED if paged else CLOSING
    more = {
        "order": order,
        "exchange": exchange,
        "source": source
        or NUMBERS.format(
            numbers=(LiveNumbers if live else Numbers).__name__,
            batches=batches,
            late=LATE if arrival else 0.0,
            quiet=QUIET if circles else 0,
        ),
        "checkpoint": checkpoint,
        "recovery": recovery,
        "left": _way(left, every),
        "count": _way(count, every),
        "last": _way(last, every),
        "sink": sink,
        "repeats": "false" if kinds == ARBITRARY else "true",
        "operator": WINDOWED if some else usual,
        "counting": WINDOWED if some else counting,
        "best": WINDOWED
        if windowed or (some and (last in SOME_INPUT or "amnesia" in (left, count)))
        else usual,
        "feedback": "" if circles or doubles or last == "upstream-backup" else loop,
        "back": loop if around else "",
        "cpu": cpu,
        "domain": f", failureDomain: {RACK}" if by_rack else "",
    }
    if kinds:
        more |= dict(zip(("operator", "counting", "best"), classes_of(kinds), strict=True))
    return load_text(TEXT.format(nodes=nodes, **more))


def _way(mode: str, every: int | None) -> str:
    return f"{mode}\n      standby: {{every: {every}}}" if every and mode == "passive-standby" else mode


def modes_of(availability: str) -> tuple[str, str, str]:
    """How `left`, `count` and `best` are to be available."""
    left, *others = availability.split(",")
    count, last = others or (left, "checkpoint")
    return left, count, last


def repeats_rows(resource: StreamTopology) -> bool:
    """Whether a batch that is made again has the rows that it had.  Not so: where input is applied as it arrives, and where
    an operator is arbitrary."""
    return not resource.arrival and all(operator.deterministic for operator in resource.operators)


def repeats_states(resource: StreamTopology) -> bool:
    """Whether a partition has one state after each batch, in each of its lives.  Not so: where batches differ, and where
    slots of different ages are restored."""
    return repeats_rows(resource) and not resource.checkpoint.eventual


@lru_cache(maxsize=1024)
def _on_record(resource_text: str) -> StreamTopology:
    """The same topology, of which sources give what is on record."""
    resource_text = resource_text.replace(LiveNumbers.__name__, Numbers.__name__)
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
        self.ranges: dict[str, dict[int, Range]] = {}
        """By source partition and batch, as they were written down first."""
        self._blocks: set[str] = set()
        self._outputs = {o.name: o.output for o in resource.operators if o.output is not None}
        self._places = {p.id: p.place for p in expand(resource).partitions.values()}
        self._batches = enumerate(run_local(self.on_record(resource)), 1)

    def on_record(self, resource: StreamTopology) -> StreamTopology:
        """The same topology, of which sources give what is on record."""
        return _on_record(resource.document)

    def recorded(self, name: str, data: bytes) -> None:
        """A block of ranges was written; what is written under its name later counts for nothing."""
        if name in self._blocks:
            return
        self._blocks.add(name)
        block = Block.decode(data)
        for partition, spans in block.ranges.items():
            self.ranges.setdefault(partition, {}).update(spans)
        Recorded.ranges = self.ranges
        self.complete = block.ended_at is not None
        for number, rows in self._batches:
            for partition, table in rows.items():
                place = self._places[partition]
                if (output := self._outputs.get(place.operator)) is not None:
                    self.files |= self.shown(place, number, output, table)
            if number == block.last and not self.complete:
                break

    def shown(self, place: Place, batch: int, output: OutputSpec, table: pa.Table | None) -> dict[str, bytes]:
        """Files, by name, in which a reader finds one batch of an output partition; what has no rows cannot be seen where
        output does not go to files."""
        data = b"" if table is None or table.num_rows == 0 else encoded(output.format, table)
        if output.sink is not None and not data:
            return {}
        return {f"{place.operator}/{place.index}/batch-{batch:08d}.{output.format}": data}

"""The runs of `benchmarks.availability`: which topologies, which node is lost at which batch, and beside which figure of
Hwang et al. each stands.

One batch of 100 ms stands for 5 ms of theirs: their window of 100 ms is 20 batches here, their interval of 50 ms between two
checkpoints 10 batches, and their results of each 10 ms come with every second batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from benchmarks.ha_model import AS, PS, UB
from reprise.spark_jobs.topology import StreamTopology, load_text

CHECKPOINT, AMNESIA, BACKUP, ACTIVE, PASSIVE = (
    "checkpoint", "amnesia", "upstream-backup", "active-standby", "passive-standby",
)  # fmt: skip
MODES: Mapping[str, str | None] = {CHECKPOINT: None, AMNESIA: None, BACKUP: UB, ACTIVE: AS, PASSIVE: PS}
"""`availability` of the operator -> the mode of theirs that it is of."""
MS_A_BATCH = 5
"""Milliseconds of theirs that one batch stands for."""
BATCH_S = 0.1
EVERY = 60
"""Batches from one checkpoint to the next."""
BEHIND = 25
"""Batches between a checkpoint and the loss."""
AFTER = 70
"""Batches of the stream behind the loss."""
SOURCE = """
    - name: {name}
      class: reprise.sources:HashtagSource
      with: {{rate: 2000, interval: 100ms, batches: {batches}, tags: 40, seed: {seed}}}
      resources: {{cpu: 100m}}"""
TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: availability}}
spec:
  batch: {{interval: 100ms}}
  sources:{sources}
  operators:{operators}
  checkpoint: {{everyBatches: {every}}}
  recovery: {{bufferMemory: 32Mi}}
  nodes: {{count: 4, cpu: 1000m}}
"""
OPERATOR = """
    - name: {name}
      {what}
      inputs: [{inputs}]
      deterministic: true
      resources: {{cpu: {cpu}}}"""
OUTPUT = """
    - name: {name}
      class: reprise.operators:Sink
      inputs: [{{from: {source}}}]
      output: {{priority: {priority}}}
      resources: {{cpu: {cpu}}}"""
FILTER, UNION = (
    'class: reprise.operators:Filter\n      with: {where: "tweet % 2 = 0"}',
    "class: reprise.operators:Union",
)
PRIORITIES = (9, 7, 5, 2, 1)
"""Of the queries of the run that loses two nodes; the first three are those that may not wait."""
TOP = 3
TOP_QUERIES = frozenset(f"query{number}.0" for number in range(TOP))
TABLE_6, TABLE_7, TABLE_8, FIG_6, FIG_7, TWO_OF_FOUR = (
    "Table 6",
    "Table 7",
    "Table 8",
    "Fig. 6",
    "Fig. 7",
    "two of four",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One run.  `table`, `row`: where its figures stand.  `operator`: filter, aggregate or union; `window`, `advance`: of an
    aggregate, `interval` between two checkpoints of a passive standby: milliseconds of theirs; `chain`: aggregates."""

    table: str
    row: str
    mode: str
    operator: str = "aggregate"
    window: int = 100
    advance: int = 10
    interval: int = 50
    chain: int = 1

    @property
    def name(self) -> str:
        """For a folder."""
        return f"{self.table}-{self.row}-{self.mode}".lower().replace(". ", "-").replace(" ", "-")

    @property
    def lost_at(self) -> int:
        """The batch at which nodes are killed: so far behind a checkpoint, and the windows are full."""
        full = self.chain * self.window // MS_A_BATCH if self.operator == "aggregate" else 0
        return -(-max(full - BEHIND, EVERY) // EVERY) * EVERY + BEHIND

    @property
    def seconds(self) -> float:
        """How long it takes on a quiet machine: its stream, and beginning and end."""
        return (self.lost_at + AFTER) * BATCH_S + 12.0

    @property
    def kills(self) -> list[str]:
        """The nodes that are killed."""
        return ["n3", "n4"] if self.table == TWO_OF_FOUR else ["@lost.0"]

    @property
    def resource(self) -> StreamTopology:
        """What is run."""
        return load_text(_two_of_four(self) if self.table == TWO_OF_FOUR else _one_lost(self))


def _one_lost(case: Case) -> str:
    names = ("source", "second") if case.operator == "union" else ("source",)
    what = {"filter": FILTER, "union": UNION}.get(case.operator) or _window(case)
    operators = _operator("lost", what, names, case, case.mode, "100m") + OUTPUT.format(
        name="out", source="lost", priority=9, cpu="100m"
    )
    return _topology(case, names, operators)


def _two_of_four(case: Case) -> str:
    operators = ""
    for number, priority in enumerate(PRIORITIES):
        mode = case.mode if number < TOP else CHECKPOINT
        operators += _operator(f"window{number}", _window(case), ("source",), case, mode, "40m")
        output = OUTPUT.format(name=f"query{number}", source=f"window{number}", priority=priority, cpu="40m")
        operators += output + _availability(case, mode)
    return _topology(case, ("source",), operators)


def _window(case: Case) -> str:
    size, advance = case.window // MS_A_BATCH, case.advance // MS_A_BATCH
    parameters = f"{{size: {size}, advance: {advance}, chain: {case.chain}}}"
    return f"class: benchmarks.availability_parts:Sliding\n      with: {parameters}"


def _operator(name: str, what: str, sources: tuple[str, ...], case: Case, mode: str, cpu: str) -> str:
    inputs = ", ".join(f"{{from: {source}}}" for source in sources)
    return OPERATOR.format(name=name, what=what, inputs=inputs, cpu=cpu) + _availability(case, mode)


def _availability(case: Case, mode: str) -> str:
    standby = f"\n      standby: {{every: {case.interval // MS_A_BATCH}}}" if mode == PASSIVE else ""
    return f"\n      availability: {mode}{standby}"


def _topology(case: Case, names: tuple[str, ...], operators: str) -> str:
    batches = case.lost_at + AFTER
    sources = "".join(SOURCE.format(name=n, batches=batches, seed=7 + i) for i, n in enumerate(names))
    return TOPOLOGY.format(sources=sources, operators=operators, every=EVERY)


def cases(tables: frozenset[str], wide: bool = False) -> Iterator[Case]:
    """All runs of these tables.  `wide`: every row of theirs that can be run, and not only the ends of each table."""
    usual = Case(TABLE_6, "aggregate", CHECKPOINT)
    found = [
        replace(usual, row=o, operator=o, mode=m)
        for o in ("filter", "aggregate", "union")
        for m in MODES
        if wide or o != "union" or MODES[m]
    ]
    for window in (200, 300, 400, 500) if wide else (300, 500):
        found += [
            replace(usual, table=TABLE_7, row=f"window {window}", window=window, mode=m)
            for m in (BACKUP, PASSIVE)
        ]
    for advance in (100, 50, 25, 5) if wide else (100, 5):
        found += [
            replace(usual, table=TABLE_8, row=f"advance {advance}", advance=advance, mode=m)
            for m in (BACKUP, PASSIVE)
        ]
    for interval in (25, 100, 150, 200) if wide else (25, 200):
        found.append(replace(usual, table=FIG_6, row=f"{interval} ms", interval=interval, mode=PASSIVE))
    for chain in (2, 3, 4, 5) if wide else (3, 5):
        found += [
            replace(usual, table=FIG_7, row=f"{chain} aggregates", chain=chain, mode=m)
            for m in (BACKUP, PASSIVE)
        ]
    found += [replace(usual, table=TWO_OF_FOUR, row="five queries", mode=m) for m in MODES]
    yield from (case for case in found if case.table in tables)

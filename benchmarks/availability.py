"""Ways in which a lost partition comes back, on a real cluster: how long its query stands still, beside Hwang et al.

    python -m benchmarks.availability --out DIR [--modes checkpoint,amnesia,...] [--ops filter,aggregate] [--repeat 1]

Source: J.-H. Hwang, M. Balazinska, A. Rasin, U. Cetintemel, M. Stonebraker, S. Zdonik, "High-Availability Algorithms for
Distributed Stream Processing", section 7 and Table 6.  One source, one operator, one output, each on a node of its own,
on one cluster; the operator's node is killed between two checkpoints, and another has room for it.  Each figure of a run is
taken from its own records:

- detection: from the kill until the incident is opened;
- plan: from then until the plan, which waits for the rest of a burst; a standby is promoted without one;
- recovery: from detection until the first batch is shown that had to come through the new partition; theirs is without
  detection, too.  With `amnesia` the batches in between are shown without its rows;
- still: the longest time without a new batch after the kill.

Theirs are milliseconds of a system that moves single tuples; here a chain of supersteps is the floor, and a plan, which
waits for the rest of a burst, is part of every mode but the active standby.  So the order of the modes is to be compared,
not the figures.  Outputs that differ from the first run's of the same operator are named, but for batches that are marked.
The exit code is 0 whatever is found: this is no test.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks.ha_model import AGGREGATE, AS, FILTER, PS, TABLE_6, UB
from benchmarks.ha_simulation import Query
from benchmarks.recovery_show import Grid
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.report.compare import compare
from reprise.controller.local.report.history import Writes, read_events
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult
from reprise.controller.local.run.supervisor import run_topology
from reprise.spark_jobs.topology import StreamTopology, load_text

MODES: Mapping[str, str | None] = {
    "checkpoint": None,
    "amnesia": None,
    "upstream-backup": UB,
    "active-standby": AS,
    "passive-standby": PS,
}
"""`availability` of the operator -> the mode of theirs that it is of."""
OPERATORS: Mapping[str, tuple[Query, Mapping[str, Any]]] = {
    "filter": (FILTER, {"class": "reprise.operators:Filter", "with": {"where": "tweet % 2 = 0"}}),
    "aggregate": (
        AGGREGATE,
        {
            "class": "reprise.operators:RunningAggregate",
            "with": {"keys": [], "aggregate": {"n": "count()"}, "size": "4s", "interval": "200ms"},
        },
    ),
}
TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: availability}
spec:
  batch: {interval: 200ms}
  sources:
    - name: source
      class: reprise.sources:HashtagSource
      with: {rate: 200, interval: 200ms, batches: 100, tags: 40, seed: 7}
      resources: {cpu: 100m}
  operators:
    - name: lost
      class: reprise.operators:Union
      inputs: [{from: source}]
      resources: {cpu: 100m}
    - name: out
      class: reprise.operators:Sink
      inputs: [{from: lost}]
      resources: {cpu: 100m}
      output: {priority: 9}
  checkpoint: {everyBatches: 30}
  recovery: {bufferMemory: 16Mi}
  nodes: {count: 4, cpu: 400m}
"""
LOST_AT = 50
"""Batch at which the node is killed: 20 behind a checkpoint, 10 into a window of the aggregate."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One run.  Seconds; None: it was not seen."""

    op: str
    mode: str
    outcome: str
    detection_s: float | None
    plan_s: float | None
    recovery_s: float | None
    still_s: float | None
    same: bool
    """Whether all that is not marked is as in the first run of the operator."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    command.begin(options.out)
    found: list[Figures] = []
    try:
        with EmbeddedCluster(
            ClusterConfig(nodes=options.nodes, cpu_milli=400, start_timeout_s=300.0)
        ) as cluster:
            for op in options.ops.split(","):
                first: Path | None = None
                for mode in options.modes.split(",") * options.repeat:
                    result = _run(resource_of(op, mode), cluster, options, f"{op}-{mode}-{len(found)}")
                    first = first or result.out
                    found.append(figures(op, mode, result, first))
                    console.print(f"{op}, {mode}: {result.outcome} {result.reason}")
    finally:  # what was measured until then
        table(found).show(console)
        (options.out / "availability.json").write_text(
            json.dumps([asdict(f) for f in found], indent=1) + "\n"
        )
        (options.out / "availability.md").write_text(table(found).markdown())
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command.parser("availability", __doc__, nodes=4, timeout_s=300.0)
    parser.add_argument("--modes", default="checkpoint,amnesia,upstream-backup,active-standby")
    parser.add_argument("--ops", default=",".join(OPERATORS))
    parser.add_argument(
        "--repeat", type=int, default=1, help="runs of each mode, of which the median is printed"
    )
    options = parser.parse_args(arguments)
    for name, known in (("modes", MODES), ("ops", OPERATORS)):
        if unknown := set(getattr(options, name).split(",")) - known.keys():
            parser.error(f"--{name}: there is no {', '.join(sorted(unknown))}")
    return options


def resource_of(op: str, mode: str) -> StreamTopology:
    """The topology with one kind of operator that comes back in one way."""
    changes = {**OPERATORS[op][1], "availability": mode}
    return load_text(TOPOLOGY, changes={f"operators[lost].{name}": value for name, value in changes.items()})


def _run(
    resource: StreamTopology, cluster: EmbeddedCluster, options: argparse.Namespace, name: str
) -> RunResult:
    faults = parse_faults([{"batch": LOST_AT, "kill": ["@lost.0"]}], "faults", options.nodes)
    config = RunConfig(
        resource=resource, out=options.out / name, faults=faults, timeout_s=options.timeout, cluster=cluster
    )
    return run_topology(config, lambda _state, _actions: None)


def figures(op: str, mode: str, result: RunResult, first: Path) -> Figures:
    """What a run's records say; `first`: the run whose output this one's is compared with."""
    at = {line["what"]: float(line["time"]) for line in reversed(result.incident["timeline"])}
    killed, opened, planned = at.get("kill"), at.get("opened"), at.get("plan")
    writes = read_events(result.out / "events.jsonl").get("out.0")
    again, still = (None, None) if killed is None or writes is None else standstill(writes, killed)
    found = compare(first, result.out)
    return Figures(
        op,
        mode,
        result.outcome.value,
        None if killed is None or opened is None else round(opened - killed, 2),
        None if opened is None or planned is None else round(planned - opened, 2),
        None if again is None or opened is None else round(max(0.0, again - opened), 2),
        None if still is None else round(still, 2),
        result.outcome is Outcome.DONE and not found.unexplained,
    )


def standstill(writes: Writes, killed: float) -> tuple[float | None, float | None]:
    """When the longest time without a new batch after the kill was over (unix seconds), and how long that was; it begins
    with the last batch before the kill, or later."""
    times = sorted(float(t) for t in writes.written)
    before = [t for t in times if t <= killed]
    after = [t for t in times if t > killed]
    if not before or not after:
        return None, None
    gaps = [(b - a, b) for a, b in zip([before[-1], *after], after, strict=False)]
    longest, end = max(gaps)
    return end, longest


def table(found: Sequence[Figures]) -> Grid:
    """Medians of the runs of each mode, beside Table 6."""
    columns = (
        "operator, mode",
        "detection, s",
        "plan, s",
        "recovery, s",
        "still, s",
        "theirs (Table 6), ms",
        "same output",
        "runs",
    )
    rows = []
    for op, mode in dict.fromkeys((f.op, f.mode) for f in found):
        runs = [f for f in found if (f.op, f.mode) == (op, mode)]
        theirs = TABLE_6[OPERATORS[op][0]].get(MODES[mode] or "")
        values = (
            [getattr(f, name) for f in runs] for name in ("detection_s", "plan_s", "recovery_s", "still_s")
        )
        rows.append(
            (
                f"{op}, {mode}",
                *(_median(v) for v in values),
                "" if theirs is None else f"{theirs[1]:.2f}",
                "yes" if all(f.same for f in runs) else "**no**",
                str(len(runs)),
            )
        )
    return Grid("Recovery of one lost partition by `availability`", columns, tuple(rows))


def _median(values: Sequence[Any]) -> str:
    seen = [v for v in values if v is not None]
    return f"{median(seen):.2f}" if seen else "-"


if __name__ == "__main__":
    sys.exit(main())

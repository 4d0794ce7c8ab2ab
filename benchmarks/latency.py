"""How old output is when it is written, and what that costs, by the interval of batches.

    python -m benchmarks.latency --out DIR [--nodes 4] [--rate 2000] [--seconds 40] [--intervals 500ms 100ms 50ms]

`examples/minimal.yaml` runs once for each interval on the same nodes: a source, a parser, and as many partitions that count
as other nodes are left, so that each node has one partition.  `--exchange chained` lets jobs carry the messages.

Printed are milliseconds from when a batch was due until its output was written (median, 90 %, 99 %, greatest), of the
batches between 30 and 90 % of the run; and over the same time percent of a core that the driver (its JVM and its Python),
the executors' JVMs and the partition hosts used.  The exit code is 1 where a run failed, and 0 whatever else is found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import command
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.run.config import RunConfig
from reprise.controller.local.run.supervisor import run_topology
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from reprise.spark_jobs.topology.quantity import parse_duration

TOPOLOGY = Path(__file__).parents[1] / "examples" / "minimal.yaml"
FROM, TO = 0.3, 0.9
"""Shares of the run between which it is measured."""
PROCESSES = {
    "driver": ("reprise.controller.driver", "pyspark-shell"),
    "executors": ("CoarseGrainedExecutorBackend",),
    "hosts": ("reprise.spark_jobs.node.host_process",),
}
"""By what is measured, words of the command line of a process."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One run: milliseconds, rounds or jobs a second, percent of a core."""

    interval: str
    p50: float
    p90: float
    p99: float
    greatest: float
    jobs_s: float
    cpu: dict[str, float]


class Meter:
    """Sees a run, and what its processes use meanwhile."""

    def __init__(self, batches: int) -> None:
        self._first, self._last = round(FROM * batches), round(TO * batches)
        self._seen: list[tuple[float, int, dict[str, float]]] = []

    def __call__(self, state: RunState, _actions: list[dict[str, Any]]) -> None:
        progress = state.observation.progress
        after = (self._first, self._last)[min(len(self._seen), 1)]
        if progress is not None and progress.horizon >= after and len(self._seen) < 2:
            self._seen.append((time.monotonic(), progress.jobs, _cpu_s()))

    def figures(self, interval: str, out: Path) -> Figures:
        """What was seen, with the lines of events.jsonl.  ValueError: the run was not seen for long enough."""
        (begin, jobs, before), (end, more, after) = self._seen
        late = [
            1000 * (line["at"] - line["due"])
            for line in map(json.loads, (out / "events.jsonl").read_text().splitlines())
            if self._first <= line["batch"] <= self._last
        ]
        p50, p90, p99, greatest = (round(float(q), 1) for q in np.percentile(late, (50, 90, 99, 100)))
        cpu = {name: round(100 * (after[name] - before[name]) / (end - begin), 1) for name in PROCESSES}
        return Figures(interval, p50, p90, p99, greatest, round((more - jobs) / (end - begin), 1), cpu)


def _cpu_s() -> dict[str, float]:
    found = dict.fromkeys(PROCESSES, 0.0)
    for process in psutil.process_iter(["cmdline", "cpu_times"]):
        line = " ".join(process.info["cmdline"] or ())
        for name, words in PROCESSES.items():
            if any(word in line for word in words) and process.info["cpu_times"] is not None:
                found[name] += process.info["cpu_times"].user + process.info["cpu_times"].system
                break
    return found


def resource_of(interval: str, seconds: float, options: argparse.Namespace) -> tuple[StreamTopology, int]:
    """The topology of one run, and how many batches it has."""
    batches = round(seconds / parse_duration(interval))
    changes = {
        "batch.interval": interval,
        "sources[tweets].with.interval": interval,
        "sources[tweets].with.batches": batches,
        "sources[tweets].with.rate": options.rate,
        "nodes.count": options.nodes,
        "operators[count].parallelism": max(2, options.nodes - 2),
        "checkpoint": {"interval": "5s"},
        "spark.exchange": options.exchange,
    }
    return override(load_topology(str(TOPOLOGY)), changes), batches


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, stderr=options.output == "json")
    command.begin(options.out)
    found = []
    config = ClusterConfig(nodes=options.nodes, cpu_milli=200, start_timeout_s=300.0)
    with EmbeddedCluster(config) as cluster:
        for interval in options.intervals:
            resource, batches = resource_of(interval, options.seconds, options)
            meter, out = Meter(batches), options.out / interval
            console.print(f"batches of {interval}: {options.seconds:.0f} s", style="dim")
            result = run_topology(
                RunConfig(resource=resource, out=out, timeout_s=options.timeout, cluster=cluster), meter
            )
            if not result.ok:
                console.print(f"{result.outcome}: {result.reason}; logs in {out / 'logs'}", style="red")
                return 1
            found.append(meter.figures(interval, out))
    if options.output == "json":
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        console.print(_table(found))
    return 0


def _table(found: list[Figures]) -> Table:
    table = Table("batches", "p50, ms", "p90, ms", "p99, ms", "greatest, ms", "rounds/s", *PROCESSES)
    for one in found:
        late = (one.p50, one.p90, one.p99, one.greatest, one.jobs_s)
        table.add_row(one.interval, *map(str, late), *(f"{one.cpu[name]} %" for name in PROCESSES))
    return table


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command.parser("latency", __doc__, nodes=4, timeout_s=600.0)
    parser.add_argument("--rate", type=int, default=2000, help="rows a second (default: 2000)")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each run (default: 40)")
    parser.add_argument("--intervals", nargs="+", default=["500ms", "100ms", "50ms"])
    parser.add_argument("--exchange", choices=["auto", "chained"], default="auto")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

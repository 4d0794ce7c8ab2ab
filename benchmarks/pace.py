"""How many tweets a second Topology 1 takes, with everything that guards it, and how late its results are at fixed rates.

    python -m benchmarks.pace --out DIR [--nodes 2] [--rates 50000 100000]

`examples/topology1.yaml` as it is but for its rate, length and nodes: first as fast as it goes, in batches of half a second
of the greatest rate, then at each rate.  The exit code is 0 whatever comes out: this is no test.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from benchmarks import command
from benchmarks import overhead_measure as measure
from benchmarks import overhead_reprise as reprise
from benchmarks.overhead_data import Data
from benchmarks.overhead_report import Grid
from benchmarks.overhead_topology import FASTEST, NODE_CPU_MILLI
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.spark_jobs.topology import StreamTopology, from_json

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "topology1.yaml"
INTERVAL = "500ms"


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=120)
    command.begin(options.out)
    config = ClusterConfig(
        nodes=options.nodes,
        cpu_milli=NODE_CPU_MILLI,
        start_timeout_s=400.0,
        java_options=("-XX:TieredStopAtLevel=4",),
    )
    plan = [(max(options.rates), FASTEST), *((rate, INTERVAL) for rate in options.rates)]
    rows = []
    with EmbeddedCluster(config) as cluster:
        for rate, interval in plan:
            console.print(f"{_words(rate, interval)} ...", highlight=False)
            rows.append(_run(cluster, rate, interval, options))
            console.print(f"  {', '.join(rows[-1][1:])}", highlight=False)
    grid = Grid(
        f"Topology 1, {options.nodes} nodes",
        ("pace", "tweets/s", "latency, s (median)", "latency, s (95 %)", "kept up"),
        tuple(rows),
    )
    grid.show(console)
    (options.out / "pace.md").write_text(grid.markdown() + "\n")
    (options.out / "pace.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def resource(rate: int, interval: str, batches: int, nodes: int) -> StreamTopology:
    """The example with another rate (tweets a second), pace and size."""
    text: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    spec = text["spec"]
    spec["batch"]["interval"] = interval
    spec["sources"][0]["with"] |= {"rate": rate, "interval": INTERVAL, "batches": batches}
    spec["nodes"] = {"count": nodes, "cpu": f"{NODE_CPU_MILLI}m"}
    return from_json(json.dumps(text))


def _run(cluster: EmbeddedCluster, rate: int, interval: str, options: argparse.Namespace) -> tuple[str, ...]:
    what = _words(rate, interval)
    out = options.out / f"{rate}-{interval}"
    found = resource(rate, interval, options.batches, options.nodes)
    ran = reprise.guarded(replace(found, name=f"topology1-{rate}-{interval}"), cluster, out, options.timeout)
    if ran.reason:
        return what, "-", "-", "-", ran.reason
    data = Data(out, rate // 2, 0, options.batches)
    done = measure.completed(out)
    speed = f"{measure.throughput(done, data) or 0:,.0f}"
    late = measure.latency(done, data)
    if interval == FASTEST or late is None:
        return what, speed, "-", "-", "-"
    return what, speed, f"{late.median:.2f}", f"{late.p95:.2f}", "yes" if late.kept_up else "no"


def _words(rate: int, interval: str) -> str:
    return "as fast as possible" if interval == FASTEST else f"{rate:,} tweets/s"


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command.parser("pace", __doc__, nodes=2, timeout_s=400.0)
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[50_000, 100_000], help="tweets a second, even"
    )
    parser.add_argument("--batches", type=int, default=160, help="of half a second each")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())

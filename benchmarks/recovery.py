"""Figures 12 and 15 of Su and Zhou done again: how fast queries come back after several nodes are lost at once.

    python -m benchmarks.recovery --out DIR [--seeds 3] [--nodes 10] [--kill 8] [--order nodes|topological|reverse]
        [--scope auto|ancestors|global] [--exchange auto|chained]

Topology 2, one cluster, the same schedule for every strategy of a seed.  Each run that does not end, and each output that
differs from that of the first run of its seed by a byte, is named.  The exit code is 0 also when the expected order was not
seen: this is no test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks import recovery_measure as measure
from benchmarks.overhead_report import verdicts
from benchmarks.recovery_schedule import ALL, ORDERS, arrivals, lost, schedule
from benchmarks.recovery_show import Grid, plot, ratio, seconds, spread
from reprise.algorithms.cpu import milli_cpu
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.report.compare import compare
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult, load
from reprise.controller.local.run.supervisor import run_topology
from reprise.spark_jobs.topology import StreamTopology

TOPOLOGY = Path(__file__).resolve().parents[1] / "examples" / "topology2.yaml"
STRATEGIES = ("best-case", "incremental", "operator-centric", "blocking")
SCOPES = ("auto", "ancestors", "global")
CORES = 2.0
"""Declared CPU of all nodes together: as in topology2.yaml, ten nodes of 200m."""


@dataclass(frozen=True, slots=True)
class Run:
    """One strategy under one schedule."""

    seed: int
    strategy: str
    result: RunResult
    curve: measure.Curve | None
    nodes: int
    """At the failure, standby nodes included."""
    load: tuple[float, float]
    """Load average of the machine before and after."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    command.begin(options.out)
    runs = _runs(options, console)
    report = _report(runs, options)
    for grid in report.grids:
        grid.show(console)
    command.say(console, report.lines)
    (options.out / "recovery.md").write_text(report.markdown())
    (options.out / "recovery.json").write_text(json.dumps(report.figures, indent=1) + "\n")
    console.print(f"written: {options.out}/recovery.md, recovery.json and plots")
    return 0


def _runs(options: argparse.Namespace, console: Console) -> list[Run]:
    resource = topology(options, "incremental", 0)
    config = ClusterConfig(
        nodes=options.nodes,
        cpu_milli=cpu_milli(resource),
        start_timeout_s=400.0,
    )
    found: list[Run] = []
    try:
        with EmbeddedCluster(config) as cluster:
            for seed in range(options.seeds):
                for strategy in options.strategies:
                    console.print(f"seed {seed}: {strategy} ...", highlight=False)
                    run = _run(options, cluster, strategy, seed)
                    if run.result.outcome is Outcome.INTERRUPTED:
                        raise KeyboardInterrupt
                    found.append(run)
                    console.print(f"  {run.result.outcome.value} {run.result.reason}", highlight=False)
    except KeyboardInterrupt:
        console.print("interrupted; what was measured until then:")
    return found


def _run(options: argparse.Namespace, cluster: EmbeddedCluster, strategy: str, seed: int) -> Run:
    resource = topology(options, strategy, seed)
    faults = schedule(
        lost(options.order, options.nodes, options.kill), arrivals(seed, options.kill, options.speedup)
    )
    config = RunConfig(
        resource=resource,
        out=options.out / f"seed-{seed}" / strategy,
        faults=parse_faults(faults, "schedule", options.nodes),
        timeout_s=options.timeout,
        cluster=cluster,
    )
    before = os.getloadavg()[0]
    result = run_topology(config)
    standby = int(result.record.get("standby", 0))
    curve = measure.curve_of(result.incident)
    return Run(
        seed,
        strategy,
        result,
        curve,
        options.nodes + standby,
        (round(before, 1), round(os.getloadavg()[0], 1)),
    )


def topology(options: argparse.Namespace, strategy: str, seed: int) -> StreamTopology:
    """Topology 2 with the CPU of ten nodes on as many as were asked for."""
    return load(
        TOPOLOGY,
        nodes=options.nodes,
        strategy=strategy,
        overrides={
            "sources[source].with.rate": options.rate,
            "sources[source].with.batches": options.batches,
            "sources[source].with.seed": 3 + seed,
            "batch.interval": options.interval,
            "recovery.scope": options.scope,
            "spark.exchange": options.exchange,
            "nodes.cpu": f"{round(1000 * CORES / options.nodes)}m",
        },
    )


def cpu_milli(resource: StreamTopology) -> int:
    """What a node announces."""
    return milli_cpu(resource.nodes.cpu_cores)


# -- results ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """Tables, sentences, and the figures behind them."""

    title: str
    grids: tuple[Grid, ...]
    lines: tuple[str, ...]
    figures: list[dict[str, Any]]

    def markdown(self) -> str:
        """All of it as one page."""
        parts = [f"# {self.title}\n", *(g.markdown() for g in self.grids), *(f"{x}\n" for x in self.lines)]
        return "\n".join(parts)


def _report(runs: Sequence[Run], options: argparse.Namespace) -> Report:
    share = measure.greatest_share(
        topology(options, "incremental", 0), cpu_milli(topology(options, "incremental", 0))
    )
    figures: list[dict[str, Any]] = []
    lines: list[str] = []
    title = (
        f"Topology 2, {options.kill} of {options.nodes} nodes lost ({options.order}), "
        f"arrivals {options.speedup:g} times as fast"
    )
    for seed in sorted({run.seed for run in runs}):
        mine = [run for run in runs if run.seed == seed]
        entries = _entries(mine, share)
        figures += entries
        lines += [f"**seed {seed}: {text}**" for text in _problems(mine, entries)]
        curves = {run.strategy: run.curve for run in mine if run.curve is not None}
        plot(curves, f"{title}, seed {seed}", options.out / f"recovery-{seed}.png")
    if not lines and len(figures) == options.seeds * len(STRATEGIES):
        lines.append(
            "Every run showed best-case >= incremental > operator-centric, blocking; all outputs identical."
        )
    lines += verdicts(_ratios(figures), "recovery")
    return Report(title, (_table(figures), _means(figures)), tuple(lines), figures)


def _ratios(figures: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Areas of two strategies over all seeds, by the names of ranges.yaml."""
    total: dict[str, float] = {}
    for entry in figures:
        total[entry["strategy"]] = total.get(entry["strategy"], 0.0) + float(entry.get("area_s", 0.0))
    pairs = (("incremental", "best-case"), ("operator-centric", "incremental"), ("blocking", "incremental"))
    return {f"{a} / {b}": total[a] / total[b] for a, b in pairs if a in total and total.get(b)}


def _entries(runs: Sequence[Run], share: Any) -> list[dict[str, Any]]:
    ended = [run.curve.elapsed[-1] for run in runs if run.curve is not None]
    horizon = max(ended, default=0.0)
    entries: list[dict[str, Any]] = []
    for run in runs:
        if run.curve is None:
            entries.append(
                {
                    "seed": run.seed,
                    "strategy": run.strategy,
                    "outcome": run.result.outcome.value,
                    "load": run.load,
                }
            )
            continue
        value = measure.worth(run.curve, run.nodes, share, horizon)
        entries.append(
            {
                "seed": run.seed,
                "strategy": run.strategy,
                "outcome": run.result.outcome.value,
                "area_s": value.area_s,
                "bound_s": value.bound_s,
                "of_bound": value.of_bound,
                "lost_s": value.lost_s,
                "horizon_s": horizon,
                "again_s": run.curve.again_s,
                "lost_nodes": run.curve.lost_nodes,
                "arrivals": run.curve.arrivals,
                "load": run.load,
            }
        )
    best = next((e["area_s"] for e in entries if e["strategy"] == "best-case" and "area_s" in e), None)
    for entry in entries:
        if best and "area_s" in entry:
            entry["of_best"] = entry["area_s"] / best
    return entries


def _problems(runs: Sequence[Run], entries: Sequence[dict[str, Any]]) -> list[str]:
    """What this seed did not show: ends, order, identical outputs."""
    found = [
        f"{run.strategy}: {run.result.outcome.value} {run.result.reason}" for run in runs if not run.result.ok
    ]
    found += measure.order_broken({e["strategy"]: e["area_s"] for e in entries if "area_s" in e})
    ended = [run for run in runs if run.result.ok]
    for run in ended[1:]:
        first = ended[0]
        same = compare(first.result.out, run.result.out)
        if not same.identical:
            found.append(
                f"output of {run.strategy} differs from that of {first.strategy}: {len(same.missing)} missing, "
                f"{len(same.extra)} extra, {len(same.different)} different"
            )
    return found


def _table(figures: Sequence[dict[str, Any]]) -> Grid:
    columns = ("strategy", "seed", "outcome", "area / best", "area / bound", "lost, s", "all back, s", "load")
    rows = tuple(
        (
            str(e["strategy"]),
            str(e["seed"]),
            str(e["outcome"]),
            ratio(e["of_best"]) if "of_best" in e else "-",
            ratio(e["of_bound"]) if "of_bound" in e else "-",
            seconds(e.get("lost_s")),
            seconds(e.get("again_s")),
            f"{e['load'][0]:g} -> {e['load'][1]:g}",
        )
        for e in figures
    )
    return Grid("Area under the priority-weighted availability since the failure", columns, rows)


def _means(figures: Sequence[dict[str, Any]]) -> Grid:
    rows = []
    for strategy in dict.fromkeys(str(e["strategy"]) for e in figures):
        mine = [e for e in figures if e["strategy"] == strategy and "area_s" in e]
        best = [float(e["of_best"]) for e in mine if "of_best" in e]
        if mine:
            bound = spread([float(e["of_bound"]) for e in mine])
            rows.append((strategy, str(len(mine)), spread(best) if best else "-", bound))
    return Grid("Mean over seeds (range)", ("strategy", "runs", "area / best", "area / bound"), tuple(rows))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command.parser("recovery", __doc__, nodes=10, timeout_s=600.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kill", type=int, default=8)
    parser.add_argument("--order", choices=ORDERS, default="nodes")
    parser.add_argument("--topological", dest="order", action="store_const", const="topological")
    parser.add_argument("--reverse", dest="order", action="store_const", const="reverse")
    parser.add_argument(
        "--scope",
        choices=SCOPES,
        default="auto",
        help="what goes back with what was lost, where the strategy lets others go on",
    )
    parser.add_argument(
        "--exchange",
        choices=("auto", "chained"),
        default="auto",
        help="whether messages travel with the stages of jobs, or all the time",
    )
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument(
        "--speedup", type=float, default=6.0, help="how much faster nodes arrive than in fig. 7"
    )
    parser.add_argument("--rate", type=int, default=200, help="tweets a second")
    parser.add_argument("--batches", type=int, default=240)
    parser.add_argument("--interval", default="500ms", help="between batches; more on a machine that is busy")
    options = parser.parse_args(arguments)
    if not 2 <= options.nodes <= len(ALL):
        parser.error(f"--nodes: must lie between 2 and {len(ALL)}, found {options.nodes}")
    if not 0 < options.kill < options.nodes:
        parser.error(f"--kill: must lie between 1 and {options.nodes - 1}, found {options.kill}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())

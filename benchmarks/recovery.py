"""Figures 12 and 15 of Su and Zhou done again: how fast queries come back after several nodes are lost at once.

    python -m benchmarks.recovery --out DIR [--seeds 3] [--nodes 10] [--kill 8] [--order nodes|topological|reverse]
        [--rooms scarce ample] [--strategies incremental blocking] [--busy 0] [--horizon 110]

Topology 2, one cluster for each room, the same schedule for every strategy of a seed.  Each run that does not end, and each
output that differs from that of the first run of its seed by a byte, is named.  The exit code is 0 also when the expected
order was not seen: this is no test.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from reprise.controller.local.report.history import read_events
from reprise.controller.local.report.layout import Layout
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult, load
from reprise.controller.local.run.supervisor import run_topology
from reprise.spark_jobs.topology import StreamTopology

TOPOLOGY = Path(__file__).resolve().parents[1] / "examples" / "topology2.yaml"
STRATEGIES = ("best-case", "incremental", "operator-centric", "blocking")
SCOPES = ("auto", "ancestors", "global")
ROOMS = {"scarce": 2.0, "ample": 10.0}
"""CPU of all nodes together, cores.  `scarce` is that of topology2.yaml: two nodes of ten hold 2 of its 15 queries.  In an
`ample` room two hold all of them."""
LEAD_S = 40.0
"""Longest time that a stream runs before the failure."""


@dataclass(frozen=True, slots=True)
class Run:
    """One strategy under one schedule."""

    room: str
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
    with _busy(options.busy):
        runs = list(_until_interrupted(options, console))
    found = report(runs, options)
    for grid in found.grids:
        grid.show(console)
    command.say(console, found.lines)
    (options.out / "recovery.md").write_text(found.markdown())
    (options.out / "recovery.json").write_text(json.dumps(found.figures, indent=1) + "\n")
    console.print(f"written: {options.out}/recovery.md, recovery.json and plots")
    return 0


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many processes compute beside the runs; they end with this one."""
    spin = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
    started = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _until_interrupted(options: argparse.Namespace, console: Console) -> Iterator[Run]:
    try:
        for room in options.rooms:
            yield from _runs(options, room, console)
    except KeyboardInterrupt:
        console.print("interrupted; what was measured until then:")


def _runs(options: argparse.Namespace, room: str, console: Console) -> Iterator[Run]:
    resource = topology(options, room, "incremental", 0)
    config = ClusterConfig(nodes=options.nodes, cpu_milli=cpu_milli(resource), start_timeout_s=400.0)
    with EmbeddedCluster(config) as cluster:
        for seed in range(options.seeds):
            for strategy in options.strategies:
                console.print(f"{room}, seed {seed}: {strategy} ...", highlight=False)
                run = _run(options, cluster, room, strategy, seed)
                if run.result.outcome is Outcome.INTERRUPTED:
                    raise KeyboardInterrupt
                console.print(f"  {run.result.outcome.value} {run.result.reason}", highlight=False)
                yield run


def _run(options: argparse.Namespace, cluster: EmbeddedCluster, room: str, strategy: str, seed: int) -> Run:
    resource = topology(options, room, strategy, seed)
    faults = schedule(
        lost(options.order, options.nodes, options.kill), arrivals(seed, options.kill, options.speedup)
    )
    config = RunConfig(
        resource=resource,
        out=options.out / room / f"seed-{seed}" / strategy,
        faults=parse_faults(faults, "schedule", options.nodes),
        timeout_s=options.timeout,
        cluster=cluster,
    )
    before = os.getloadavg()[0]
    result = run_topology(config)
    standby = int(result.record.get("standby", 0))
    curve = measure.curve_of(result.incident, read_events(Layout(config.out).events))
    after = os.getloadavg()[0]
    load_average = (round(before, 1), round(after, 1))
    return Run(room, seed, strategy, result, curve, options.nodes + standby, load_average)


def topology(options: argparse.Namespace, room: str, strategy: str, seed: int) -> StreamTopology:
    """Topology 2 with the CPU of the room on as many nodes as were asked for, until behind the horizon."""
    interval = options.interval
    return load(
        TOPOLOGY,
        nodes=options.nodes,
        strategy=strategy,
        overrides={
            "sources[source].with.rate": options.rate,
            "sources[source].with.interval": f"{interval:g}s",
            "sources[source].with.batches": math.ceil((LEAD_S + options.horizon) / interval),
            "sources[source].with.seed": 3 + seed,
            "batch.interval": f"{interval:g}s",
            "recovery.scope": options.scope,
            "nodes.cpu": f"{round(1000 * ROOMS[room] / options.nodes)}m",
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


def report(runs: Sequence[Run], options: argparse.Namespace) -> Report:
    """Tables for each room, and what its seeds did not show."""
    figures: list[dict[str, Any]] = []
    grids: list[Grid] = []
    lines: list[str] = []
    for room in dict.fromkeys(run.room for run in runs):
        resource = topology(options, room, "incremental", 0)
        share = measure.greatest_share(resource, cpu_milli(resource))
        entries: list[dict[str, Any]] = []
        for seed in sorted({run.seed for run in runs if run.room == room}):
            mine = [run for run in runs if (run.room, run.seed) == (room, seed)]
            found = [_entry(run, share, options.horizon) for run in mine]
            entries += found
            lines += [f"**{room}, seed {seed}: {text}**" for text in _problems(mine, found, options.horizon)]
            curves = {run.strategy: run.curve for run in mine if run.curve is not None}
            title = (
                f"Topology 2, {options.kill} of {options.nodes} nodes lost ({options.order}), {room} room, "
                f"seed {seed}"
            )
            plot(curves, title, options.horizon, options.out / f"recovery-{room}-{seed}.png")
        grids += [_table(room, entries), _means(room, entries), _ladders(room, entries)]
        if room == "scarce":
            lines += verdicts(_ratios(entries), "recovery")
        figures += entries
    if not lines:
        lines.append("Every run ended, and outputs are identical within their seed.")
    title = f"Topology 2, {options.kill} of {options.nodes} nodes lost ({options.order})"
    return Report(title, tuple(grids), tuple(lines), figures)


def _ratios(figures: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Areas of two strategies over all seeds, by the names of ranges.yaml."""
    total: dict[str, float] = {}
    for entry in figures:
        total[entry["strategy"]] = total.get(entry["strategy"], 0.0) + float(entry.get("area_s", 0.0))
    pairs = (("incremental", "best-case"), ("operator-centric", "incremental"), ("blocking", "incremental"))
    return {f"{a} / {b}": total[a] / total[b] for a, b in pairs if a in total and total.get(b)}


def _entry(run: Run, share: measure.Share, horizon_s: float) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "room": run.room,
        "seed": run.seed,
        "strategy": run.strategy,
        "outcome": run.result.outcome.value,
        "load": run.load,
    }
    if run.curve is None:
        return entry
    value = measure.worth(run.curve, run.nodes, share, horizon_s)
    incidents = run.result.incident["incidents"]
    return entry | {
        "area_s": value.area_s,
        "bound_asked_s": value.asked_s,
        "bound_heartbeat_s": value.heartbeat_s,
        "of_asked": value.of_asked,
        "of_bound": value.of_bound,
        "lost_s": value.lost_s,
        "horizon_s": horizon_s,
        "first_s": run.curve.first_s,
        "again_s": run.curve.again_s,
        "relapses": sum(q["relapses"] for i in incidents for q in i["queries"].values()),
        "lost_nodes": run.curve.lost_nodes,
        "nodes": {phase.value: at for phase, at in run.curve.nodes.items()},
        "ladder": measure.ladder(run.curve, run.nodes, share, horizon_s),
    }


def _problems(runs: Sequence[Run], entries: Sequence[dict[str, Any]], horizon_s: float) -> list[str]:
    """What this seed did not show: ends, length, order, identical outputs."""
    found = [
        f"{run.strategy}: {run.result.outcome.value} {run.result.reason}" for run in runs if not run.result.ok
    ]
    found += [
        f"{run.strategy} ended {run.curve.elapsed[-1]:.0f} s after the failure, before the horizon"
        for run in runs
        if run.curve is not None and run.curve.elapsed[-1] < horizon_s
    ]
    if entries[0]["room"] == "scarce":
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


def _table(room: str, figures: Sequence[dict[str, Any]]) -> Grid:
    columns = (
        "strategy", "seed", "outcome", "first back, s", "all back, s", "relapses", "lost, s",
        "area / bound from heartbeats", "from requests", "load",
    )  # fmt: skip
    rows = tuple(
        (
            str(e["strategy"]),
            str(e["seed"]),
            str(e["outcome"]),
            seconds(e.get("first_s")),
            seconds(e.get("again_s")),
            str(e.get("relapses", "-")),
            seconds(e.get("lost_s")),
            ratio(e["of_bound"]) if "of_bound" in e else "-",
            ratio(e["of_asked"]) if "of_asked" in e else "-",
            f"{e['load'][0]:g} -> {e['load'][1]:g}",
        )
        for e in figures
    )
    return Grid(f"{room} room: availability, weighted by priority, until the horizon", columns, rows)


def _means(room: str, figures: Sequence[dict[str, Any]]) -> Grid:
    columns = ("strategy", "runs", "lost, s", "area / bound from heartbeats", "from requests")
    rows = []
    for strategy in dict.fromkeys(str(e["strategy"]) for e in figures):
        mine = [e for e in figures if e["strategy"] == strategy and "area_s" in e]
        if mine:
            spreads = (spread([float(e[k]) for e in mine]) for k in ("lost_s", "of_bound", "of_asked"))
            rows.append((strategy, str(len(mine)), *spreads))
    return Grid(f"{room} room: mean over seeds (range)", columns, tuple(rows))


def _ladders(room: str, figures: Sequence[dict[str, Any]]) -> Grid:
    """Area with one cause of loss after the other, mean over seeds, and what each takes."""
    found: dict[str, dict[str, list[float]]] = {}
    for entry in figures:
        for cause, value in entry.get("ladder", ()):
            found.setdefault(cause, {}).setdefault(entry["strategy"], []).append(value)
    strategies = list(dict.fromkeys(e["strategy"] for e in figures))
    rows, before = [], dict[str, float]()
    for cause, by_strategy in found.items():
        cells = []
        for strategy in strategies:
            values = by_strategy.get(strategy)
            if not values:
                cells.append("-")
                continue
            mean = sum(values) / len(values)
            step = f" ({mean - before[strategy]:+.1f})" if strategy in before else ""
            cells.append(f"{mean:.1f}{step}")
            before[strategy] = mean
        rows.append((cause, *cells))
    return Grid(
        f"{room} room: area, s, with one cause after the other", ("counted", *strategies), tuple(rows)
    )


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
        "--rooms",
        nargs="+",
        choices=ROOMS,
        default=list(ROOMS),
        help="what two nodes hold: 2 queries, or all",
    )
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument(
        "--speedup", type=float, default=6.0, help="how much faster nodes arrive than in fig. 7"
    )
    parser.add_argument("--horizon", type=float, default=110.0, help="seconds from the failure that count")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside the runs")
    parser.add_argument("--rate", type=int, default=200, help="tweets a second")
    parser.add_argument("--interval", type=float, default=0.5, help="between batches, seconds")
    options = parser.parse_args(arguments)
    if not 2 <= options.nodes <= len(ALL):
        parser.error(f"--nodes: must lie between 2 and {len(ALL)}, found {options.nodes}")
    if not 0 < options.kill < options.nodes:
        parser.error(f"--kill: must lie between 1 and {options.nodes - 1}, found {options.kill}")
    return options


if __name__ == "__main__":
    raise SystemExit(main())

"""Half of the nodes are lost, announced some seconds before and unannounced: what the notice is worth.

    python -m benchmarks.notice --out DIR [--nodes 8] [--lose 4] [--notice 10] [--output text|json]

Twice the same topology (`examples/topology2.yaml`, 15 queries with priorities) on the same number of nodes, and the same
nodes are killed.  In one run they are given notice before: SIGTERM to their agents, and the kill that long after it, so what
they have moves to the others meanwhile.  In the other run nobody knows of it.  What is left has room for everything, so
what is lost is time: until the loss is noticed, a plan is made, states are restored and what came meanwhile is done.

Printed is the area above the priority-weighted availability of the outputs from the fault (the notice or the kill) on, in
seconds of the whole topology, over the same number of seconds in both runs (Su and Zhou, section 7.2, say when an output
counts as available: `reprise.controller.local.report.latency`); the longest time for which a query showed nothing; and
whether the outputs of both runs are the same, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks.recovery_measure import area
from benchmarks.recovery_show import Grid
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.report.compare import compare
from reprise.controller.local.run.config import RunConfig, RunResult, load
from reprise.controller.local.run.supervisor import run_topology

TOPOLOGY = Path(__file__).parents[1] / "examples" / "topology2.yaml"
CPU_MILLI = 1000
"""Large enough that half of the nodes take everything, and that what is measured on a busy machine changes no plan."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One run from its first fault on; times in seconds."""

    lost_s: float
    """Area above the priority-weighted availability."""
    stood_still_s: float
    """The longest time between two batches of one query."""
    incidents: int
    moved: int
    """Steps in which partitions were moved."""


def stood_still(writes: Sequence[Mapping[str, Any]], since: float) -> float:
    """The longest time between two batches of a query after `since`; `writes`: query, batch and time of each."""
    shown: dict[str, list[float]] = {}
    for write in writes:
        if write["at"] >= since:
            shown.setdefault(write["query"], [since]).append(write["at"])
    return max((b - a for at in shown.values() for a, b in pairwise(sorted(at))), default=0.0)


def unavailable(report: Mapping[str, Any], seconds: float) -> float:
    """Area above the availability of an incident.json, from the failure on for so many seconds."""
    failure, series = float(report["failure"]), report["series"]
    steps = [
        (at - failure, 1.0 - share)
        for at, share in zip(series["elapsed"], series["share"], strict=True)
        if at >= failure
    ]
    return area(steps, seconds) if steps else 0.0


def horizon(report: Mapping[str, Any]) -> float:
    """How long a run went on after its first fault."""
    return float(report["series"]["elapsed"][-1]) - float(report["failure"])


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, stderr=options.output == "json")
    command.begin(options.out)
    names = [f"n{k + 1}" for k in range(options.nodes - options.lose, options.nodes)]
    faults = {
        "with notice": {"batch": options.batch, "notice": names, "for": options.notice},
        "unannounced": {"batch": options.batch, "kill": names},
    }
    results = {}
    for name, fault in faults.items():
        results[name] = _run(options, console, name.replace(" ", "-"), fault)
        if not results[name].ok:
            command.say(console, [f"{name}: {results[name].outcome.value} {results[name].reason}"])
            return 1
    seconds = min(horizon(result.incident) for result in results.values())
    found = {name: _loss(result, seconds) for name, result in results.items()}
    announced, not_announced = found.values()
    comparison = compare(*(result.out for result in results.values()))
    figures: dict[str, Any] = {
        "nodes": options.nodes,
        "lost": options.lose,
        "notice_s": options.notice,
        "seconds": round(seconds, 1),
        "runs": {name: asdict(loss) for name, loss in found.items()},
        "fraction": round(announced.lost_s / not_announced.lost_s, 3) if not_announced.lost_s else None,
        "outputs_identical": comparison.identical,
        "files_compared": comparison.equal,
        "load_average": round(os.getloadavg()[0], 1),
    }
    text = json.dumps(figures, indent=1) + "\n"
    (options.out / "notice.json").write_text(text)
    if options.output == "json":
        sys.stdout.write(text)
    else:
        _show(figures, found, console)
    return 0 if comparison.identical else 1


def _run(options: argparse.Namespace, console: Console, name: str, fault: Mapping[str, Any]) -> RunResult:
    changes = {
        "sources[source].with.batches": options.batches,
        "sources[source].with.rate": options.rate,
        "nodes.count": options.nodes,
        "checkpoint.interval": options.checkpoint,
    }
    resource = load(TOPOLOGY, overrides=changes)
    with EmbeddedCluster(ClusterConfig(nodes=options.nodes, cpu_milli=CPU_MILLI)) as cluster:
        config = RunConfig(
            resource=resource,
            out=options.out / name,
            faults=parse_faults([dict(fault)], "schedule", options.nodes),
            timeout_s=options.timeout,
            cluster=cluster,
        )
        return run_topology(config, lambda *_: None, lambda line: console.print(line, highlight=False))


def _loss(result: RunResult, seconds: float) -> Loss:
    lines = (result.out / "events.jsonl").read_text().splitlines()
    report = result.incident
    began = report["zero"] + report["failure"]
    log = (result.out / "logs" / "coordinator.log").read_text(errors="replace")
    return Loss(
        round(unavailable(report, seconds), 2),
        round(stood_still([json.loads(line) for line in lines], began), 2),
        len(report["incidents"]),
        log.count("event=decided rule=moved"),
    )


def _show(figures: Mapping[str, Any], found: Mapping[str, Loss], console: Console) -> None:
    rows = [
        (name, f"{x.lost_s:.2f}", f"{x.stood_still_s:.2f}", str(x.incidents), str(x.moved))
        for name, x in found.items()
    ]
    head = ("loss", "availability lost, s", "longest stand-still, s", "incidents", "moves")
    title = f"{figures['lost']} of {figures['nodes']} nodes, notice {figures['notice_s']:g} s"
    Grid(title, head, tuple(rows)).show(console)
    same = "identical" if figures["outputs_identical"] else "DIFFERENT"
    command.say(
        console,
        [
            f"**{figures['fraction']} of the availability that is lost unannounced is lost with notice**, over "
            f"{figures['seconds']:g} s; outputs {same} in {figures['files_compared']} files; load average "
            f"{figures['load_average']}"
        ],
    )


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.notice",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="replaced when it is there")
    parser.add_argument("--timeout", type=float, default=600.0, help="of one run, seconds")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--lose", type=int, default=4, help="of these, the last ones")
    parser.add_argument("--notice", type=float, default=10.0, help="seconds between notice and loss")
    parser.add_argument("--batch", type=int, default=60, help="at which the notice comes, or the loss")
    parser.add_argument("--batches", type=int, default=200, help="of 0.5 s, in the whole stream")
    parser.add_argument("--rate", type=int, default=200, help="rows a second")
    parser.add_argument("--checkpoint", default="10s", help="time between two checkpoints")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

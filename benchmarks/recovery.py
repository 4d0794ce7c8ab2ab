"""Figures 12 and 15 of Su and Zhou done again: how fast queries come back after several nodes are lost at once.

    python -m benchmarks.recovery --out DIR [--work topology2|counts] [--seeds 3] [--nodes 10] [--kill 8]
        [--order nodes|topological|reverse] [--rooms scarce ample] [--contestants incremental blocking] [--busy 0]

All contestants of a seed get the same tweets, lose as many nodes, and request new ones at the same times.  `topology2` is
the work of the paper, for the strategies of this project.  `counts` is for other engines, too.  The report names runs that
did not end and outputs that are wrong.  The exit code is 0 also when a ratio lies outside its range: this is no test.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from benchmarks import command, recovery_peers
from benchmarks.recovery_report import report
from benchmarks.recovery_runs import PEERS, ROOMS, STRATEGIES, WORKS, Run, cpu_milli, run, topology
from benchmarks.recovery_schedule import ALL, ORDERS
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    command.begin(options.out)
    runs: list[Run] = []
    try:
        with _busy(options.busy):
            for room in options.rooms:
                for one in _runs(options, room, console):
                    runs.append(one)
    except KeyboardInterrupt:
        console.print("interrupted; what was measured until then:")
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


def _runs(options: argparse.Namespace, room: str, console: Console) -> Iterator[Run]:
    announced = cpu_milli(topology(options, room, "incremental", 0))
    config = ClusterConfig(nodes=options.nodes, cpu_milli=announced, start_timeout_s=400.0)
    with EmbeddedCluster(config) as cluster:
        if any(PEERS[one][0] is recovery_peers.flink for one in options.contestants if one in PEERS):
            recovery_peers.prepare_flink(cluster)  # before the first run, as it may fail
        for seed in range(options.seeds):
            for contestant in options.contestants:
                console.print(f"{room} room, seed {seed}: {contestant} ...", highlight=False)
                found = run(options, cluster, room, contestant, seed)
                console.print(f"  {found.reason or 'done'}", highlight=False)
                yield found


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of a command line."""
    parser = command.parser("recovery", __doc__, nodes=10, timeout_s=600.0)
    parser.add_argument("--work", choices=WORKS, default="topology2", help="counts: also by other engines")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kill", type=int, default=8)
    parser.add_argument("--order", choices=ORDERS, default="nodes")
    parser.add_argument("--topological", dest="order", action="store_const", const="topological")
    parser.add_argument("--reverse", dest="order", action="store_const", const="reverse")
    parser.add_argument(
        "--rooms",
        nargs="+",
        choices=ROOMS,
        default=list(ROOMS),
        help="what two nodes hold: 2 queries, or all",
    )
    parser.add_argument(
        "--contestants", nargs="+", choices=[*STRATEGIES, *PEERS], help="default: all that can do the work"
    )
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
    options.contestants = options.contestants or list(WORKS[options.work])
    if peers := [one for one in options.contestants if one in PEERS]:
        if options.work == "topology2":
            parser.error(f"--contestants: {', '.join(peers)} cannot do topology2; give --work counts")
        if options.order != "nodes":
            parser.error(
                f"--order: {', '.join(peers)} lose their youngest nodes, so only `nodes` is possible"
            )
    return options


if __name__ == "__main__":
    raise SystemExit(main())

"""Ways in which lost partitions come back, on a real cluster: how long queries stand still, beside Hwang et al.

    python -m benchmarks.availability --out DIR [--tables "Table 6,Fig. 7,..."] [--wide] [--repeat N]
    python -m benchmarks.availability --from DIR/availability.json --write docs/benchmarks.md

Source: J.-H. Hwang, M. Balazinska, A. Rasin, U. Cetintemel, M. Stonebraker, S. Zdonik, "High-Availability Algorithms for
Distributed Stream Processing", section 7, Tables 6 to 8, figs. 6 and 7.  A source, an operator and an output are on nodes
of their own, four nodes, one cluster for all runs; the operator's node is killed between two checkpoints.  One batch of 100
ms stands for 5 ms of theirs (`benchmarks.availability_cases`).  Each figure of a run is taken from its own records:

- detection: from the kill until the incident is opened;
- plan: from then until the plan, which waits for the rest of a burst; a standby is promoted without one;
- behind the plan: until the longest time without a new batch is over;
- replay: batches that were made again of those that had been shown, in milliseconds of theirs.  It is what their Table 3
  counts (Q), and what window, advance, interval and chain are about;
- CPU a batch: of all partition hosts, before the loss;
- overhead: bytes for availability over those of the sources' rows, before the loss, as theirs.  Counted are what goes to
  standbys on other nodes (rows once more, or states and outputs), and what nodes are told with each job of standbys and of
  output that upstream backup needs no more.  Reports of hosts are not counted: they name every partition in any mode.

Theirs are milliseconds of a system that moves single tuples; here a chain of supersteps is the floor, and a plan, which
waits for the rest of a burst, is part of every mode but the standbys.  So replays and the order of the modes are to be
compared, not seconds.  The last table is not theirs: five queries, of which the three most valuable have the mode, and two
of four nodes are lost; availability lost stands beside CPU spent.

Outputs that differ from those of the topology without Spark and failures, but for batches that are marked, are said to be
not as promised.  The exit code is 0 whatever is found: this is no test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks import command
from benchmarks.availability_cases import MODES, TWO_OF_FOUR, Case, cases
from benchmarks.availability_measure import CpuWatch, Figures, figures
from benchmarks.availability_report import TITLES, grids, markdown
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.run.config import RunConfig, RunResult
from reprise.controller.local.run.supervisor import run_topology

NODES, CPU_MILLI = 4, 1000
FIGURES = "bench-availability"
ROOT = Path(__file__).parents[1]
TABLES = (*TITLES, TWO_OF_FOUR)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    if options.known is None:
        command.begin(options.out)
        _run_all(options, console)
    source = options.known or options.out / "availability.json"
    saved = json.loads(source.read_text())
    found = [Figures(**one) for one in saved["runs"]]
    for grid in grids(found):
        grid.show(console)
    text = markdown(found, saved["conditions"])
    if options.known is None:
        (options.out / "availability.md").write_text(text)
    if options.write is not None:
        command.put_figures(options.write, FIGURES, text)
    return 0


def _run_all(options: argparse.Namespace, console: Console) -> None:
    wanted = [
        case
        for case in cases(frozenset(options.tables.split(",")), options.wide)
        if case.mode in options.modes.split(",")
    ] * options.repeat
    left = sum(case.seconds for case in wanted)
    command.say(console, [f"**{len(wanted)} runs, about {left / 60:.0f} minutes on two quiet cores**"])
    found: list[Figures] = []
    loads, began, spent = [os.getloadavg()[0]], time.monotonic(), 0.0
    try:
        with EmbeddedCluster(
            ClusterConfig(nodes=NODES, cpu_milli=CPU_MILLI, start_timeout_s=300.0)
        ) as cluster:
            for number, case in enumerate(wanted, 1):
                started = time.monotonic()
                watch = CpuWatch(case.lost_at)
                result = _run(case, cluster, options, f"{number:03d}-{case.name}", watch)
                found.append(figures(case, result, watch))
                took, spent = time.monotonic() - started, spent + case.seconds
                rest = (left - spent) * (time.monotonic() - began) / spent
                command.say(
                    console,
                    [
                        f"[{number}/{len(wanted)}] {case.table}: {case.row}, {case.mode}: {result.outcome.value} "
                        f"{result.reason} in {took:.0f} s; about {rest / 60:.0f} min left"
                    ],
                )
                loads.append(os.getloadavg()[0])
    finally:  # what was measured until then
        conditions = (
            f"Taken in {(time.monotonic() - began) / 60:.0f} minutes on {os.cpu_count()} cores, load average "
            f"{min(loads):.1f} to {max(loads):.1f}; medians where there are several runs."
        )
        saved = {"conditions": conditions, "runs": [asdict(f) for f in found]}
        (options.out / "availability.json").write_text(json.dumps(saved, indent=1) + "\n")


def _run(
    case: Case, cluster: EmbeddedCluster, options: argparse.Namespace, name: str, watch: CpuWatch
) -> RunResult:
    faults = parse_faults([{"batch": case.lost_at, "kill": case.kills}], "faults", NODES)
    config = RunConfig(
        resource=case.resource,
        out=options.out / name,
        faults=faults,
        timeout_s=options.timeout,
        cluster=cluster,
        python_path=str(ROOT),
    )
    return run_topology(config, watch, lambda _line: None)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.availability",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, help="folder of the runs, replaced when it is there")
    parser.add_argument(
        "--from", dest="known", type=Path, metavar="JSON", help="run nothing: show these figures"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="a document into which the tables are put")
    parser.add_argument("--tables", default=",".join(TABLES), help="of these, with commas (default: all)")
    parser.add_argument("--modes", default=",".join(MODES), help="of these, with commas (default: all)")
    parser.add_argument("--wide", action="store_true", help="every row of theirs, and not only the ends")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each, of which the median is printed")
    parser.add_argument("--timeout", type=float, default=120.0, help="of one run, seconds")
    options = parser.parse_args(arguments)
    for name, known in (("tables", TABLES), ("modes", tuple(MODES))):
        if unknown := set(getattr(options, name).split(",")) - set(known):
            parser.error(f"--{name}: there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if (options.out is None) == (options.known is None):
        parser.error("either --out or --from")
    return options


if __name__ == "__main__":
    sys.exit(main())

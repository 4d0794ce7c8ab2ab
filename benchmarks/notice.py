"""Half of the nodes are lost, announced some seconds before and unannounced: what the notice is worth.

    python -m benchmarks.notice --out DIR [--nodes 8] [--lose 4] [--notice 10] [--state-mb N] [--standbys [MODE]]
    python -m benchmarks.notice --from DIR/notice.json [...] --write docs/benchmarks.md

The same topology (`examples/topology2.yaml`, 15 queries with priorities) runs again and again on the same number of nodes,
and the same nodes are killed: every second one, where half are lost, so partitions of the most valuable queries are among
what is lost, and the source is not.  In one run the nodes are given notice before: SIGTERM to their agents, and the kill so
long after it, so what they have moves to the others meanwhile.  In the other run nobody knows of it.  With `--standbys` two
more runs are of the same kind, in which all operators that the three most valuable queries need have standbys, which are
promoted by the notice, or by the loss.  What is left has room for everything, so what is lost is time: until the loss is
noticed, a plan is made, states are restored and what came meanwhile is done.

With `--state-mb` each state of the 15 operators is larger by so many MiB.  A notice that is too short for them, say of three
seconds, ends while something is still on its way; how many partitions that were is among the figures.

Printed is the area above the priority-weighted availability of the outputs from the fault (the notice or the kill) on, in
seconds of the whole topology, over the same number of seconds in all runs (Su and Zhou, section 7.2, say when an output
counts as available: `reprise.controller.local.report.latency`), and over that of the unannounced loss in the same
repetition; the longest time for which a query showed nothing, and one of the most valuable; and whether the outputs are
those of the first run, byte for byte.  Figures of several runs are medians, with the range.  The exit code is 0 whatever is
found: this is no test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks.notice_figures import ANNOUNCED, UNANNOUNCED, Loss, loss_of, table
from benchmarks.notice_parts import HEAVY
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.report.compare import compare
from reprise.controller.local.run.config import RunConfig, RunResult, load
from reprise.controller.local.run.supervisor import run_topology
from reprise.spark_jobs.topology import StreamTopology, expand, override
from reprise.spark_jobs.topology.binding import resolve

PROJECT = Path(__file__).parents[1]
TOPOLOGY = PROJECT / "examples" / "topology2.yaml"
FIGURES, HEAVY_FIGURES = "bench-notice", "bench-notice-heavy"
"""Places of the tables in a document: of states as they are, and of larger ones."""
CPU_MILLI = 1000
"""Large enough that half of the nodes take everything, and that what is measured on a busy machine changes no plan."""
BATCH_S = 0.5
TOP = 3
"""Queries whose operators have standbys, where that is asked for."""
STANDBYS = ("active-standby", "passive-standby")


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200, stderr=options.output == "json")
    if not options.known:
        command.begin(options.out)
        _run_all(options, console)
    files = options.known or [options.out / "notice.json"]
    conditions, found = read(files)
    grid = table("Half of the nodes are lost" if options.known else _title(options), found)
    if options.output == "json":
        sys.stdout.write(
            json.dumps({"conditions": conditions, "runs": [asdict(one) for one in found]}, indent=1)
        )
        sys.stdout.write("\n")
    else:
        grid.show(console)
        command.say(console, conditions)
    if options.write is not None:
        command.put_figures(options.write, place_of(files), "\n".join([*conditions, "", grid.markdown()]))
    return 0


def place_of(files: Sequence[Path]) -> str:
    """Where the table of these invocations is put.  ValueError: some had larger states, and others had not."""
    sizes = {int(json.loads(path.read_text()).get("state_mb", 0)) for path in files}
    if len(sizes) > 1:
        raise ValueError(f"states of different sizes are not put into one table: {sorted(sizes)} MiB more")
    return HEAVY_FIGURES if any(sizes) else FIGURES


def read(files: Sequence[Path]) -> tuple[list[str], list[Loss]]:
    """Conditions and runs of several invocations; their repetitions are numbered one after the other."""
    conditions, found = [], list[Loss]()
    for path in files:
        saved = json.loads(path.read_text())
        before = max((one.repeat for one in found), default=0)
        runs = [Loss(**one) for one in saved["runs"]]
        found += [replace(one, repeat=before + one.repeat) for one in runs]
        conditions.append(saved["conditions"])
    return conditions, found


def lost_nodes(nodes: int, lose: int) -> list[str]:
    """As far from each other as they can be, the last one among them and, if another one stays, not the first."""
    return [f"n{k * nodes // lose}" for k in range(1, lose + 1)]


def most_valuable(resource: StreamTopology) -> tuple[frozenset[str], list[str]]:
    """The three queries of the greatest priority, and all operators that they need."""
    queries = sorted(expand(resource).queries.values(), key=lambda q: (-q.priority, q.id))[:TOP]
    partitions = {p for query in queries for p in query.partitions}
    needed = [o.name for o in resource.operators if any(p.rpartition(".")[0] == o.name for p in partitions)]
    return frozenset(query.id for query in queries), needed


def variants(options: argparse.Namespace) -> dict[str, tuple[StreamTopology, Mapping[str, Any]]]:
    """Name of a row -> what is run, and what happens to it."""
    changes = {
        "sources[source].with.batches": options.batches,
        "sources[source].with.rate": options.rate,
        "nodes.count": options.nodes,
        "checkpoint.interval": options.checkpoint,
    }
    resource = load(TOPOLOGY, overrides=changes)
    if options.state_mb:
        resource = override(resource, heavy(resource, options.state_mb))
    names = lost_nodes(options.nodes, options.lose)
    faults = {
        UNANNOUNCED: {"batch": options.batch, "kill": names},
        ANNOUNCED: {"batch": options.batch, "notice": names, "for": options.notice},
    }
    found = {name: (resource, fault) for name, fault in faults.items()}
    if options.standbys:
        _, needed = most_valuable(resource)
        guarded = override(resource, {f"operators[{name}].availability": options.standbys for name in needed})
        found |= {f"{name}, {options.standbys}": (guarded, fault) for name, fault in faults.items()}
    return found


def heavy(resource: StreamTopology, megabytes: int) -> dict[str, Any]:
    """Changes with which each state is larger by so many MiB."""
    changes = dict[str, Any]()
    for operator in resource.operators:
        if (code := HEAVY.get(resolve(operator.class_path))) is not None:
            changes[f"operators[{operator.name}].class"] = f"{code.__module__}:{code.__name__}"
            changes[f"operators[{operator.name}].with.megabytes"] = megabytes
    return changes


def _run_all(options: argparse.Namespace, console: Console) -> None:
    seconds = (options.batches - options.batch) * BATCH_S
    loads, found = [os.getloadavg()[0]], list[Loss]()
    first: RunResult | None = None
    try:
        with EmbeddedCluster(
            ClusterConfig(nodes=options.nodes, cpu_milli=CPU_MILLI, start_timeout_s=300.0)
        ) as cluster:
            for repeat in range(1, options.repeat + 1):
                for name, (resource, fault) in variants(options).items():
                    out = options.out / f"{repeat:02d}-{name.replace(', ', '-').replace(' ', '-')}"
                    result = _run(options, cluster, resource, fault, out)
                    first = first or (result if result.ok else None)
                    same = result.ok and first is not None and compare(first.out, result.out).identical
                    top, _ = most_valuable(resource)
                    found.append(loss_of(repeat, name, result, seconds, top, same))
                    loads.append(os.getloadavg()[0])
                    command.say(console, [_line(options, found[-1], loads[-1])])
    finally:  # what was measured until then
        conditions = (
            f"{options.lose} of {options.nodes} nodes, {options.notice:g} s of notice, "
            f"{f'{options.state_mb} MiB more in each state, ' if options.state_mb else ''}over {seconds:g} s from the "
            f"fault on, {os.cpu_count()} cores; load average {min(loads):.1f} to {max(loads):.1f}."
        )
        saved = {
            "conditions": conditions,
            "state_mb": options.state_mb,
            "runs": [asdict(one) for one in found],
        }
        (options.out / "notice.json").write_text(json.dumps(saved, indent=1) + "\n")


def _run(
    options: argparse.Namespace,
    cluster: EmbeddedCluster,
    resource: StreamTopology,
    fault: Mapping[str, Any],
    out: Path,
) -> RunResult:
    config = RunConfig(
        resource=resource,
        out=out,
        faults=parse_faults([dict(fault)], "schedule", options.nodes),
        timeout_s=options.timeout,
        cluster=cluster,
        python_path=str(PROJECT),
    )
    return run_topology(config, lambda *_: None, lambda _line: None)


def _line(options: argparse.Namespace, loss: Loss, load_average: float) -> str:
    lost = (
        f"{loss.lost_s:.2f} s lost, {loss.still_s:.1f} s still" if loss.lost_s is not None else loss.outcome
    )
    return f"[{loss.repeat}/{options.repeat}] {loss.loss}: {lost}; load average {load_average:.1f}"


def _title(options: argparse.Namespace) -> str:
    return f"{options.lose} of {options.nodes} nodes, notice {options.notice:g} s"


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.notice",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, help="folder of the runs, replaced when it is there")
    parser.add_argument(
        "--from", dest="known", type=Path, nargs="+", default=[], metavar="JSON",
        help="run nothing: show the figures of these invocations together",
    )  # fmt: skip
    parser.add_argument("--write", type=Path, metavar="FILE", help="a document into which the table is put")
    parser.add_argument("--timeout", type=float, default=600.0, help="of one run, seconds")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--lose", type=int, default=4, help="of these, far from each other")
    parser.add_argument("--notice", type=float, default=10.0, help="seconds between notice and loss")
    parser.add_argument(
        "--state-mb", type=int, default=0, metavar="N",
        help="MiB by which each state of the 15 operators is larger",
    )  # fmt: skip
    parser.add_argument(
        "--standbys", nargs="?", const=STANDBYS[0], choices=STANDBYS, metavar="MODE",
        help=f"two more runs, with standbys for the {TOP} most valuable queries: {' or '.join(STANDBYS)}",
    )  # fmt: skip
    parser.add_argument("--repeat", type=int, default=1, help="runs of each, of which the median is printed")
    parser.add_argument("--batch", type=int, default=60, help="at which the notice comes, or the loss")
    parser.add_argument("--batches", type=int, default=200, help="of 0.5 s, in the whole stream")
    parser.add_argument("--rate", type=int, default=200, help="rows a second")
    parser.add_argument("--checkpoint", default="10s", help="time between two checkpoints")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    if (options.out is None) != bool(options.known):
        parser.error("either --out or --from")
    if not 0 < options.lose < options.nodes:
        parser.error("--lose: at least one node, and fewer than there are")
    if options.state_mb < 0:
        parser.error("--state-mb: must not be negative")
    return options


if __name__ == "__main__":
    sys.exit(main())

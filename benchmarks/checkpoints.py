"""Checkpointing protocols on one topology, with the node of one query lost: what each costs, and what it is worth then.

    python -m benchmarks.checkpoints --out DIR [--nodes 4] [--batches 60] [--interval 3s] [--runs coordinated,memory,...]
        [--order aligned|arrival]

Topology 2 of Su and Zhou, one cluster, the same loss in every run: the node of one output partition is killed, and the
others have room for what it had.  Measures of Siachamis et al., "CheckMate: Evaluating Checkpointing Protocols for
Streaming Dataflows", section V, as they are taken here:

- restart: from the incident until every lost query has all of its partitions at work;
- recovery: from the kill until every lost query is back near the newest batch and stays there;
- snapshots, and bytes: state files that were stored, none removed (`checkpoint.keep`); a partition without state has none;
- logged: bytes of output in those files;
- skipped: snapshots that lost partitions had and that were newer than the ones that they went back to;
- useless: snapshots that are in no line without orphans, everything logged (rule V1): what a protocol would lose if
  replays differed.

Outputs that differ from the first run's by a byte are named, where input is aligned; in the order of arrival they are not
compared, as this topology's output depends on which rows come together.  Hot keys in either order: `benchmarks.skew`.  The
exit code is 0 also when the expected was not seen: this is no test.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import command
from reprise.algorithms.recovery_line import Edge, Impossible, World, by_end, line
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.report.compare import compare
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult
from reprise.controller.local.run.supervisor import run_topology
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.node.channels import CHANNELS
from reprise.spark_jobs.state.snapshot import Snapshot
from reprise.spark_jobs.state.state_file import decode_state
from reprise.spark_jobs.topology import StreamTopology, Topology, expand, load_topology

TOPOLOGY = Path(__file__).resolve().parents[1] / "examples" / "topology2.yaml"
LOST = "@o14"
RUNS: Mapping[str, Mapping[str, Any]] = {
    "coordinated": {},
    "memory": {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory"},
    "checkpointed": {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "checkpointed"},
    "induced": {"checkpoint.protocol": "communication-induced", "checkpoint.log": "checkpointed"},
}
"""By what a run is called: `memory` and `checkpointed` are uncoordinated, with that log."""
_SKIPPED = re.compile(r"event=line-taken .*skipped=(\d+)")


@dataclass(frozen=True, slots=True)
class Figures:
    """One run.  Seconds; bytes; None: it was not seen."""

    run: str
    outcome: str
    restart_s: float | None
    recovery_s: float | None
    snapshots: int
    stored: int
    logged: int
    skipped: int | None
    """None: with coordinated checkpoints everybody goes back to the newest round."""
    useless: int
    same: bool | None
    """None: it is not compared."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    command.begin(options.out)
    found: list[Figures] = []
    first: Path | None = None
    with EmbeddedCluster(
        ClusterConfig(nodes=options.nodes, cpu_milli=1000, start_timeout_s=300.0)
    ) as cluster:
        for name in options.runs:
            resource = _resource(options, name)
            result = _run(resource, cluster, options, name)
            first = first or result.out
            found.append(_figures(name, resource, result, first))
            console.print(f"{name}: {result.outcome} {result.reason}")
    _show(console, found)
    (options.out / "checkpoints.json").write_text(json.dumps([asdict(f) for f in found], indent=1) + "\n")
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command.parser("checkpoints", __doc__, nodes=4, timeout_s=300.0)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--interval", default="3s")
    parser.add_argument(
        "--runs", help="of " + ", ".join(RUNS) + "; default: all that the order of input allows"
    )
    parser.add_argument("--order", choices=("aligned", "arrival"), default="aligned", help="batch.order")
    options = parser.parse_args(arguments)
    wanted = options.runs.split(",") if options.runs else list(RUNS)
    if unknown := set(wanted) - RUNS.keys():
        parser.error(f"--runs: there is no {', '.join(sorted(unknown))}")
    refused = refusals(options, wanted)
    if options.runs and refused:
        parser.error("--runs: " + "; ".join(f"{run}: {reason}" for run, reason in refused.items()))
    options.runs = [run for run in wanted if run not in refused]
    return options


def refusals(options: argparse.Namespace, runs: Sequence[str]) -> dict[str, str]:
    """Runs that the engine refuses with this order of input, and what it says; there are none where input is aligned."""
    found: dict[str, str] = {}
    for run in runs if options.order == "arrival" else ():
        try:
            _resource(options, run)
        except SpecError as error:
            found[run] = str(error)
    return found


def _resource(options: argparse.Namespace, run: str) -> StreamTopology:
    changes = {
        "sources[source].with.batches": options.batches,
        "sources[source].with.rate": 100,
        "nodes.count": options.nodes,
        "nodes.cpu": "1",
        "checkpoint.interval": options.interval,
        "checkpoint.keep": 100,
        "batch.order": options.order,
    }
    return load_topology(TOPOLOGY, {**changes, **RUNS[run]})


def _run(
    resource: StreamTopology, cluster: EmbeddedCluster, options: argparse.Namespace, run: str
) -> RunResult:
    faults = [{"batch": options.batches // 2, "kill": [LOST]}]
    parsed = parse_faults([dict(f) for f in faults], "faults", options.nodes)
    config = RunConfig(
        resource=resource, out=options.out / run, faults=parsed, timeout_s=options.timeout, cluster=cluster
    )
    return run_topology(config, lambda _state, _actions: None)


def _figures(run: str, resource: StreamTopology, result: RunResult, first: Path) -> Figures:
    files = sorted((result.out / "checkpoints").glob("cp-*/*.state"))
    known = _snapshots(files, expand(resource))
    logs = [(result.out / "logs" / "driver.log").read_text()]
    skipped = [int(n) for text in logs for n in _SKIPPED.findall(text)]
    at = _times(result.incident["timeline"])
    return Figures(
        run=run,
        outcome=result.outcome.value,
        restart_s=_between(at, "opened", "queries-restored"),
        recovery_s=_between(at, "kill", "queries-caught-up"),
        snapshots=len(files),
        stored=sum(f.stat().st_size for f in files),
        logged=sum(_logged(f) for f in files),
        skipped=max(skipped, default=0) if resource.checkpoint.uncoordinated else None,
        useless=useless(known, expand(resource)),
        same=_same(resource, result, first),
    )


def _same(resource: StreamTopology, result: RunResult, first: Path) -> bool | None:
    if resource.arrival:
        return None
    return result.outcome is Outcome.DONE and compare(first, result.out).identical


def _times(timeline: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The last time of each kind of line, but the first of the incident."""
    found: dict[str, float] = {}
    for entry in timeline:
        if entry["what"] not in ("kill", "opened") or entry["what"] not in found:
            found[entry["what"]] = float(entry["elapsed"])
    return found


def _between(at: Mapping[str, float], begin: str, end: str) -> float | None:
    return round(at[end] - at[begin], 1) if begin in at and end in at else None


def place_of(file: Path) -> tuple[str, int]:
    """Partition and position of a state file, whose name begins with its partition's."""
    operator, index, *_ = file.name.split(".")
    return f"{operator}.{index}", int(file.parent.name.removeprefix("cp-"))


def _snapshots(files: Sequence[Path], topology: Topology) -> dict[str, list[int]]:
    """Positions of the stored snapshots of each partition that has any."""
    found: dict[str, set[int]] = {}
    for partition, position in map(place_of, files):
        found.setdefault(partition, {0}).add(position)
    return {p: sorted(positions) for p, positions in found.items() if p in topology.partitions}


def _logged(file: Path) -> int:
    tables = decode_state(file.read_bytes())
    if CHANNELS not in tables:
        return 0
    return sum(len(body) for body in tables[CHANNELS]["body"].to_pylist())


def useless(known: Mapping[str, Sequence[int]], topology: Topology) -> int:
    """Snapshots of which each is in no line without orphans.  A partition that stores nothing can begin at any position."""
    world = logged_everywhere(known, topology)
    count = 0
    for partition, positions in known.items():
        for index in range(len(positions)):
            only = {**world.snapshots, partition: (world.snapshots[partition][index],)}
            count += isinstance(line(replace(world, snapshots=only), set(only)), Impossible)
    return count


def logged_everywhere(known: Mapping[str, Sequence[int]], topology: Topology) -> World[Snapshot]:
    """What a total failure finds where every output is logged and every replay may differ."""
    reached = max((k for positions in known.values() for k in positions), default=0)
    anywhere = range(reached + 1)
    edges = [
        Edge(u.partition, p.id, int(u.feedback)) for p in topology.partitions.values() for u in p.upstream
    ]
    below: dict[str, dict[str, int]] = {}
    for edge in edges:
        below.setdefault(edge.source, {})[edge.target] = 1
    points = {p: tuple(Snapshot.round(p, k) for k in known.get(p, anywhere)) for p in topology.partitions}
    logged = {p: tuple(_with(s, below.get(p, {})) for s in all_of) for p, all_of in points.items()}
    return World(edges, frozenset(), logged, {}, {}, 0, frozenset(), index=by_end(edges))


def _with(snapshot: Snapshot, channels: Mapping[str, int]) -> Snapshot:
    return Snapshot(
        snapshot.partition, snapshot.position, None, snapshot.kind, snapshot.sent, snapshot.first, snapshot.number, channels
    )  # fmt: skip


def _show(console: Console, found: Sequence[Figures]) -> None:
    names = (
        "run",
        "outcome",
        "restart s",
        "recovery s",
        "snapshots",
        "bytes",
        "logged",
        "skipped",
        "useless",
        "same",
    )
    table = Table(*names)
    for one in found:
        table.add_row(*("-" if value is None else str(value) for value in asdict(one).values()))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
